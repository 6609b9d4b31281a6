"""Retrieval metrics over ranked class lists, as percentages named as in the papers.

`P@k`, `R@k`, `nDCG@k` and `PSP@k` look at the first k classes; `MRR` and `mean rank` at where the
best-placed right class stands among all of them; `batch R@k` only at the right classes of a batch of
examples; `mAP` ranks the examples of every class.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from spreadout.core.ragged import Ragged

_NAME = re.compile(
    r"(P|R|nDCG|PSP|capped P|batch R)@([1-9][0-9]*)|(P)@([1-9][0-9]*)( frequent| infrequent)"
    r"|(MRR|mean rank|mAP|MAP@R)|(MAP|retrieval R)@([1-9][0-9]*)"
)
LOWER_IS_BETTER = ("mean rank",)
PROPENSITY = (0.55, 1.5)  # a and b of PSP@k for most data sets (Jain et al. 2016)
NEED_FREQUENCIES = ("PSP", "P frequent", "P infrequent")
NEED_ALL_SCORES = ("MRR", "mean rank", "mAP", "batch R")
RETRIEVAL = ("MAP", "MAP@R", "retrieval R")  # of examples among each other, whatever their classes
NEED_EMBEDDINGS = (*NEED_ALL_SCORES, *RETRIEVAL)


def parse(name: str) -> tuple[str, int]:
    """('P', 5) for "P@5", ('MRR', 0) for "MRR"; a `ValueError` names what is known."""
    match = _NAME.fullmatch(name)
    if match is None:
        raise ValueError(
            "must be P@k, P@k frequent, P@k infrequent, capped P@k, R@k, nDCG@k, PSP@k or batch R@k "
            "with k at least 1, MRR, mean rank, mAP, or of classes never trained on MAP@k, MAP@R or "
            "retrieval R@k; such as P@1"
        )
    if match[3]:
        return match[3] + match[5], int(match[4])
    if match[7]:
        return match[7], int(match[8])
    return (match[6], 0) if match[6] else (match[1], int(match[2]))


@dataclass(frozen=True)
class Frequencies:
    """How many training instances have each class, and how many classes count as frequent."""

    counts: Tensor  # (C,)
    instances: int
    frequent: int = 100
    propensity: tuple[float, float] = PROPENSITY

    @cached_property
    def inverse(self) -> Tensor:
        a, b = self.propensity
        return inverse_propensity(self.counts, self.instances, a=a, b=b)

    @cached_property
    def is_frequent(self) -> Tensor:
        """(C,) bool"""
        top = torch.argsort(self.counts, descending=True, stable=True)[: self.frequent]
        return torch.zeros(len(self.counts), dtype=torch.bool).index_fill(0, top, True)


def hits(ranked: Tensor, labels: Ragged) -> Tensor:
    """Whether each ranked class is a right one: (n, k) ids → (n, k) bool, without an (n, C) table."""
    device = ranked.device
    owner = torch.repeat_interleave(torch.arange(len(labels)), labels.lengths)
    most = [int(part.max()) for part in (ranked, labels.values) if part.numel()]
    span = max(most, default=0) + 1
    right = (owner * span + labels.values).to(device).sort().values
    asked = torch.arange(len(ranked), device=device)[:, None] * span + ranked
    if not len(right):
        return torch.zeros_like(asked, dtype=torch.bool)
    return right[torch.searchsorted(right, asked).clamp_max(len(right) - 1)] == asked


def precision_at(ranked: Tensor, labels: Ragged, k: int) -> float:
    """P@k: the share of right classes among the first k, over the examples that have a label."""
    labelled = (labels.lengths > 0).to(ranked.device)
    right = hits(ranked[:, :k], labels)[labelled].sum(1).double()
    return 100.0 * float((right / k).mean())


def share_at(ranked: Tensor, labels: Ragged, k: int, counted: Tensor) -> float:
    """The part of P@k that some classes bring; such parts add up to P@k. counted: (C,) bool."""
    labelled = (labels.lengths > 0).to(ranked.device)
    first = ranked[:, :k]
    right = (hits(first, labels) & counted.to(ranked.device)[first])[labelled].sum(1).double()
    return 100.0 * float((right / k).mean())


def capped_precision_at(ranked: Tensor, labels: Ragged, k: int) -> float:
    """The share of right classes among the first min(|y|, k): 1 can be reached with few labels."""
    labelled = labels.lengths > 0
    right = hits(ranked[:, :k], labels).cpu()[labelled].sum(1).double()
    return 100.0 * float((right / labels.lengths[labelled].clamp_max(k)).mean())


def recall_at(ranked: Tensor, labels: Ragged, k: int) -> float:
    """R@k: the share of an example's right classes found among the first k, averaged."""
    labelled = labels.lengths > 0
    right = hits(ranked[:, :k], labels).cpu()[labelled].sum(1).double()
    return 100.0 * float((right / labels.lengths[labelled]).mean())


def ndcg_at(ranked: Tensor, labels: Ragged, k: int) -> float:
    """nDCG@k with gain 1 for a right class: Σ 1/log2(1 + place), over the most there could be."""
    labelled = labels.lengths > 0
    place = torch.arange(1, ranked[:, :k].shape[1] + 1, dtype=torch.float64)
    discount = 1 / torch.log2(1 + place)
    gained = (hits(ranked[:, :k], labels).cpu()[labelled] * discount).sum(1)
    most = discount.cumsum(0)[labels.lengths[labelled].clamp_max(len(place)) - 1]
    return 100.0 * float((gained / most).mean())


