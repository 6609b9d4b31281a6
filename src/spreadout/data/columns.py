"""Columns: one value per example, of three kinds, gathered for a whole cohort at once.

`Dense` holds arrays of one shape (features, images), `Lists` id lists of any length (histories, label
sets), `Sparse` feature vectors with few non-zeros. A column may share its values through an `index`, so
that an instance which lives on several clients is stored once. Values may be memory-mapped files.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import Any, ClassVar, Self

import torch
from torch import Tensor

from spreadout.core.ragged import Ragged, offsets_from_lengths


@dataclass(frozen=True)
class Column(ABC):
    """What every kind of column can do. `index` (examples,) points into the values it shares."""

    kind: ClassVar[str]
    index: Tensor | None = field(default=None, kw_only=True)

    @property
    @abstractmethod
    def count(self) -> int:
        """How many values there are, shared or not."""

    @property
    @abstractmethod
    def example_bytes(self) -> int:
        """What one gathered example may take."""

    @abstractmethod
    def _gather(self, at: Tensor) -> Tensor:
        """The values at these places (flat): (n, …)."""

    def __len__(self) -> int:
        return self.count if self.index is None else len(self.index)

    def take(self, at: Tensor) -> Tensor:
        """The examples at these places: (*at.shape, …)."""
        found = self._gather(self._values_at(at))
        return found.view(*at.shape, *found.shape[1:])

    def _values_at(self, at: Tensor) -> Tensor:
        """Which values the examples at these places have, flat, on the values' device."""
        if self.index is None:
            return at.reshape(-1).to(self.device)
        return self.index[at.reshape(-1).to(self.index.device)].to(self.device)

    def select(self, at: Tensor) -> Self:
        """Some examples in this order, sharing the values."""
        return replace(self, index=at if self.index is None else self.index[at])

    @property
    def device(self) -> torch.device:
        return next(tensor for name, tensor in self.tensors().items() if name != "index").device

    @property
    def nbytes(self) -> int:
        return sum(t.numel() * t.element_size() for t in self.tensors().values())

    def tensors(self) -> dict[str, Tensor]:
        """Its parts that are tensors, by name."""
        named = ((part.name, getattr(self, part.name)) for part in fields(self))
        return {name: value for name, value in named if isinstance(value, Tensor)}

    def options(self) -> dict[str, Any]:
        """Its parts that are plain values, by name."""
        named = {part.name: getattr(self, part.name) for part in fields(self)}
        return {n: v for n, v in named.items() if v is not None and not isinstance(v, Tensor)}

    def to(self, device: torch.device) -> Self:
        return replace(self, **{name: value.to(device) for name, value in self.tensors().items()})

    @abstractmethod
    def compact(self) -> Self:
        """The same examples with their own values and nothing else: a client's view."""


@dataclass(frozen=True)
class Dense(Column):
    """Arrays of one shape. Bytes become numbers when gathered: `scale · value + shift`.

    >>> import torch
    >>> import spreadout as so
    >>> pixels = so.Dense(torch.tensor([[0, 255]], dtype=torch.uint8), scale=1 / 255)
    >>> pixels.take(torch.tensor([0]))
    tensor([[0., 1.]])
    """

    kind: ClassVar[str] = "dense"

    values: Tensor  # (n, …)
    scale: float | None = None  # None: values are handed out as they are
    shift: float = 0.0

    @property
    def count(self) -> int:
        return len(self.values)

    @property
    def example_bytes(self) -> int:
        width = self.values.shape[1:].numel()  # also where there is no example yet
        return width * (self.values.element_size() if self.scale is None else 4)

    def _gather(self, at: Tensor) -> Tensor:
        found = self.values[at]
        return found if self.scale is None else found.float() * self.scale + self.shift

    def compact(self) -> Self:
        return self if self.index is None else replace(self, values=self.values[self.index], index=None)


@dataclass(frozen=True)
class Lists(Column):
    """Id lists: number i is `values[first[i] : first[i] + length[i]]`. Lists may overlap, so every
    window over a timeline costs two numbers. Gathered side by side, short ones are filled up with `pad`
    on the right, to the longest of all lists, or to `width`.

    >>> import torch
    >>> import spreadout as so
    >>> histories = so.Lists.of(so.Ragged.from_lists([[4, 7, 9], [2]]), pad=0)
    >>> histories.take(torch.tensor([0, 1]))
    tensor([[4, 7, 9],
            [2, 0, 0]])
    """

    kind: ClassVar[str] = "lists"

    values: Tensor  # (total,) whole numbers
    first: Tensor  # (n,) int64
    length: Tensor  # (n,) int64
    pad: int = -1
    width: int | None = None  # None: as wide as the longest list that is gathered

    @property
    def count(self) -> int:
        return len(self.first)

    @cached_property
    def longest(self) -> int:
        return int(self.length.max()) if len(self.length) else 0

    @property
    def example_bytes(self) -> int:
        return 8 * max(self.width or self.longest, 1)

    def _gather(self, at: Tensor) -> Tensor:
        inside = self._inside(at)  # (n, width)
        if not len(self.values):
            return torch.full(inside.shape, self.pad, dtype=torch.int64, device=at.device)
        column = torch.arange(inside.shape[1], device=at.device)
        places = (self.first[at][:, None] + column).clamp_(max=len(self.values) - 1)
        return torch.where(inside, self.values[places].long(), self.pad)

    def _inside(self, at: Tensor) -> Tensor:
        """Which slots of these lists are filled: (n, width)."""
        length = self.length[at]
        width = self.width if self.width is not None else int(length.max()) if len(at) else 0
        return torch.arange(width, device=at.device) < length[:, None]

    def ragged(self, at: Tensor | None = None) -> Ragged:
        """The lists of some examples (all without `at`), one after another."""
        index = torch.arange(len(self)) if at is None else at
        if self.index is not None:
            index = self.index[index]
        return ragged_slices(self.values, self.first[index], self.length[index])

    def present(self, at: Tensor) -> Tensor:
        """Which slots of the examples at these places are filled: (*at.shape, width)."""
        inside = self._inside(self._values_at(at))
        return inside.view(*at.shape, inside.shape[1])

    def compact(self) -> Self:
        """Only the values some list covers; windows over a timeline go on sharing it.

        Its cost follows the lists, not the timeline: stretches that lists cover without a gap are found
        by sorting where lists begin, and are put one after another.
        """
        every = self._values_at(torch.arange(len(self)))
        first, length = self.first[every], self.length[every]
        order = torch.argsort(torch.where(length > 0, first, torch.iinfo(torch.int64).max))
        order = order[: int((length > 0).sum())]  # empty lists cover nothing
        moved = torch.zeros_like(first)
        if not len(order):
            return replace(self, values=self.values[:0], first=moved, length=length, index=None)
        begin = first[order]
        end = torch.cummax(begin + length[order], 0).values  # of all lists so far
        gap = torch.cat([begin[:1], (begin[1:] - end[:-1]).clamp_min(0)])  # uncovered before each
        moved[order] = begin - gap.cumsum(0)
        opens = torch.cat([gap.new_ones(1), gap[1:]]) > 0  # a stretch begins here
        closes = torch.cat([opens[1:], opens.new_ones(1)])
        places = ragged_places(begin[opens], end[closes] - begin[opens])
        return replace(self, values=self.values[places], first=moved, length=length, index=None)

    @classmethod
    def of(cls, lists: Ragged, **options: Any) -> Lists:
        return cls(lists.values, lists.offsets[:-1], lists.lengths, **options)


