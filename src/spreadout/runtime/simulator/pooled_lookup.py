"""One step of clients whose inputs are rows of a table, and nobody's rows are copied.

All clients start from the same rows, so what a lookup puts out for every example of a cohort is one
sparse product with the table, P = X W, and what the server sums is one with its transpose,
Σ_i v_i ΔW_i = −η Xᵀ D, where D is the losses' gradient at P. Stacked copies would hold every client's
rows and feature vectors over them: as many numbers as clients times rows, most of them zeros.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from spreadout.core.merging import RowSum
from spreadout.core.ragged import Ragged
from spreadout.core.rows import sum_by_id
from spreadout.core.tables import Table
from spreadout.data.columns import Sparse
from spreadout.models.lookup import Pooling
from spreadout.runtime.simulator.segment_sum import SegmentSum


@dataclass(frozen=True)
class PooledFeatures:
    """The features of a chunk's only step: X by example and by row."""

    rows: Tensor  # (m,) those the clients hold, ascending
    holders: Tensor  # (m,) float32, how many clients hold each
    examples: Tensor  # (m,) float32, and how many examples those have
    by_slot: SegmentSum  # X, over the k·B slots of the batches
    by_row: SegmentSum  # Xᵀ
    slots: tuple[int, int]  # k, B

    @classmethod
    def of(
        cls,
        column: Sparse,
        at: Tensor,
        mask: Tensor,
        requested: Ragged,
        examples: Tensor,
        pooling: Pooling,
    ) -> PooledFeatures:
        """at, mask (k, B): examples and which slots are filled; requested: the rows each client holds;
        examples (k,): what each client counts for."""
        device, slots = examples.device, mask.numel()
        holder = torch.repeat_interleave(torch.arange(len(requested)), requested.lengths).to(device)
        counted = examples[holder].float()
        rows, holders, behind = sum_by_id(requested.values.to(device), torch.ones_like(counted), counted)
        slot = mask.flatten().nonzero()[:, 0]
        features = column.select(at.flatten()[slot]).compact()
        ids = features.ids.to(device).long()
        owner = torch.repeat_interleave(slot.to(device), features.offsets.diff().to(device))
        place = torch.searchsorted(rows, ids).clamp_max(max(len(rows) - 1, 0))
        if len(ids) and not (len(rows) and bool((rows[place] == ids).all())):
            raise ValueError("a method's request leaves out rows that its clients' examples name")
        # A feature named twice counts twice, in a fixed order on every device.
        given = features.weights.to(device).float()
        pairs, weights = sum_by_id(place * slots + owner, given)
        row, slot = pairs // slots, pairs % slots
        weights = weights / _length(slot, weights, slots, pooling)[slot]
        order = torch.argsort(slot, stable=True)
        return cls(
            rows,
            holders,
            behind,
            SegmentSum.of(row[order], weights[order], torch.bincount(slot, minlength=slots)),
            SegmentSum.of(slot, weights, torch.bincount(row, minlength=len(rows))),
            (mask.shape[0], mask.shape[1]),
        )

    def pooled(self, table: Table) -> Tensor:
        """What the lookup puts out: (k, B, width)."""
        return self.by_slot.sums(table[self.rows]).view(*self.slots, -1)

    def row_sum(self, gradient: Tensor, share: Tensor, rate: float) -> RowSum:
        """Σ_i v_i ΔW_i; gradient (k, B, width) of Σ ω_i loss_i, share (k,): v_i / ω_i."""
        shared = (gradient * share[:, None, None]).flatten(0, 1)
        return RowSum(self.rows, -rate * self.by_row.sums(shared), self.holders, self.examples)


def _length(slot: Tensor, weights: Tensor, slots: int, pooling: Pooling) -> Tensor:
    """What the weights of each slot are divided by: (slots,)."""
    if pooling == "sum":
        return weights.new_ones(slots)
    power = weights.abs() if pooling == "mean" else weights**2
    total = weights.new_zeros(slots).index_put_((slot,), power, accumulate=True)
    return (total if pooling == "mean" else total.sqrt()).clamp_min(1e-12)
