"""Sums of rows by segment, prepared in advance: always the same bits, and the host does not wait."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.nn import functional as F

from spreadout.core.merging import RowSum
from spreadout.core.ragged import offsets_from_lengths

PIECE = 128  # entries added one after another; a long segment has many pieces


@dataclass(frozen=True)
class SegmentSum:
    """Weighted sums of rows, one for every segment; always the same bits."""

    at: Tensor  # (nnz,) which row, segment after segment
    weights: Tensor  # (nnz,)
    piece: Tensor  # (p,) where each piece of a segment begins
    first: Tensor  # (n,) each segment's first piece

    @classmethod
    def of(cls, at: Tensor, weights: Tensor, lengths: Tensor) -> SegmentSum:
        """lengths (n,): entries of each segment."""
        pieces = (lengths + PIECE - 1) // PIECE
        first = offsets_from_lengths(pieces)[:-1]
        within = torch.arange(int(pieces.sum()), device=at.device)
        within -= torch.repeat_interleave(first, pieces)
        begin = torch.repeat_interleave(offsets_from_lengths(lengths)[:-1], pieces)
        return cls(at, weights, begin + PIECE * within, first)

    def sums(self, rows: Tensor) -> Tensor:
        """rows (m, d) → (n, d)"""
        if not len(self.piece):
            return rows.new_zeros(len(self.first), rows.shape[1])
        parts = F.embedding_bag(
            self.at, rows, self.piece, mode="sum", per_sample_weights=self.weights.to(rows.dtype)
        )
        every = torch.arange(len(parts), device=parts.device)
        return F.embedding_bag(every, parts, self.first, mode="sum")


@dataclass(frozen=True)
class RowSlots:
    """A chunk's row slots, and how they add up by row: nothing of it depends on what is trained."""

    ids: Tensor  # (r,) rows that some client holds, ascending
    holders: Tensor  # (r,) float32, how many clients hold each
    examples: Tensor  # (r,) float32, and how many examples those have
    owner: Tensor  # (n,) the client of each real slot, row after row
    segments: SegmentSum  # of the k·m slots

    @classmethod
    def of(cls, ids: Tensor, examples: Tensor) -> RowSlots:
        """ids (k, m), −1 for padding; examples (k,): what each client counts for."""
        slot = (ids.flatten() >= 0).nonzero()[:, 0]
        rows, place, holders = torch.unique(ids.flatten()[slot], return_inverse=True, return_counts=True)
        slot = slot[torch.argsort(place, stable=True)]
        owner = slot // max(ids.shape[1], 1)
        segments = SegmentSum.of(slot, torch.ones(len(slot), device=ids.device), holders)
        behind = replace(segments, weights=examples[owner].float()).sums(_ones(ids))[:, 0]
        return cls(rows, holders.float(), behind, owner, segments)

    def sum(self, change: Tensor, weight: Tensor) -> RowSum:
        """Σ v_i Δ_i over all clients; change (k, m, d), weight (k,)."""
        weighed = replace(self.segments, weights=weight[self.owner])
        return RowSum(self.ids, weighed.sums(change.flatten(0, 1)), self.holders, self.examples)


def _ones(ids: Tensor) -> Tensor:
    """A column for every slot: sums of it are sums of the weights."""
    return torch.ones(ids.numel(), 1, device=ids.device)