def inverse_propensity(
    counts: Tensor, instances: int, *, a: float = PROPENSITY[0], b: float = PROPENSITY[1]
) -> Tensor:
    """1/p of each label: how much a find counts, the more the rarer the label is in training.

    Jain et al. 2016: 1 + (log N − 1)(b + 1)^a (n_l + b)^−a.
    """
    scale = (math.log(max(instances, 1)) - 1) * (b + 1) ** a
    found: Tensor = 1 + scale * (counts.double() + b) ** -a
    return found


def scored_precision_at(ranked: Tensor, labels: Ragged, k: int, inverse: Tensor) -> float:
    """PSP@k: what the right classes among the first k count, over the most there could be.

    inverse: (C,) 1/p; both sums are taken over all examples before one is divided by the other, as the
    extreme classification repository does.
    """
    weight = inverse.cpu()
    untrained = max(int(labels.values.max()) + 1 - len(weight), 0) if len(labels.values) else 0
    weight = torch.cat([weight, weight.max().expand(untrained)])  # labels nobody trained: the rarest
    first = ranked[:, :k].cpu()
    gained = (hits(first, labels) * weight[first]).sum()
    owner = torch.repeat_interleave(torch.arange(len(labels)), labels.lengths)
    counts = weight[labels.values]
    order = torch.argsort(counts, descending=True, stable=True)
    order = order[torch.argsort(owner[order], stable=True)]  # within an example, the rarest first
    place = torch.arange(len(order)) - labels.offsets[:-1][owner[order]]
    most = counts[order][place < k].sum()
    return 100.0 * float(gained / most) if float(most) else float("nan")


def average_precision(scores: Tensor, right: Tensor) -> Tensor:
    """AP of each class: the mean, over its right examples, of the precision down to them.

    scores, right: (n, classes), right is bool. Examples with the very same score are taken together. NaN
    for a class without a right example. → (classes,)
    """
    order = torch.argsort(scores, 0, descending=True)
    ordered, found = scores.gather(0, order), right.gather(0, order).double()
    seen = found.cumsum(0)
    place = torch.arange(1, len(scores) + 1, dtype=torch.float64, device=scores.device)[:, None]
    precision = seen / place
    # Where scores are level, the precision is that at the last of them.
    level = torch.cat([ordered[1:] == ordered[:-1], torch.zeros_like(right[:1])])
    last = torch.where(level, len(scores), torch.arange(len(scores), device=scores.device)[:, None])
    last = last.flip(0).cummin(0).values.flip(0)
    return (precision.gather(0, last) * found).sum(0) / found.sum(0)


def map_at(right: Tensor, sizes: Tensor, k: int | None) -> float:
    """MAP@R of each example's neighbours (FedSS, Eq. 9; Musgrave et al. 2020).

    right: (n, most) bool, whether each neighbour, nearest first, is of the example's class; sizes: (n,)
    how many others its class has. R is k, or the class's size where k is None. Examples alone in their
    class are left out.
    """
    wanted = sizes if k is None else torch.full_like(sizes, k)
    place = torch.arange(1, right.shape[1] + 1, device=right.device)
    found = right.double()
    precision = found.cumsum(1) / place * found * (place <= wanted[:, None])
    each = precision.sum(1) / wanted.clamp_min(1)
    return 100.0 * float(each[sizes > 0].mean())


def retrieval_recall_at(right: Tensor, sizes: Tensor, k: int) -> float:
    """The share of examples with one of their class among the k nearest others."""
    return 100.0 * float(right[sizes > 0, :k].any(1).double().mean())


def mean_reciprocal_rank(rank: Tensor) -> float:
    """MRR over all classes, from the rank of each example's best-placed right class (from 1)."""
    return 100.0 * float((1 / rank.double()).mean())


def mean_rank(rank: Tensor) -> float:
    """The mean rank itself, over examples with a trained class: no percentage, the lower the better."""
    return float(rank[rank.isfinite()].double().mean())


def batch_recall_at(rivals: Tensor, k: int) -> float:
    """The share of examples with fewer than k rivals in their batch; NaN without a whole batch."""
    return 100.0 * float((rivals < k).double().mean())


def compute(
    name: str,
    ranked: Tensor,
    labels: Ragged,
    rank: Tensor | None = None,
    seen: Frequencies | None = None,
) -> float:
    """The metric with this name, from the first classes ranked and the ranks of the right ones."""
    kind, k = parse(name)
    if kind in NEED_FREQUENCIES:
        assert seen is not None
        if kind == "PSP":
            return scored_precision_at(ranked, labels, k, seen.inverse)
        frequent = seen.is_frequent if kind == "P frequent" else ~seen.is_frequent
        return share_at(ranked, labels, k, frequent)
    if kind in ("MRR", "mean rank"):
        assert rank is not None
        return mean_reciprocal_rank(rank) if kind == "MRR" else mean_rank(rank)
    at = {"P": precision_at, "capped P": capped_precision_at, "R": recall_at, "nDCG": ndcg_at}[kind]
    return at(ranked, labels, k)
