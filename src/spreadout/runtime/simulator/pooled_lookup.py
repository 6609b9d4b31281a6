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
from spreadout.core.sorting import stable_order
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
        requested: Ragged | None,
        examples: Tensor,
        pooling: Pooling,
    ) -> PooledFeatures:
        """at, mask (k, B): examples and which slots are filled; requested: the rows each client holds,
        None: those its examples name; examples (k,): what each client counts for."""
        device, slots = examples.device, mask.numel()
        slot = mask.flatten().nonzero()[:, 0]
        features = column.select(at.flatten()[slot]).compact()
        ids = features.ids.to(device).long()
        lengths = features.offsets.diff().to(device)
        owner = torch.repeat_interleave(slot.to(device), lengths, output_size=len(ids))
        # A feature named twice counts twice, in a fixed order on every device.
        pairs, weights = sum_by_id(ids * slots + owner, features.weights.to(device).float())
        ids, slot = pairs // slots, pairs % slots
        weights = weights / _length(slot, weights, slots, pooling)[slot]
        if requested is None:
            rows, row, named = torch.unique_consecutive(ids, return_inverse=True, return_counts=True)
            holders, behind = _held_by(row, slot // mask.shape[1], len(rows), examples)
        else:
            rows, holders, behind = _requested(requested, examples)
            row = _places(rows, ids)
            named = torch.bincount(row, minlength=len(rows))
        order = stable_order(slot)
        return cls(
            rows,
            holders,
            behind,
            SegmentSum.of(row[order], weights[order], torch.bincount(slot, minlength=slots)),
            SegmentSum.of(slot, weights, named),
            (mask.shape[0], mask.shape[1]),
        )

    def pooled(self, table: Table) -> Tensor:
        """What the lookup puts out: (k, B, width)."""
        return self.by_slot.sums(table[self.rows]).view(*self.slots, -1)

    def row_sum(self, gradient: Tensor, share: Tensor, rate: float) -> RowSum:
        """Σ_i v_i ΔW_i; gradient (k, B, width) of Σ ω_i loss_i, share (k,): v_i / ω_i."""
        shared = (gradient * share[:, None, None]).flatten(0, 1)
        return RowSum(self.rows, -rate * self.by_row.sums(shared), self.holders, self.examples)


def _held_by(row: Tensor, client: Tensor, rows: int, examples: Tensor) -> tuple[Tensor, Tensor]:
    """How many clients name each row, and how many examples those have: two (rows,).

    row, client (n,): by row, then by client; examples (k,): what each client counts for.
    """
    clients = max(len(examples), 1)
    once = torch.unique_consecutive(row * clients + client)
    row, counted = once // clients, examples[once % clients].float()
    behind = counted.new_zeros(rows).index_put_((row,), counted, accumulate=True)
    return torch.bincount(row, minlength=rows).float(), behind


def _requested(requested: Ragged, examples: Tensor) -> tuple[Tensor, ...]:
    """The rows that somebody requests, how many do, and how many examples those have: three (m,)."""
    device, ids = examples.device, requested.values.to(examples.device)
    every, lengths = torch.arange(len(requested), device=device), requested.lengths.to(device)
    holder = torch.repeat_interleave(every, lengths, output_size=len(ids))
    counted = examples[holder].float()
    return sum_by_id(ids, torch.ones_like(counted), counted)


def _places(rows: Tensor, ids: Tensor) -> Tensor:
    """Where each id is among the rows: (n,)."""
    place = torch.searchsorted(rows, ids).clamp_max(max(len(rows) - 1, 0))
    if len(ids) and not (len(rows) and bool((rows[place] == ids).all())):
        raise ValueError("a method's request leaves out rows that its clients' examples name")
    return place


def _length(slot: Tensor, weights: Tensor, slots: int, pooling: Pooling) -> Tensor:
    """What the weights of each slot are divided by: (slots,)."""
    if pooling == "sum":
        return weights.new_ones(slots)
    power = weights.abs() if pooling == "mean" else weights**2
    total = weights.new_zeros(slots).index_put_((slot,), power, accumulate=True)
    return (total if pooling == "mean" else total.sqrt()).clamp_min(1e-12)