@dataclass(frozen=True)
class Sparse(Column):
    """Feature vectors of width `width` with few non-zeros, stored by rows; dense when gathered.

    >>> import torch
    >>> import spreadout as so
    >>> words = so.Sparse(
    ...     ids=torch.tensor([0, 3, 1]),
    ...     weights=torch.tensor([1.0, 2.0, 5.0]),
    ...     offsets=torch.tensor([0, 2, 3]),
    ...     width=4,
    ... )
    >>> words.take(torch.tensor([0, 1]))
    tensor([[1., 0., 0., 2.],
            [0., 5., 0., 0.]])
    """

    kind: ClassVar[str] = "sparse"

    ids: Tensor  # (nnz,) which feature
    weights: Tensor  # (nnz,) its value
    offsets: Tensor  # (n + 1,)
    width: int

    @property
    def count(self) -> int:
        return len(self.offsets) - 1

    @property
    def example_bytes(self) -> int:
        return 4 * self.width

    def _gather(self, at: Tensor) -> Tensor:
        first = self.offsets[at]
        length = self.offsets[at + 1] - first
        row = torch.repeat_interleave(torch.arange(len(at), device=at.device), length)
        place = ragged_places(first, length)
        found = torch.zeros(len(at), self.width, device=at.device)
        # A feature named twice counts twice, in a fixed order on every device.
        return found.index_put_((row, self.ids[place].long()), self.weights[place].float(), True)

    def ragged(self, at: Tensor | None = None) -> Ragged:
        """The features some examples (all without `at`) have, one after another."""
        index = torch.arange(len(self)) if at is None else at
        places = self._values_at(index)
        first = self.offsets[places]
        return ragged_slices(self.ids, first, self.offsets[places + 1] - first)

    @classmethod
    def joined(cls, parts: Sequence[Sparse]) -> Sparse:
        """The examples of several, of one width, one after another, with values of their own."""
        widths = sorted({part.width for part in parts})
        if len(widths) > 1:
            raise ValueError(f"vectors of {widths[0]} and {widths[-1]} features cannot be joined")
        own = [part.compact() for part in parts]
        lengths = torch.cat([part.offsets.diff() for part in own])
        ids, weights = (torch.cat([getattr(part, n) for part in own]) for n in ("ids", "weights"))
        return cls(ids, weights, offsets_from_lengths(lengths), widths[0])

    def dense(self) -> Dense:
        """The same vectors stored densely, for data small enough."""
        every = torch.arange(self.count, device=self.device)
        return Dense(self._gather(every), index=self.index)

    def compact(self) -> Self:
        if self.index is None:
            return self
        first = self.offsets[self.index]
        length = self.offsets[self.index + 1] - first
        place = ragged_places(first, length)
        return replace(
            self,
            ids=self.ids[place],
            weights=self.weights[place],
            offsets=offsets_from_lengths(length),
            index=None,
        )


KINDS: dict[str, type[Dense] | type[Lists] | type[Sparse]] = {
    "dense": Dense,
    "lists": Lists,
    "sparse": Sparse,
}


def ragged_places(first: Tensor, length: Tensor) -> Tensor:
    """first[0], first[0] + 1, …, then the places of the next list: (Σ length,)."""
    start = offsets_from_lengths(length.cpu())[:-1].to(first.device)
    at = torch.repeat_interleave(first - start, length)
    return at + torch.arange(len(at), device=first.device)


def ragged_slices(values: Tensor, first: Tensor, length: Tensor) -> Ragged:
    return Ragged(offsets_from_lengths(length), values[ragged_places(first, length)].long())


def select_all(columns: Mapping[str, Column], at: Tensor) -> dict[str, Column]:
    """Some examples of every column."""
    return {name: column.select(at) for name, column in columns.items()}


def total_bytes(columns: Iterable[Column]) -> int:
    return sum(column.nbytes for column in columns)
