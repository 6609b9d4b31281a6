"""Row tables and what travels between server and clients: `Rows`, `SubModel`, `Update`.

The row is the unit of everything. A client never sees a table, only some of its rows; what it may
touch, what is merged and what is counted in bytes are exactly those rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from spreadout.core.sorting import stable_order
from spreadout.core.types import Tensors

if TYPE_CHECKING:
    from spreadout.core.tables import Table

TINY = 1e-12  # shorter rows, such as the zeros of padding, are divided by this


@dataclass(frozen=True)
class Rows:
    """Some rows of a table: which ones, and their values (or what is to be added to them).

    >>> import torch
    >>> import spreadout as so
    >>> table = torch.eye(4)
    >>> ids = torch.tensor([1, 3])
    >>> so.Rows(ids, table[ids]).nbytes  # two ids of 8 bytes, two rows of 16
    48
    """

    ids: Tensor  # (m,) int64, strictly increasing
    values: Tensor  # (m, d)

    def __len__(self) -> int:
        return self.ids.numel()

    @property
    def nbytes(self) -> int:
        return nbytes([self.ids, self.values])


@dataclass(frozen=True)
class SubModel:
    """What a client is sent: the dense tensors whole, and some rows of each table."""

    round: int
    dense: Tensors
    tables: dict[str, Rows]
    control: Tensors = field(default_factory=dict)  # of a drift correction, by part of the model


@dataclass(frozen=True)
class Update:
    """What a client sends back: how far it moved from the `SubModel` it was sent."""

    client: int
    round: int
    examples: int
    dense: Tensors  # local − sent
    tables: dict[str, Rows]  # values are local − sent
    loss: float = field(default=float("nan"), compare=False)  # NaN: it is not told
    positives: Tensors = field(default_factory=dict)  # (m,) per table: examples each row's class has


def nbytes(tensors: Iterable[Tensor]) -> int:
    """Bytes of the tensors as they travel, taken from the tensors themselves."""
    return sum(tensor.nbytes for tensor in tensors)


def gather(table: Table, ids: Tensor) -> Rows:
    """Copy the rows with these ids out of a table."""
    return Rows(ids, table[ids])


def scatter_add_(table: Tensor, rows: Rows) -> None:
    """Add distinct rows into a table in place; no other row is read or written."""
    table[rows.ids] += rows.values


def sub_model(
    round: int,
    dense: Tensors,
    tables: Mapping[str, Table],
    request: Mapping[str, Tensor],
    control: Tensors | None = None,
) -> SubModel:
    """The answer to one client's request."""
    rows = {name: gather(tables[name], ids) for name, ids in request.items()}
    return SubModel(round, dense, rows, control or {})


def project_to_sphere(values: Tensor) -> Tensor:
    """Scale every row to unit length; an all-zero row (padding) stays zero."""
    length: Tensor = torch.linalg.vector_norm(values, dim=-1, keepdim=True)
    return values / length.clamp_min(TINY)


def along_sphere(gradient: Tensor, rows: Tensor) -> Tensor:
    """The part of a gradient that moves unit rows along the sphere.

    It is the gradient of the loss as a function of normalised rows. The rest only stretches a row,
    and where all rows point one way it is nearly everything: a step along it would throw them across
    the sphere instead of apart.
    """
    return gradient - (gradient * rows).sum(-1, keepdim=True) * rows


def sum_by_id(ids: Tensor, *columns: Tensor) -> tuple[Tensor, ...]:
    """Sum the columns over equal ids: the distinct ids, ascending, then each column's sums.

    A sorted segment sum rather than atomic adds, so the result does not depend on the order in
    which a GPU happens to run.
    """
    order = stable_order(ids)
    unique, place = torch.unique_consecutive(ids[order], return_inverse=True)
    if unique.numel() == ids.numel():  # every id once: a permutation, no sums
        return (unique, *(column[order] for column in columns))
    inverse = torch.empty_like(place)
    inverse[order] = place
    summed = []
    for column in columns:
        total = column.new_zeros((unique.numel(), *column.shape[1:]))
        summed.append(total.index_put_((inverse,), column, accumulate=True))
    return (unique, *summed)
