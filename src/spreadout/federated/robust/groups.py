"""Vectors in groups, each with a weight: their sums, and their order coordinate by coordinate.

A group is what several clients say of one thing: of the dense part there is one group of k vectors, of
a table one for every row, with as many vectors as clients hold that row.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from spreadout.core.ragged import offsets_from_lengths

AT_ONCE = 1 << 26  # bytes of copies that a look at some columns makes
COPIES = 32  # bytes of them for one number: sorted, where from, its weight, a running sum


@dataclass(frozen=True)
class Groups:
    """n vectors, those of a group one after another.

    >>> import torch
    >>> said = Groups.of(torch.tensor([[1.0], [2.0], [9.0]]), torch.ones(3), torch.tensor([3]))
    >>> said.sums(said.values).tolist()
    [[12.0]]
    """

    values: Tensor  # (n, d)
    weight: Tensor  # (n,)
    lengths: Tensor  # (g,) vectors of each group, none of them 0
    group: Tensor  # (n,) which group each belongs to, ascending

    @classmethod
    def of(cls, values: Tensor, weight: Tensor, lengths: Tensor) -> Groups:
        group = torch.repeat_interleave(torch.arange(len(lengths), device=values.device), lengths)
        return cls(values, weight, lengths, group)

    @property
    def first(self) -> Tensor:
        """Where each group begins: (g,)."""
        return offsets_from_lengths(self.lengths)[:-1]

    def sums(self, values: Tensor) -> Tensor:
        """(n, d) → (g, d), always in the same order."""
        if len(self.lengths) == 1:
            return values.sum(0, keepdim=True)
        every = torch.arange(len(values), device=values.device)
        return F.embedding_bag(every, values, self.first, mode="sum")

    def totals(self) -> Tensor:
        """The weight of each group: (g,)."""
        return self.sums(self.weight[:, None])[:, 0]

    def mean(self, weight: Tensor) -> Tensor:
        """Means with other weights (n,) than their own: (g, d). A group of no weight stays at 0."""
        total = self.sums(weight[:, None]).clamp_min(1e-30)
        if len(self.lengths) == 1:
            return (weight @ self.values)[None] / total  # no copy of the vectors
        return self.sums(self.values * weight[:, None]) / total

    def distances(self, centres: Tensor) -> Tensor:
        """How far each vector is from the centre (g, d) of its group: (n,). Some columns at a time."""
        squares = self.values.new_zeros(len(self.values), dtype=torch.float64)  # 1e20² is finite there
        for columns in self._columns():
            away = self.values[:, columns] - centres[self.group][:, columns]
            squares += away.double().square().sum(1)
        return squares.sqrt().to(self.values.dtype)

    def products(self) -> Tensor:
        """Inner products of all vectors with one another: (n, n) float64. Some columns at a time."""
        found = self.values.new_zeros(len(self.values), len(self.values), dtype=torch.float64)
        for columns in self._columns():
            some = self.values[:, columns].double()
            found += some @ some.T
        return found

    def ordered(self) -> Iterator[Ordered]:
        """All columns, some at a time, each with the vectors of every group in ascending order."""
        for columns in self._columns():
            values, place = self.values[:, columns].sort(dim=0)
            if len(self.lengths) > 1:  # back into their groups, still ascending within each
                again = self.group[place].argsort(dim=0, stable=True)
                values, place = values.gather(0, again), place.gather(0, again)
            yield Ordered(values, self.weight[place].double(), self)

    def _columns(self) -> Iterator[slice]:
        width = max(1, AT_ONCE // (COPIES * max(len(self.values), 1)))
        for start in range(0, self.values.shape[1], width):
            yield slice(start, start + width)


@dataclass(frozen=True)
class Ordered:
    """Some columns of grouped vectors, in ascending order within every group."""

    values: Tensor  # (n, c)
    weight: Tensor  # (n, c) float64
    groups: Groups

    def reached(self) -> Tensor:
        """The share of its group's weight up to and with each entry, in (0, 1]: (n, c)."""
        running = self.weight.cumsum(0)
        before = (running - self.weight)[self.groups.first]  # (g, c) all groups before
        ends = self.groups.first + self.groups.lengths - 1
        total = (running[ends] - before).clamp_min(1e-300)
        return (running - before[self.groups.group]) / total[self.groups.group]
