"""What clients hold: flat columns, cut into clients by offsets.

Nothing here is a list of per-client objects, so a million clients cost two arrays, and the batches of
a whole cohort are one gather per column.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from spreadout.data.columns import Column, Dense, Lists, Sparse, ragged_places, select_all
from spreadout.errors import UserError
from spreadout.ragged import Ragged, offsets_from_lengths, runs
from spreadout.randomness import Ints

MOST_GAPS = 100  # a label space this much larger than the labels that occur is a mistake
BLOCK = 1 << 20  # examples looked at in one go by whole-set work
REMEMBERED = 1 << 24  # up to so many row ids, every client's rows are worked out once and kept
AT_ONCE = 1 << 21  # row ids looked at in one go


@dataclass(frozen=True)
class FederatedDataset:
    """Training examples by client: client `i` holds `offsets[i]:offsets[i + 1]` of every column."""

    columns: Mapping[str, Column]
    offsets: Tensor  # (clients + 1,) int64
    classes: int
    # Which columns hold row ids, and of which table: a client needs at least these rows.
    refers: Mapping[str, str] = field(default_factory=lambda: {"y": "classes"})
    numbers: Tensor | None = None  # (clients,) of a part of a federation: what its draws depend on
    public_popularity: Tensor | None = None  # (C,) that of the whole federation, where all are told it

    @property
    def clients(self) -> int:
        return self.offsets.numel() - 1

    @property
    def examples(self) -> int:
        return int(self.offsets[-1])

    @property
    def first_class(self) -> int:
        """The first row that is somebody's: where ids are padded with 0, row 0 is nobody's."""
        named = (self.columns[name] for name, table in self.refers.items() if table == "classes")
        return max((column.pad + 1 for column in named if isinstance(column, Lists)), default=0)

    @cached_property
    def sizes(self) -> Ints:
        """Examples per client."""
        return np.asarray(self.offsets.diff().numpy(), dtype=np.int64)

    def number_of(self, clients: Tensor) -> Ints:
        """Who these clients are in the whole federation: a view keeps its client's own number."""
        named = clients if self.numbers is None else self.numbers[clients]
        return np.asarray(named.numpy(), dtype=np.int64)

    def places_of(self, clients: Tensor) -> Tensor:
        """Where these clients' examples lie in every column, client by client."""
        return ragged_places(self.offsets[clients], self._lengths(clients))

    def _lengths(self, clients: Tensor) -> Tensor:
        return self.offsets[clients + 1] - self.offsets[clients]

    def part(self, clients: Tensor) -> FederatedDataset:
        """What some clients hold, and nothing else: their own values, copied out of the pool."""
        held = select_all(self.columns, self.places_of(clients))
        return replace(
            self,
            columns={name: column.compact() for name, column in held.items()},
            offsets=offsets_from_lengths(self._lengths(clients)),
            numbers=torch.from_numpy(self.number_of(clients)),
        )

    def view(self, client: int) -> FederatedDataset:
        """One client's own view: its examples, the size of the label space, and its number."""
        return self.part(torch.tensor([client]))

    @cached_property
    def fingerprint(self) -> str:
        """Changes with the number of examples, who holds them, or the rows they name."""
        digest = hashlib.sha256(f"{self.examples} {self.classes}".encode())
        digest.update(self.offsets.numpy().tobytes())
        spread = torch.arange(min(64, self.examples)) * max(self.examples // 64, 1)
        for name, column in sorted(self.columns.items()):
            whole = range(0, self.examples, BLOCK) if name == "y" or name in self.refers else []
            parts = [torch.arange(start, min(start + BLOCK, self.examples)) for start in whole]
            for at in parts or [spread]:
                for tensor in _own_tensors(column, at):
                    digest.update(tensor.cpu().numpy().tobytes())
        return digest.hexdigest()[:16]

    def rows_of(self, clients: Tensor) -> dict[str, Ragged]:
        """Per table, the distinct rows each client's own examples name, ascending."""
        if self._ids <= REMEMBERED:
            return {table: rows.select(clients) for table, rows in self._all_rows.items()}
        return self._rows_of(clients)

    @cached_property
    def popularity(self) -> Tensor:
        """The share of all holdings that each class has: how many clients hold it, over all. (C,)"""
        if self.public_popularity is not None:
            return self.public_popularity
        held = self.rows_of(torch.arange(self.clients))["classes"].values
        counts = torch.bincount(held, minlength=self.classes).float()
        return counts / counts.sum().clamp_min(1)

    @cached_property
    def _all_rows(self) -> dict[str, Ragged]:
        return self._rows_of(torch.arange(self.clients))

    @cached_property
    def _ids(self) -> int:
        """About how many row ids the examples name in all."""
        columns = [self.columns[name] for name in self.refers]
        return sum(_ids_per_example(column, self.examples) for column in columns) * self.examples

    def _rows_of(self, clients: Tensor) -> dict[str, Ragged]:
        """In runs of clients that name about as many ids as may be held at once."""
        each = max(self._ids // max(self.examples, 1), 1)
        some = runs(self._lengths(clients) * each, AT_ONCE)
        parts = [self._rows_of_some(clients[at]) for at in some]
        return {table: Ragged.concatenated([part[table] for part in parts]) for table in parts[0]}

    def _rows_of_some(self, clients: Tensor) -> dict[str, Ragged]:
        at = self.places_of(clients)
        owner = torch.repeat_interleave(torch.arange(len(clients)), self._lengths(clients))
        return {
            table: self.rows_at(table, at, owner, len(clients))
            for table in sorted(set(self.refers.values()))
        }

    def rows_at(self, table: str, at: Tensor, owner: Tensor, clients: int) -> Ragged:
        """The distinct rows that these examples name, for each of the clients that own them."""
        owners, ids = [], []
        for name, refers in self.refers.items():
            if refers != table:
                continue
            column = self.columns[name]
            if isinstance(column, Lists | Sparse):
                lists = column.ragged(at)
                owners.append(torch.repeat_interleave(owner.to(lists.values.device), lists.lengths))
                ids.append(lists.values)
            else:
                found = column.take(at)[:, None].flatten(1)  # (n, ids of an example)
                owners.append(owner.to(found.device)[:, None].expand_as(found).flatten())
                ids.append(found.flatten())
        named = Ragged.from_pairs(torch.cat(owners), torch.cat(ids), clients)  # sorted where they are
        return Ragged(named.offsets.cpu(), named.values.cpu())

    @property
    def features(self) -> dict[str, str]:
        """The columns of features that are rows of a table, and of which."""
        sparse = (name for name in self.refers if isinstance(self.columns[name], Sparse))
        return {name: self.refers[name] for name in sparse}

    @cached_property
    def without_features(self) -> FederatedDataset:
        """The same without those columns."""
        gone = self.features
        columns = {name: column for name, column in self.columns.items() if name not in gone}
        refers = {name: table for name, table in self.refers.items() if name not in gone}
        return replace(self, columns=columns, refers=refers)

    def to(self, device: torch.device) -> FederatedDataset:
        """The same data with its columns on a device; offsets stay on the host."""
        columns = {name: column.to(device) for name, column in self.columns.items()}
        return replace(self, columns=columns)

    def pooled(self) -> FederatedDataset:
        """All examples in one place, as centralised training has them."""
        return replace(self, offsets=torch.tensor([0, self.examples]), numbers=None)

    @classmethod
    def from_arrays(cls, x: Any, y: Any, client: Any, *, classes: int | None = None) -> FederatedDataset:
        """Bring your own: features (n, …), one class or a list of classes per example, its client (n,).

        Clients are numbered 0 … max(client); a number that never occurs is a client without data.
        """
        features, labels = _with_label_sets(x, y)
        owner = whole_numbers("client", client)
        if len(owner) != len(labels):
            raise UserError(
                f"client has {len(owner)} entries, y has {len(labels)}: give one client per example"
            )
        refuse_gaps("client", owner)
        columns: dict[str, Column] = {"x": Dense(features)}
        columns["y"] = Lists.of(labels) if isinstance(labels, Ragged) else Dense(labels)
        named = labels.values if isinstance(labels, Ragged) else labels
        return cls.by_owner(columns, owner, _class_count(named, classes))

    @classmethod
    def by_owner(
        cls, columns: Mapping[str, Column], owner: Tensor, classes: int, clients: int = 0
    ) -> FederatedDataset:
        """Examples sorted to their owners; at least so many clients, the last ones maybe empty."""
        order = torch.argsort(owner, stable=True)
        sorted_columns = {name: column.select(order).compact() for name, column in columns.items()}
        lengths = torch.bincount(owner, minlength=clients)
        return cls(sorted_columns, offsets_from_lengths(lengths), classes)


@dataclass(frozen=True)
class Examples:
    """Held-out examples: inputs and the set of right labels of each. They have no clients, so they
    cannot be trained on. Labels from `classes` on are classes that no client ever trains."""

    inputs: Mapping[str, Column]
    labels: Ragged  # n label sets; a set may be empty

    def __len__(self) -> int:
        return len(self.labels)

    @classmethod
    def from_arrays(cls, x: Any, y: Any) -> Examples:
        """Features (n, …), and one class or a list of classes per example."""
        features, labels = _with_label_sets(x, y)
        if not isinstance(labels, Ragged):
            labels = Ragged(torch.arange(len(labels) + 1), labels)
        return cls({"x": Dense(features)}, labels)


@dataclass(frozen=True)
class Splits:
    """Data kept apart by construction: only `train` has clients, only the others are scored."""

    name: str
    train: FederatedDataset
    test: Examples
    validation: Examples | None = None
    class_names: tuple[str, ...] = ()
    class_ids: tuple[str, ...] = ()


def _own_tensors(column: Column, at: Tensor) -> list[Tensor]:
    """What some examples hold, without the padding a gather would add."""
    if isinstance(column, Lists):
        lists = column.ragged(at)
        return [lists.lengths, lists.values]
    own = column.select(at).compact()
    return [tensor for _, tensor in sorted(own.tensors().items())]


def _ids_per_example(column: Column, examples: int) -> int:
    """About how many ids an example names in this column."""
    if isinstance(column, Lists):
        length = column.length if column.index is None else column.length[column.index]
        return -(-int(length.sum()) // max(examples, 1))
    if isinstance(column, Sparse):
        return -(-len(column.ids) // max(column.count, 1))
    return max(column.example_bytes // 8, 1)


def as_examples(x: Any, y: Any) -> tuple[Tensor, Tensor]:
    """Features as float32 and one class per example as int64, checked."""
    features, labels = _as_features(x), whole_numbers("y", y)
    _refuse_unequal(features, labels)
    refuse_gaps("y", labels)
    return features, labels


def _with_label_sets(x: Any, y: Any) -> tuple[Tensor, Tensor | Ragged]:
    """The same, or with a set of classes per example where some are given as lists."""
    if not isinstance(y, list | tuple) or not any(isinstance(one, list | tuple | set) for one in y):
        return as_examples(x, y)
    lists = [list(one) if isinstance(one, list | tuple | set) else [one] for one in y]
    named = [label for one in lists for label in one]
    numbers = whole_numbers("y", named or np.zeros(0, dtype=np.int64))
    refuse_gaps("y", numbers)
    owner = torch.repeat_interleave(torch.arange(len(lists)), torch.tensor([len(one) for one in lists]))
    features, sets = _as_features(x), Ragged.from_pairs(owner, numbers, len(lists))
    _refuse_unequal(features, sets)
    return features, sets


def _as_features(x: Any) -> Tensor:
    array = _array("x", x)
    real = any(np.issubdtype(array.dtype, kind) for kind in (np.floating, np.integer, np.bool_))
    if array.ndim < 2 or not real:
        raise UserError(
            f"x has shape {array.shape} and type {array.dtype}: give numbers of shape (examples, …)"
        )
    with np.errstate(over="ignore"):  # what does not fit becomes infinite, and is refused below
        features = torch.from_numpy(np.ascontiguousarray(array, dtype=np.float32))
    refuse_infinite(features)
    return features


def _refuse_unequal(features: Tensor, labels: Tensor | Ragged) -> None:
    if len(features) != len(labels):
        raise UserError(f"x has {len(features)} examples, y has {len(labels)}: they must agree")
    if not len(labels):
        raise UserError("x and y are empty: give at least one example")


def refuse_infinite(x: Tensor) -> None:
    if not bool(x.isfinite().all()):
        row = int((~x.flatten(1).isfinite()).any(1).nonzero()[0])
        raise UserError(f"x has a value that is not finite in example {row}: clean or drop it")


def refuse_gaps(name: str, numbers: Tensor) -> None:
    """Numbers that go far beyond how many there are would make tables and lists of nothing."""
    distinct, largest = len(torch.unique(numbers)), int(numbers.max()) if len(numbers) else 0
    if largest >= max(MOST_GAPS * distinct, 1_000_000):
        raise UserError(
            f"{name} goes up to {largest}, but only {distinct} numbers occur: number them 0 … n−1"
        )


def _array(name: str, values: Any) -> np.ndarray:
    try:
        return np.asarray(values)
    except ValueError:  # NumPy's own says nothing of which
        raise UserError(f"{name} has rows of different lengths: give an array of one shape") from None


def whole_numbers(name: str, values: Any) -> Tensor:
    array = _array(name, values)
    if array.ndim != 1 or not np.issubdtype(array.dtype, np.integer):
        raise UserError(
            f"{name} has shape {array.shape} and type {array.dtype}: give one whole number per example"
        )
    if array.size and array.min() < 0:
        raise UserError(f"{name} has the value {array.min()}: numbers start at 0")
    if array.size and array.max() > 2**62:
        raise UserError(f"{name} has the value {array.max()}: number them 0 … n−1")
    return torch.from_numpy(array.astype(np.int64))


def _class_count(labels: Tensor, classes: int | None) -> int:
    found = int(labels.max()) + 1 if labels.numel() else 0
    if classes is not None and found > classes:
        raise UserError(f"y has the class {found - 1}, but classes = {classes}")
    return found if classes is None else classes
