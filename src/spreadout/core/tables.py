"""Tables that are not one tensor: rows split over several processes, or only some rows.

All kinds are read alike: `table[ids]` are the rows with these ids. A sharded table is read by all its
processes together, and each writes the rows it has.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
import torch.distributed as dist
from torch import Tensor

from spreadout.core.rows import Rows

AT_ONCE = 1 << 26  # bytes of a table that travel at once when all of it does


@dataclass(frozen=True)
class Sharded:
    """A table of which this process has one run of rows, and others the rest."""

    local: Tensor  # (rows here, d)
    first: int  # the id of the first of them
    count: int  # rows of the whole table

    @classmethod
    def made(cls, count: int, rows: Callable[[int, int], Tensor]) -> Sharded:
        """A table of which each process makes its own run: the rows from one id to before another."""
        start, stop = bounds(count, dist.get_rank(), dist.get_world_size())
        return cls(rows(start, stop), start, count)

    def __len__(self) -> int:
        return self.count

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.count, *self.local.shape[1:])

    @property
    def device(self) -> torch.device:
        return self.local.device

    def __getitem__(self, ids: Tensor) -> Tensor:
        """Rows of the whole table. A collective call: every process gives the same ids."""
        place, here = self.places(ids)
        found = self.local.new_zeros(*ids.shape, *self.local.shape[1:])
        found[here] = self.local[place[here]]
        dist.all_reduce(found)
        return found

    def places(self, ids: Tensor) -> tuple[Tensor, Tensor]:
        """Where rows are in this process's run, and which of them are."""
        place = ids - self.first
        return place, (place >= 0) & (place < len(self.local))

    def mapped(self, change: Callable[[Tensor], Tensor]) -> Sharded:
        """With every row changed by itself."""
        return replace(self, local=change(self.local))

    def own(self, rows: Rows) -> Rows:
        """Those of some rows that are here, by their place here."""
        place, here = self.places(rows.ids)
        return Rows(place[here], rows.values[here])

    def whole(self, *, everywhere: bool = False) -> Tensor:
        """All rows, on the first process's host, or on every process's device; elsewhere none.

        Some at a time, so that no other process needs room for all of them.
        """
        kept = everywhere or dist.get_rank() == 0
        where = self.device if everywhere else torch.device("cpu")
        shape = (self.count if kept else 0, *self.shape[1:])
        found = torch.empty(shape, dtype=self.local.dtype, device=where)
        step = max(1, AT_ONCE // max(row_bytes(self), 1))
        for rank in range(dist.get_world_size()):
            start, stop = bounds(self.count, rank, dist.get_world_size())
            for first in range(start, stop, step):
                last = min(first + step, stop)
                if rank == dist.get_rank():
                    piece = self.local[first - self.first : last - self.first].contiguous()
                else:
                    piece = self.local.new_empty(last - first, *self.shape[1:])
                dist.broadcast(piece, rank)
                if kept:
                    found[first:last] = piece
        return found


@dataclass(frozen=True)
class Fetched:
    """Some rows of a table, under their own ids."""

    ids: Tensor  # (m,) ascending
    values: Tensor  # (m, d)
    count: int  # rows of the whole table

    def __len__(self) -> int:
        return self.count

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.count, *self.values.shape[1:])

    @property
    def device(self) -> torch.device:
        return self.values.device

    def __getitem__(self, ids: Tensor) -> Tensor:
        """Rows that were fetched. Padding, and only that, may name others: it gets any row."""
        return self.values[torch.searchsorted(self.ids, ids).clamp_max(len(self.ids) - 1)]


Table = Tensor | Sharded | Fetched
Tables = dict[str, Table]


def bounds(count: int, rank: int, ranks: int) -> tuple[int, int]:
    """The run of rows that a process has."""
    return rank * count // ranks, (rank + 1) * count // ranks


def fetched(table: Sharded, ids: Tensor) -> Fetched:
    """The rows that any process gives ids of. A collective call."""
    every: list[Tensor] = [ids] * dist.get_world_size()
    dist.all_gather_object(every, ids.cpu())
    union = torch.unique(torch.cat(every)).to(table.device)
    return Fetched(union, table[union], len(table))


def local_of(table: Table) -> Tensor:
    """The rows that are here."""
    if isinstance(table, Sharded):
        return table.local
    return table.values if isinstance(table, Fetched) else table


def places_in(table: Table, ids: Tensor) -> tuple[Tensor, Tensor]:
    """Where rows are among those that are here, and which of them are."""
    if isinstance(table, Sharded):
        return table.places(ids)
    return ids, torch.ones_like(ids, dtype=torch.bool)


def whole_of(table: Table) -> Tensor:
    """All rows, in this process."""
    return table.whole(everywhere=True) if isinstance(table, Sharded) else local_of(table)


def each_row(table: Table, change: Callable[[Tensor], Tensor]) -> Table:
    """A table with every row changed by itself."""
    return table.mapped(change) if isinstance(table, Sharded) else change(local_of(table))


def added(part: Tensor, table: Table) -> Tensor:
    """The sum over the processes that share a sharded table."""
    if isinstance(table, Sharded):
        dist.all_reduce(part)
    return part


def row_bytes(table: Table) -> int:
    here = local_of(table)
    return here.shape[1:].numel() * here.element_size()


def table_bytes(table: Table) -> int:
    """Of all rows, wherever they are."""
    return len(table) * row_bytes(table)


def rows_here(table: Table, rows: Rows) -> tuple[Tensor, Rows]:
    """The part of a table that is here, and what is to happen to it."""
    return (table.local, table.own(rows)) if isinstance(table, Sharded) else (local_of(table), rows)
