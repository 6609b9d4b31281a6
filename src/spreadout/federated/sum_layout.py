"""One vector for all clients of a round: where each number of an update stands in it.

What is summed without being seen must have one form for everybody: the dense part, then of every table
the rows of a public set, the same for all. A client fills in the rows it has; the others are zero.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from spreadout.core.merging import RowSum
from spreadout.core.rows import Update
from spreadout.core.types import Params, Tensors
from spreadout.federated.aggregate import Aggregate
from spreadout.privacy.release import Grid, in_units

Units = NDArray[np.int64]


@dataclass(frozen=True)
class SumLayout:
    """The dense parts' shapes, and of every table the public rows, ascending, with their width."""

    dense: Mapping[str, Sequence[int]]
    rows: Mapping[str, Tensor]  # (m,) int64
    widths: Mapping[str, int]

    @property
    def dense_count(self) -> int:
        return sum(math.prod(shape) for shape in self.dense.values())

    @property
    def count(self) -> int:
        """How many numbers there are."""
        return self.dense_count + sum(len(ids) * self.widths[name] for name, ids in self.rows.items())

    def digest(self, dense: Tensors, rows: Mapping[str, Tensor]) -> bytes:
        """What all nodes of a round must have been sent alike: the public rows, and a model.

        rows: the values of tables of which everybody is sent the same rows.
        """
        found = hashlib.sha256()
        for part in (dense, self.rows, rows):
            for name in sorted(part):
                found.update(name.encode() + b"|")
                found.update(part[name].detach().cpu().contiguous().numpy().tobytes())
        return found.digest()

    def units(self, update: Update, clip: float, grid: Grid) -> Units:
        """A client's change as whole numbers of the grid, each in its place; (count,).

        ValueError: it has a row that is not in the public set, or other parts.
        """
        if update.dense.keys() != self.dense.keys() or update.tables.keys() != self.rows.keys():
            raise ValueError("an update of other parts than the sum's")
        dense = {name: update.dense[name] for name in self.dense}
        change = Params(dense, {name: update.tables[name].values for name in self.rows})
        places = [np.arange(self.dense_count)]
        start = self.dense_count
        for name, ids in self.rows.items():
            own, width = update.tables[name].ids.cpu(), self.widths[name]
            at = torch.searchsorted(ids, own).clamp_max(max(len(ids) - 1, 0))
            if len(own) and not (len(ids) and bool((ids[at] == own).all())):
                raise ValueError(f"a row of {name} that is not in the sum's public set")
            places.append(start + (at[:, None] * width + torch.arange(width)).flatten().numpy())
            start += len(ids) * width
        found = np.zeros(self.count, np.int64)
        found[np.concatenate(places)] = in_units(change, clip, grid)
        return found

    def aggregate(
        self, total: Units, unit: float, clients: int, held: Mapping[str, Tensor], like: Tensors
    ) -> Aggregate:
        """A sum over so many clients as an `Aggregate`, in which every client counts alike.

        held: per table, the rows that these clients requested, one after another; a row that none of
        them holds is noise alone and is left out. like: the dense part as it is.
        """
        values = torch.from_numpy(total * unit)
        sizes = [math.prod(shape) for shape in self.dense.values()]
        sizes += [len(ids) * self.widths[name] for name, ids in self.rows.items()]
        pieces = iter(torch.split(values, sizes))
        dense = {name: next(pieces).reshape(like[name].shape).to(like[name]) for name in self.dense}
        rows = {}
        for name, ids in self.rows.items():
            summed = next(pieces).reshape(len(ids), self.widths[name]).float()
            holders = torch.bincount(torch.searchsorted(ids, held[name]), minlength=len(ids)).float()
            some, device = holders > 0, next(iter(like.values())).device
            kept = ids[some], summed[some], holders[some], holders[some]
            rows[name] = RowSum(*(value.to(device) for value in kept))
        return Aggregate(dense, float(clients), rows, clients, clients, float("nan"))
