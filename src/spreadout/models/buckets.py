"""Classifiers whose outputs are buckets of classes: R networks side by side (FedMLH, §4).

Class c is bucket h_r(c) of network r. One network, with every class a bucket of its own, is the plain
multi-label classifier that FedAvg trains.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Literal

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional as F

from spreadout.core.hashing import HashFamily
from spreadout.core.tables import Table, Tables
from spreadout.core.types import Batch, Params, Tensors
from spreadout.models.embedding import EmbeddingModel
from spreadout.objectives.neighbours import Nearest

Decoding = Literal["log-probability", "logits"]
"""A class's score: the mean over its buckets of the log of their probability, or of their logits."""

SCORES_AT_ONCE = 1 << 26  # scores of rows against classes in memory at once


class SideBySide(nn.Module):
    """R networks of dense layers with ReLU between them, all given the same input.

    rare: a fresh network takes one of its outputs to be right, each of them alike. From even odds, the
    first rounds of many outputs would teach only that nearly all are wrong, the layers below included.
    """

    def __init__(self, networks: int, widths: Sequence[int], rare: bool = False) -> None:
        super().__init__()
        self.weights, self.biases = nn.ParameterList(), nn.ParameterList()
        for narrow, wide in pairwise(widths):
            bound = 1 / math.sqrt(narrow)  # as nn.Linear starts
            self.weights.append(
                nn.Parameter(torch.empty(networks, narrow, wide).uniform_(-bound, bound))
            )
            self.biases.append(nn.Parameter(torch.empty(networks, wide).uniform_(-bound, bound)))
        if rare:
            nn.init.constant_(self.biases[-1], -math.log(max(widths[-1] - 1, 1)))  # log odds of 1 / wide

    def forward(self, x: Tensor) -> Tensor:
        """x: (n, features) → (R, n, outputs)"""
        last = len(self.weights) - 1
        for i, (weight, bias) in enumerate(zip(self.weights, self.biases, strict=True)):
            x = x @ weight + bias[:, None]
            x = F.relu(x) if i < last else x
        return x


@dataclass(frozen=True)
class BucketModel(EmbeddingModel):
    """`encoder` is a `SideBySide` without values, maybe after a scaling of its inputs.

    `fresh` makes one that has values. There is no class table.
    """

    fresh: Callable[[], nn.Module] = field(kw_only=True)
    classes: int = 0
    hashes: HashFamily | None = None  # None: every class is a bucket of its own
    decoding: Decoding = "log-probability"

    @property
    def class_count(self) -> int:
        return self.classes

    @property
    def outputs(self) -> int:
        """Numbers all networks together put out for one example."""
        return sum(value.shape[0] * value.shape[-1] for value in list(self.encoder.parameters())[-1:])

    def on(self, device: torch.device) -> BucketModel:
        return self if self.hashes is None else replace(self, hashes=self.hashes.to(device))

    def activations(self, shape: tuple[int, ...] | None) -> int:
        """Numbers all layers of all networks put out for one example."""
        named = self.encoder.named_parameters()
        return sum(value.numel() for name, value in named if "biases" in name)

    def initial(
        self, seed: int, device: torch.device, sharded: frozenset[str] = frozenset()
    ) -> tuple[Tensors, Tables]:
        """Fresh networks. They are most of the memory, so there is only one copy."""
        named = self.fresh().named_parameters()
        return {name: value.detach().to(device) for name, value in named}, {}

    def logits(self, params: Params, batch: Batch) -> Tensor:
        """Of every bucket of every network: (R, B, buckets)."""
        x = batch[self.inputs[0]].flatten(1)
        found: Tensor = functional_call(self.encoder, params.dense, (x,))
        return found.float()

    def embed(self, params: Params, batch: Batch) -> Tensor:
        """What classes are ranked by: the logits, (R, B, buckets)."""
        return self.logits(params, batch)

    def best_classes(self, embedded: Tensor, classes: Table | None, k: int) -> Nearest:
        """The k best classes by their buckets' logits."""
        return self.rank(embedded, k)

    def buckets_of(self, classes: Tensor) -> Tensor:
        """(…) → (R, …)"""
        return classes[None] if self.hashes is None else self.hashes(classes)

    def rank(self, logits: Tensor, k: int, *, at_once: int = SCORES_AT_ONCE) -> Nearest:
        """The k best classes of every row, a block of classes at a time: (R, n, buckets) → (n, k)."""
        if self.hashes is None:  # either score ranks as the logits do
            best, ids = logits[0].topk(k)
            return Nearest(F.logsigmoid(best) if self.decoding == "log-probability" else best, ids)
        scores = F.logsigmoid(logits) if self.decoding == "log-probability" else logits
        rows = logits.shape[1]
        block = max(k, at_once // max(rows, 1))
        best = scores.new_empty(rows, 0)
        ids = torch.empty(rows, 0, dtype=torch.int64, device=scores.device)
        for start in range(0, self.classes, block):
            classes = torch.arange(start, min(start + block, self.classes), device=scores.device)
            found = scores.new_zeros(rows, len(classes))
            for table, buckets in zip(scores, self.hashes(classes), strict=True):
                found += table.index_select(1, buckets)  # (n, block)
            here, place = found.topk(min(k, len(classes)), 1)
            best, ids = torch.cat([best, here], 1), torch.cat([ids, place + start], 1)
            best, place = best.topk(min(k, best.shape[1]), 1)
            ids = ids.gather(1, place)
        return Nearest(best / self.hashes.tables, ids)


def side_by_side_bytes(networks: int, widths: Sequence[int]) -> int:
    """What such networks weigh in float32, without making them."""
    return 4 * networks * sum(narrow * wide + wide for narrow, wide in pairwise(widths))
