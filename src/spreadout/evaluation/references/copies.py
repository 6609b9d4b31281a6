"""Rows that are in both the training part and the part that is scored: they are known by heart.

Every row becomes a number of 64 bits, Σ_j a_j · bits(x_j) mod 2⁶⁴ with a random odd a_j for each feature
(Carter and Wegman 1979, as in `core/hashing.py`), and numbers are compared. A feature that is 0 adds
nothing, so that a sparse row has the number of the same dense one. Memory: a number for each row and
each feature, and a block of rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from spreadout.core import randomness
from spreadout.data.columns import Column, Dense, Sparse
from spreadout.evaluation.references.features import width_of

AT_ONCE = 1 << 22  # numbers of features in memory at once
MOST = 1 << 30  # numbers to be read; of more, nobody looks
MIX = -0x61C8864680B583EB  # odd: 2⁶⁴ by the golden ratio
FEW_VALUES = 10  # times that a training row is there in the mean, from which rows are alike by nature


@dataclass(frozen=True)
class Copies:
    """How many of the scored rows are training rows too."""

    found: int = 0
    rows: int = 0  # that were looked at; 0: nobody looked


def copies_in(train: Mapping[str, Column], scored: Mapping[str, Column]) -> Copies:
    """Count them, by their inputs alone; of histories, and of more than can be read soon, none.

    Where training rows are the same over and over, features have few values, and to meet one again is
    no leak.
    """
    ours, theirs = train.get("x"), scored.get("x")
    if not isinstance(ours, Dense | Sparse) or not isinstance(theirs, Dense | Sparse):
        return Copies()
    width = width_of(ours)
    if width != width_of(theirs) or _numbers(ours) + _numbers(theirs) > MOST:
        return Copies()
    factor = torch.from_numpy(
        randomness.bits(randomness.key(0, "copies"), np.arange(width)).view(np.int64)
    )
    factor = (factor | 1).to(ours.device)
    known = torch.unique(_digests(ours, factor).cpu())
    if len(known) * FEW_VALUES <= len(ours):
        return Copies(0, len(theirs))
    again = torch.isin(_digests(theirs, factor.to(theirs.device)).cpu(), known)
    return Copies(int(again.sum()), len(theirs))


def _numbers(column: Dense | Sparse) -> int:
    if isinstance(column, Sparse):
        return len(column.ids)
    return len(column) * width_of(column)


def _digests(column: Dense | Sparse, factor: Tensor) -> Tensor:
    """A number for each row: (n,) int64."""
    if isinstance(column, Sparse):
        return _sparse_digests(column, factor)
    rows = torch.split(torch.arange(len(column)), max(1, AT_ONCE // max(len(factor), 1)))
    return torch.cat([(_bits(column.take(some).flatten(1)) * factor).sum(1) for some in rows])


def _sparse_digests(column: Sparse, factor: Tensor) -> Tensor:
    stored = torch.zeros(column.count, dtype=torch.int64, device=column.device)
    offsets = column.offsets.to(column.device)
    for first in range(0, len(column.ids), AT_ONCE):
        part = slice(first, min(first + AT_ONCE, len(column.ids)))
        place = torch.arange(part.start, part.stop, device=column.device)
        owner = torch.searchsorted(offsets, place, right=True) - 1
        stored.index_add_(0, owner, _bits(column.weights[part]) * factor[column.ids[part].long()])
    return stored if column.index is None else stored[column.index.to(column.device)]


def _bits(values: Tensor) -> Tensor:
    """Numbers of 32 bits as their bits, mixed; 0 and −0 are both 0. (…) → (…) int64"""
    plain = values.float() + 0.0
    mixed = plain.contiguous().view(torch.int32).long() * MIX
    return mixed ^ (mixed >> 32)  # round numbers end in zeros, and a product would keep these
