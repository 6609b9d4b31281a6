"""Tables that are not one tensor: rows that lie with several processes, or only those somebody holds.

All kinds are read alike: `table[ids]` are the rows with these ids. A sharded table is read by all its
processes together, and each writes the rows it has.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
import torch.distributed as dist
from torch import Tensor

from spreadout.federated.rows import Rows, nbytes

AT_ONCE = 1 << 26  # bytes of a table that travel at once when all of it does


@dataclass(frozen=True)
class Sharded:
    """A table of which this process has one run of rows, and others the rest."""

    local: Tensor  # (rows here, d)
    first: int  # the id of the first of them
    count: int  # rows of the whole table

    @classmethod
    def of(cls, whole: Tensor) -> Sharded:
        """This process's run of a table that all have."""
        start, stop = bounds(len(whole), dist.get_rank(), dist.get_world_size())
        return cls(whole[start:stop].clone(), start, len(whole))

    def __len__(self) -> int:
        return self.count

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.count, *self.local.shape[1:])

    @property
    def device(self) -> torch.device:
        return self.local.device

    def __getitem__(self, ids: Tensor) -> Tensor:
        """Rows of the whole table; every process asks, and for the same ones."""
        place = ids - self.first
        here = (place >= 0) & (place < len(self.local))
        found = self.local.new_zeros(*ids.shape, *self.local.shape[1:])
        found[here] = self.local[place[here]]
        dist.all_reduce(found)
        return found

    def mapped(self, change: Callable[[Tensor], Tensor]) -> Sharded:
        """With every row changed by itself."""
        return replace(self, local=change(self.local))

    def own(self, rows: Rows) -> Rows:
        """Those of some rows that are here, by their place here."""
        here = (rows.ids >= self.first) & (rows.ids < self.first + len(self.local))
        return Rows(rows.ids[here] - self.first, rows.values[here])

    def whole(self, *, everywhere: bool = False) -> Tensor:
        """All rows, on the first process's host, or on every process's device; elsewhere none.

        Some at a time, so that no other process needs room for all of them.
        """
        kept = everywhere or dist.get_rank() == 0
        where = self.device if everywhere else torch.device("cpu")
        found = torch.empty((self.count if kept else 0, *self.shape[1:]), dtype=self.local.dtype)
        found = found.to(where)
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
class Held:
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
        """Rows that are held; for others, any (they are padding)."""
        return self.values[torch.searchsorted(self.ids, ids).clamp_max(len(self.ids) - 1)]


Table = Tensor | Sharded | Held
Tables = dict[str, Table]


def bounds(count: int, rank: int, ranks: int) -> tuple[int, int]:
    """The run of rows that a process has."""
    return rank * count // ranks, (rank + 1) * count // ranks


def fetched(table: Sharded, ids: Tensor) -> Held:
    """The rows that this process asks for, and those the others do; every process asks."""
    every: list[Tensor] = [ids] * dist.get_world_size()
    dist.all_gather_object(every, ids.cpu())
    union = torch.unique(torch.cat(every)).to(table.device)
    return Held(union, table[union], len(table))


def local_of(table: Table) -> Tensor:
    """The rows that are here."""
    if isinstance(table, Sharded):
        return table.local
    return table.values if isinstance(table, Held) else table


def first_of(table: Table) -> int:
    """The id of the first row that is here."""
    return table.first if isinstance(table, Sharded) else 0


def whole_of(table: Table) -> Tensor:
    """All rows, here: as many bytes as there are classes."""
    return table.whole(everywhere=True) if isinstance(table, Sharded) else local_of(table)


def each_row(table: Table, change: Callable[[Tensor], Tensor]) -> Table:
    """A table with every row changed by itself."""
    return table.mapped(change) if isinstance(table, Sharded) else change(local_of(table))


def added(part: Tensor, table: Table) -> Tensor:
    """The sum of what every process that has rows of a table has made of its own."""
    if isinstance(table, Sharded):
        dist.all_reduce(part)
    return part


def row_bytes(table: Table) -> int:
    here = local_of(table)
    return nbytes([here.new_empty(here.shape[1:])])


def table_bytes(table: Table) -> int:
    """Of all rows, wherever they are."""
    return len(table) * row_bytes(table)
