"""Retrieval metrics over ranked class lists, as percentages named as in the papers."""

from __future__ import annotations

import re

import torch
from torch import Tensor

from spreadout.ragged import Ragged

_NAME = re.compile(r"(P|R)@([1-9][0-9]*)")


def parse(name: str) -> tuple[str, int]:
    """('P', 5) for "P@5"; a `ValueError` names what is known."""
    match = _NAME.fullmatch(name)
    if match is None:
        raise ValueError("must be P@k or R@k with k at least 1, such as P@1")
    return match[1], int(match[2])


def hits(ranked: Tensor, labels: Ragged) -> Tensor:
    """Whether each ranked class is a right one: (n, k) ids → (n, k) bool, without an (n, C) table."""
    device = ranked.device
    owner = torch.repeat_interleave(torch.arange(len(labels)), labels.lengths)
    most = [int(part.max()) for part in (ranked, labels.values) if part.numel()]
    span = max(most, default=0) + 1
    right = (owner * span + labels.values).to(device)
    asked = torch.arange(len(ranked), device=device)[:, None] * span + ranked
    return torch.isin(asked, right)


def precision_at(ranked: Tensor, labels: Ragged, k: int) -> float:
    """P@k: the share of right classes among the first k, over the examples that have a label."""
    labelled = (labels.lengths > 0).to(ranked.device)
    right = hits(ranked[:, :k], labels)[labelled].sum(1).double()
    return 100.0 * float((right / k).mean())


def recall_at(ranked: Tensor, labels: Ragged, k: int) -> float:
    """R@k: the share of an example's right classes found among the first k, averaged."""
    labelled = labels.lengths > 0
    right = hits(ranked[:, :k], labels).cpu()[labelled].sum(1).double()
    return 100.0 * float((right / labels.lengths[labelled]).mean())


def compute(name: str, ranked: Tensor, labels: Ragged) -> float:
    """The metric with this name."""
    kind, k = parse(name)
    return (precision_at if kind == "P" else recall_at)(ranked, labels, k)
