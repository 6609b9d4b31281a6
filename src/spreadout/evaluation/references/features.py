"""Features of instances as rows of one matrix, made narrower where they are too many."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

import torch
from torch import Tensor

from spreadout.core.hashing import HashFamily, signs
from spreadout.core.rows import TINY, project_to_sphere
from spreadout.data.columns import Column, Sparse
from spreadout.data.feature_hashing import hashed
from spreadout.data.moments import factor_of, moments
from spreadout.data.tails import shortened, to_power, with_roots

BLOCK = 1 << 25  # numbers of gathered features at once
DENSER = 20  # numbers of a dense product that cost as much as one of a sparse product

Form = Literal["raw", "unit", "standard", "standard, unit", "roots", "roots, unit"]
"""As they are; rows of length 1; features at mean 0 and deviation 1; rows of these of length 1.

roots: as standard, after roots of the features with long tails.
"""
FORMS: dict[Form, str] = {  # as a note says it
    "raw": "",
    "unit": "rows of length 1",
    "standard": "features at deviation 1",
    "standard, unit": "features at deviation 1",
    "roots": "long tails shortened, features at deviation 1",
    "roots, unit": "long tails shortened, features at deviation 1",
}


@dataclass(frozen=True)
class Features:
    """One column of dense or sparse features, flat, in float32 on a device."""

    column: Column
    device: torch.device
    most: int  # features; wider ones are hashed into so many, with signs
    form: Form = "raw"
    scale: tuple[Tensor, Tensor] | None = None  # mean and factor of each feature, but for raw and unit
    power: Tensor | None = None  # that each feature is taken to before, for roots

    @property
    def note(self) -> str:
        wide = width_of(self.column)
        return f"{wide:,} features hashed into {self.most:,}" if wide > self.most else ""

    def formed(self, form: Form, training: Tensor) -> Features:
        """In another form; `training` are the instances whose mean and deviation count."""
        power = None
        if form.startswith("roots"):
            power, mean, variance = shortened(*moments(self.column, training, with_roots))
            power = power.float().to(self.device)
        elif form.startswith("standard"):
            mean, variance = moments(self.column, training)
        else:
            return replace(self, form=form)
        scale = mean.float().to(self.device), factor_of(mean, variance).float().to(self.device)
        return replace(self, form=form, scale=scale, power=power)

    def like(self, column: Column) -> Features:
        """Another column in the same way."""
        return replace(self, column=column)

    @cached_property
    def _sketch(self) -> tuple[Tensor, Tensor]:
        """Where each dense feature goes, and with which sign: (width,), (width,)"""
        every = torch.arange(width_of(self.column))
        place = HashFamily.drawn(1, self.most, seed=0, use="features")(every)[0]
        side = signs(HashFamily.drawn(1, 2, seed=0, use="feature signs"), every)[0]
        return place.to(self.device), side.to(self.device)

    @property
    def width(self) -> int:
        return min(width_of(self.column), self.most)

    def __len__(self) -> int:
        return len(self.column)

    @cached_property
    def stored(self) -> int:
        """How many numbers are stored where most are 0 and are left out; else all of them."""
        if isinstance(self.column, Sparse) and self.scale is None:
            lengths, index = self.column.offsets.diff(), self.column.index
            return int((lengths if index is None else lengths[index]).sum())
        return len(self) * self.width

    @property
    def is_sparse(self) -> bool:
        """Whether a product with the stored numbers alone is the faster one."""
        return DENSER * self.stored < len(self) * self.width

    def rows(self, at: Tensor) -> Tensor:
        """The features of some instances: (n, width)."""
        found = self._gathered(at)
        return project_to_sphere(found) if self.form.endswith("unit") else found

    def times(self, at: Tensor, weights: Tensor) -> Tensor:
        """The features of some instances times weights (width, c) in double: (n, c)."""
        if self.is_sparse:
            return self.sparse_rows(at) @ weights
        return self.rows(at).double() @ weights

    def sparse_rows(self, at: Tensor) -> Tensor:
        """The same as `rows` where features are stored sparsely, in double: (n, width) by rows."""
        assert isinstance(self.column, Sparse)
        few = self.column.select(at).compact()
        if width_of(self.column) > self.most:
            few = hashed(few, self.most, signed=True)
        row = torch.repeat_interleave(torch.arange(len(at)), few.offsets.diff())
        places = torch.stack([row, few.ids.long()]).to(self.device)
        shape = (len(at), self.width)
        found = by_rows(places, few.weights.double().to(self.device), shape)
        if not self.form.endswith("unit"):
            return found
        row, values = places_of(found)[0], found.values()
        length = values.new_zeros(len(at)).index_add_(0, row, values**2).sqrt()
        return by_rows(places_of(found), values / length[row].clamp_min(TINY), shape)

    def _gathered(self, at: Tensor) -> Tensor:
        column, wide = self.column, width_of(self.column) > self.most
        if wide and isinstance(column, Sparse):
            few = hashed(column.select(at).compact(), self.most, signed=True)
            return few.take(torch.arange(len(at))).to(self.device)
        found = column.take(at).to(self.device).flatten(1).float()
        if self.power is not None:
            found = to_power(found, self.power)
        if self.scale is not None:
            found = (found - self.scale[0]) * self.scale[1]
        if not wide:
            return found
        place, side = self._sketch
        return found.new_zeros(len(found), self.most).index_add_(1, place, found * side)

    def blocks(self, at: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
        """Some instances a block at a time: places, and features."""
        for some in torch.split(at, max(1, BLOCK // max(width_of(self.column), self.width))):
            yield some, self.rows(some)


def width_of(column: Column) -> int:
    """How many features an instance has."""
    if isinstance(column, Sparse):
        return column.width
    return column.take(torch.zeros(1, dtype=torch.int64)).flatten(1).shape[1]


def by_rows(places: Tensor, values: Tensor, shape: tuple[int, int]) -> Tensor:
    """A sparse matrix with these values at (2, k) places, added up where places are the same.

    Compressed by rows, with short indices: ten times as fast in a product as with places.
    """
    with warnings.catch_warnings():  # torch calls such matrices a beta
        warnings.filterwarnings("ignore", "Sparse CSR tensor support", UserWarning)
        found = torch.sparse_coo_tensor(places, values, shape, check_invariants=False)
        wide = found.coalesce().to_sparse_csr()
        first, column = wide.crow_indices().int(), wide.col_indices().int()
        return torch.sparse_csr_tensor(first, column, wide.values(), shape, check_invariants=False)


def places_of(x: Tensor) -> Tensor:
    """Row and column of each stored number of a matrix by rows: (2, k)."""
    lengths = x.crow_indices().diff()
    row = torch.repeat_interleave(torch.arange(len(lengths), device=x.device), lengths)
    return torch.stack([row, x.col_indices().long()])
