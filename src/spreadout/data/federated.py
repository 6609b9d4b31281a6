"""What clients hold: flat columns, cut into clients by offsets.

Nothing here is a list of per-client objects, so a million clients cost two arrays, and the batches of
a whole cohort are one gather per column.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from spreadout.errors import UserError
from spreadout.ragged import Ragged, offsets_from_lengths
from spreadout.randomness import Ints

MOST_GAPS = 100  # a label space this much larger than the labels that occur is a mistake


@dataclass(frozen=True)
class Column:
    """One value per held example. With `index`, examples share a pool of values, so an instance that
    lives on several clients is stored once."""

    values: Tensor  # (n, …)
    index: Tensor | None = None  # (held examples,) into `values`

    def __len__(self) -> int:
        return len(self.values if self.index is None else self.index)

    def take(self, at: Tensor) -> Tensor:
        at = at.to(self.values.device)
        return self.values[at if self.index is None else self.index[at]]

    def to(self, device: torch.device) -> Column:
        index = None if self.index is None else self.index.to(device)
        return Column(self.values.to(device), index)


@dataclass(frozen=True)
class FederatedDataset:
    """Training examples by client: client `i` holds `offsets[i]:offsets[i + 1]` of every column."""

    columns: Mapping[str, Column]
    offsets: Tensor  # (clients + 1,) int64
    classes: int
    # Which columns hold row ids, and of which table: a client needs at least these rows.
    refers: Mapping[str, str] = field(default_factory=lambda: {"y": "classes"})

    @property
    def clients(self) -> int:
        return self.offsets.numel() - 1

    @property
    def examples(self) -> int:
        return int(self.offsets[-1])

    @cached_property
    def sizes(self) -> Ints:
        """Examples per client."""
        return np.asarray(self.offsets.diff().numpy(), dtype=np.int64)

    @cached_property
    def fingerprint(self) -> str:
        """Changes with the number of examples, who holds them, or the rows they name."""
        digest = hashlib.sha256(f"{self.examples} {self.classes}".encode())
        digest.update(self.offsets.numpy().tobytes())
        for name in sorted(self.refers):
            digest.update(self.columns[name].take(torch.arange(self.examples)).cpu().numpy().tobytes())
        for name in sorted(self.columns.keys() - self.refers.keys()):
            some = torch.linspace(0, max(self.examples - 1, 0), min(64, self.examples)).long()
            digest.update(self.columns[name].take(some).cpu().numpy().tobytes())
        return digest.hexdigest()[:16]

    @cached_property
    def own_rows(self) -> dict[str, Ragged]:
        """Per table, the distinct rows each client's own examples name, ascending."""
        owner = torch.repeat_interleave(torch.arange(self.clients), self.offsets.diff())
        tables = sorted(set(self.refers.values()))
        return {table: self._rows_of(table, owner) for table in tables}

    def _rows_of(self, table: str, owner: Tensor) -> Ragged:
        every = torch.arange(self.examples)
        named = [name for name, refers in self.refers.items() if refers == table]
        ids = [self.columns[name].take(every).cpu().reshape(len(every), -1) for name in named]
        owners = [owner[:, None].expand_as(some).flatten() for some in ids]
        return Ragged.from_pairs(
            torch.cat(owners), torch.cat([some.flatten() for some in ids]), self.clients
        )

    def to(self, device: torch.device) -> FederatedDataset:
        """The same data with its columns on a device; offsets stay on the host."""
        columns = {name: column.to(device) for name, column in self.columns.items()}
        return FederatedDataset(columns, self.offsets, self.classes, self.refers)

    def pooled(self) -> FederatedDataset:
        """All examples in one place, as centralised training has them."""
        offsets = torch.tensor([0, self.examples])
        return FederatedDataset(self.columns, offsets, self.classes, self.refers)

    @classmethod
    def from_arrays(cls, x: Any, y: Any, client: Any, *, classes: int | None = None) -> FederatedDataset:
        """Bring your own: features (n, …), one class per example (n,), its client (n,).

        Clients are numbered 0 … max(client); a number that never occurs is a client without data.
        """
        features, labels = as_examples(x, y)
        owner = whole_numbers("client", client)
        if len(owner) != len(labels):
            raise UserError(
                f"client has {len(owner)} entries, y has {len(labels)}: give one client per example"
            )
        return cls.by_owner(features, labels, owner, _class_count(labels, classes))

    @classmethod
    def by_owner(
        cls, x: Tensor, y: Tensor, owner: Tensor, classes: int, clients: int = 0
    ) -> FederatedDataset:
        """Examples sorted to their owners; at least so many clients, the last ones maybe empty."""
        order = torch.argsort(owner, stable=True)
        columns = {"x": Column(x[order]), "y": Column(y[order])}
        return cls(columns, offsets_from_lengths(torch.bincount(owner, minlength=clients)), classes)


@dataclass(frozen=True)
class Examples:
    """Held-out examples, owned by nobody: inputs and the set of right labels of each."""

    inputs: Mapping[str, Tensor]  # (n, …) each
    labels: Ragged  # n label sets; a set may be empty

    def __len__(self) -> int:
        return len(self.labels)

    @classmethod
    def from_arrays(cls, x: Any, y: Any) -> Examples:
        features, labels = as_examples(x, y)
        return cls({"x": features}, Ragged(torch.arange(len(labels) + 1), labels))


@dataclass(frozen=True)
class Splits:
    """Data kept apart by construction: only `train` has clients, only the others are scored."""

    name: str
    train: FederatedDataset
    test: Examples
    validation: Examples | None = None


def as_examples(x: Any, y: Any) -> tuple[Tensor, Tensor]:
    """Features as float32 and one class per example as int64, checked."""
    array = np.asarray(x)
    real = any(np.issubdtype(array.dtype, kind) for kind in (np.floating, np.integer, np.bool_))
    if array.ndim < 2 or not real:
        raise UserError(
            f"x has shape {array.shape} and type {array.dtype}: give numbers of shape (examples, …)"
        )
    features = torch.as_tensor(array).to(torch.float32)
    labels = whole_numbers("y", y)
    if len(features) != len(labels):
        raise UserError(f"x has {len(features)} examples, y has {len(labels)}: they must agree")
    if not len(labels):
        raise UserError("x and y are empty: give at least one example")
    distinct, largest = len(torch.unique(labels)), int(labels.max())
    if largest >= max(MOST_GAPS * distinct, 1_000_000):
        raise UserError(
            f"y has the class {largest}, but only {distinct} classes occur: number them 0 … C−1"
        )
    if not bool(features.isfinite().all()):
        row = int((~features.flatten(1).isfinite()).any(1).nonzero()[0])
        raise UserError(f"x has a value that is not finite in example {row}: clean or drop it")
    return features, labels


def whole_numbers(name: str, values: Any) -> Tensor:
    array = np.asarray(values)
    if array.ndim != 1 or not np.issubdtype(array.dtype, np.integer):
        raise UserError(
            f"{name} has shape {array.shape} and type {array.dtype}: give one whole number per example"
        )
    if array.size and array.min() < 0:
        raise UserError(f"{name} has the value {array.min()}: numbers start at 0")
    return torch.from_numpy(array.astype(np.int64))


def _class_count(labels: Tensor, classes: int | None) -> int:
    found = int(labels.max()) + 1 if labels.numel() else 0
    if classes is not None and found > classes:
        raise UserError(f"y has the class {found - 1}, but classes = {classes}")
    return found if classes is None else classes
