"""What clients hold: flat columns, cut into clients by offsets.

Nothing here is a list of per-client objects, so a million clients cost two arrays, and the batches of
a whole cohort are one gather per column.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from spreadout.core.errors import UserError
from spreadout.core.ragged import Ragged, offsets_from_lengths, runs
from spreadout.core.randomness import Ints
from spreadout.data.adapters import Columns, Table, table_of, table_of_parts
from spreadout.data.arrays import (
    class_count,
    has_sets,
    refuse_mostly_gaps,
    with_label_sets,
    with_numbers,
)
from spreadout.data.columns import Column, Dense, Lists, Sparse, ragged_places, select_all
from spreadout.data.continuity import is_picture
from spreadout.data.fingerprint import fingerprint_of, fingerprint_of_form
from spreadout.data.handedness import handedness
from spreadout.data.in_words import counted, inputs_in_words
from spreadout.data.input_columns import InputColumns
from spreadout.data.label_counts import counts_by_client
from spreadout.data.moments import are_numbers
from spreadout.data.named_rows import ids_per_example, rows_named
from spreadout.data.naming import client_numbers

REMEMBERED = 1 << 24  # up to so many row ids, every client's rows are worked out once and kept
AT_ONCE = 1 << 21  # row ids looked at in one go
SEVERAL = "client: examples have several labels each; say whose each example is"


@dataclass(frozen=True, repr=False)
class FederatedDataset:
    """Training examples by client: client `i` holds `offsets[i]:offsets[i + 1]` of every column.

    >>> import spreadout as so
    >>> train = so.FederatedDataset.from_arrays(x=[[0.0], [1.0], [2.0]], y=[0, 1, 1], client=[0, 1, 1])
    >>> train.clients, train.classes, train.sizes.tolist()
    (2, 2, [1, 2])
    >>> train.view(1).columns["x"].values.tolist()  # what client 1 has
    [[1.0], [2.0]]
    """

    columns: Mapping[str, Column]
    offsets: Tensor  # (clients + 1,) int64
    classes: int
    # Which columns hold row ids, and of which table: a client needs at least these rows.
    row_columns: Mapping[str, str] = field(default_factory=lambda: {"y": "classes"})
    numbers: Tensor | None = None  # (clients,) of a part of a federation: what its draws depend on
    # Of the whole federation, where the server sends them to all: (C,) each.
    public_popularity: Tensor | None = None
    public_counts: Tensor | None = None  # examples of each class
    class_names: tuple[str, ...] = ()  # what the user calls the classes; none: by their numbers
    client_names: tuple[str, ...] = ()  # … and the clients of the whole federation
    input_columns: InputColumns | None = None  # that x was made of; None: they had no names

    def __repr__(self) -> str:
        held = f"{counted(self.examples, 'example')}, {counted(self.clients, 'client')}"
        inside = inputs_in_words(self.columns)
        return f"<FederatedDataset: {held}, {counted(self.class_count, 'class')}, {inside}>"

    @property
    def clients(self) -> int:
        return self.offsets.numel() - 1

    @property
    def examples(self) -> int:
        return int(self.offsets[-1])

    @property
    def first_class(self) -> int:
        """The first row that is somebody's: where ids are padded with 0, row 0 is nobody's."""
        named = (self.columns[name] for name, table in self.row_columns.items() if table == "classes")
        return max((column.pad + 1 for column in named if isinstance(column, Lists)), default=0)

    @property
    def class_count(self) -> int:
        """How many classes somebody can have; `classes` counts the rows of their table, padding too."""
        return self.classes - self.first_class

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
        own = select_all(self.columns, self.places_of(clients))
        return replace(
            self,
            columns={name: column.compact() for name, column in own.items()},
            offsets=offsets_from_lengths(self._lengths(clients)),
            numbers=torch.from_numpy(self.number_of(clients)),
        )

    def view(self, client: int) -> FederatedDataset:
        """One client's own view: its examples, the size of the label space, and its number."""
        return self.part(torch.tensor([client]))

    @cached_property
    def fingerprint(self) -> str:
        """Changes with the number of examples, who holds them, or the rows they name."""
        return fingerprint_of(self.columns, self.offsets, self.classes, {"y", *self.row_columns})

    @cached_property
    def form(self) -> str:
        """The same of nothing in an example: who knows all but one would try what that can be."""
        return fingerprint_of_form(self.columns, self.clients, self.classes)

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
        rows = self.rows_of(torch.arange(self.clients))["classes"].values
        counts = torch.bincount(rows, minlength=self.classes).float()
        return counts / counts.sum().clamp_min(1)

    @cached_property
    def label_counts(self) -> tuple[Ragged, Ragged]:
        """The classes that each client's examples have, ascending, and how many have each."""
        return counts_by_client(self.columns["y"], self.offsets, self.classes)

    @cached_property
    def _all_rows(self) -> dict[str, Ragged]:
        return self._rows_of(torch.arange(self.clients))

    @cached_property
    def _ids(self) -> int:
        """About how many row ids the examples name in all."""
        columns = [self.columns[name] for name in self.row_columns]
        return sum(ids_per_example(column, self.examples) for column in columns) * self.examples

    def _rows_of(self, clients: Tensor) -> dict[str, Ragged]:
        """In runs of clients, so that the ids in memory at once are bounded."""
        each = max(self._ids // max(self.examples, 1), 1)
        some = runs(self._lengths(clients) * each, AT_ONCE)
        parts = [self._rows_of_some(clients[at]) for at in some]
        return {table: Ragged.concatenated([part[table] for part in parts]) for table in parts[0]}

    def _rows_of_some(self, clients: Tensor) -> dict[str, Ragged]:
        at = self.places_of(clients)
        owner = torch.repeat_interleave(torch.arange(len(clients)), self._lengths(clients))
        return {
            table: self.rows_at(table, at, owner, len(clients)).on_host()
            for table in sorted(set(self.row_columns.values()))
        }

    def rows_at(self, table: str, at: Tensor, owner: Tensor, clients: int) -> Ragged:
        """The distinct rows that these examples name, for each of the clients that own them.

        Their ids are sorted where the columns lie, and stay there.
        """
        naming = [self.columns[name] for name, named in self.row_columns.items() if named == table]
        return rows_named(naming, at, owner, clients)

    @property
    def features(self) -> dict[str, str]:
        """The columns of features that are rows of a table, and of which."""
        sparse = (name for name in self.row_columns if isinstance(self.columns[name], Sparse))
        return {name: self.row_columns[name] for name in sparse}

    @cached_property
    def has_numbers(self) -> bool:
        """Whether its inputs are quantities rather than words; looked at once, asked by many."""
        x = self.columns.get("x")
        return x is not None and are_numbers(x)

    @cached_property
    def may_be_shifted(self) -> bool:
        """Whether its inputs are pictures, which show the same if they are moved a little."""
        x = self.columns.get("x")
        return isinstance(x, Dense) and x.values.dim() == 4 and is_picture(x)

    @cached_property
    def may_be_mirrored(self) -> bool:
        """Whether its inputs are images in whose classes no side is seen."""
        x, y = self.columns.get("x"), self.columns["y"]
        if not isinstance(x, Dense) or x.values.dim() != 4 or not isinstance(y, Dense | Lists):
            return False
        found = handedness(x, y)
        return found is not None and found.is_none

    @cached_property
    def without_features(self) -> FederatedDataset:
        """The same without those columns."""
        gone = self.features
        columns = {name: column for name, column in self.columns.items() if name not in gone}
        row_columns = {name: table for name, table in self.row_columns.items() if name not in gone}
        return replace(self, columns=columns, row_columns=row_columns)

    def to(self, device: torch.device) -> FederatedDataset:
        """The same data with its columns on a device; offsets stay on the host."""
        columns = {name: column.to(device) for name, column in self.columns.items()}
        return replace(self, columns=columns)

    def pooled(self) -> FederatedDataset:
        """All examples in one place, as centralised training has them."""
        return replace(self, offsets=torch.tensor([0, self.examples]), numbers=None)

    @classmethod
    def from_arrays(
        cls, x: Any, y: Any, client: Any = None, *, classes: int | None = None
    ) -> FederatedDataset:
        """Bring your own: features (n, …), one class or a list of classes per example, its client (n,).
        Without clients, every class is one.

        Features are arrays or tensors of numbers, images with their channels first or last (bytes of
        them are pixels), or a sparse matrix of SciPy.

        Classes are whole numbers from 0 on, or text or other values, which are numbered and keep their
        names. Clients may be called by numbers with large gaps, or by text; of numbers with few gaps,
        one that never occurs is a client without data.

        >>> import spreadout as so
        >>> x, y = [[0.0], [1.0], [2.0]], ["cat", "dog", "cat"]
        >>> train = so.FederatedDataset.from_arrays(x, y, client=[0, 1000, 2000])
        >>> train.clients, train.client_names, train.class_names
        (3, ('0', '1000', '2000'), ('cat', 'dog'))
        """
        y, names = with_numbers(y)
        inputs, labels = with_label_sets(x, y)
        if client is None and isinstance(labels, Ragged):
            raise UserError(SEVERAL)
        ids, client_names = client_numbers(y if client is None else client)
        owner = torch.from_numpy(ids)
        if len(owner) != len(labels):
            raise UserError(
                f"client has {len(owner)} entries, y has {len(labels)}: give one client per example"
            )
        columns: dict[str, Column] = {"x": inputs}
        columns["y"] = Lists.of(labels) if isinstance(labels, Ragged) else Dense(labels)
        named = labels.values if isinstance(labels, Ragged) else labels
        if classes is None:
            refuse_mostly_gaps(named)
        found = cls.by_owner(columns, owner, class_count(named, classes))
        return replace(found, class_names=names, client_names=client_names)

    @classmethod
    def from_frame(
        cls, frame: Any, *, label: str, client: str | None = None, features: Columns = None
    ) -> FederatedDataset:
        """A data frame (pandas, Polars) or a dictionary of columns, by the names of its columns.

        client: whose each example is; without it, every class is a client. features: all other columns.

        >>> import spreadout as so
        >>> trees = {"height": [30.0, 35.0, 12.0], "kind": ["ash", "fir", "ash"], "wood": [*"abb"]}
        >>> train = so.FederatedDataset.from_frame(trees, label="kind", client="wood")
        >>> train.class_names, train.client_names, train.sizes.tolist()
        (('ash', 'fir'), ('a', 'b'), [1, 2])
        """
        return cls._of_table(table_of(frame, label, client, features))

    @classmethod
    def from_huggingface(
        cls, dataset: Any, *, label: str = "label", client: str | None = None, features: Columns = None
    ) -> FederatedDataset:
        """A `datasets.Dataset`: columns of numbers, lists or pictures; a ClassLabel keeps its names."""
        return cls._of_table(table_of(dataset, label, client, features))

    @classmethod
    def from_torch(cls, dataset: Any, client: Any = None) -> FederatedDataset:
        """A torch data set of pairs (x, y), and whose each is; without that, every class is a client."""
        return cls._of_table(replace(table_of(dataset, ""), client=client))

    @classmethod
    def from_partitions(
        cls, partitions: Any, *, label: str = "label", features: Columns = None
    ) -> FederatedDataset:
        """A table for every client: partitions of Flower Datasets, or a dictionary of data frames.

        `from_partitions(fds.load_partition(i) for i in range(n))` is the federation of a
        `flwr_datasets.FederatedDataset`.
        """
        return cls._of_table(table_of_parts(partitions, label, features))

    @classmethod
    def _of_table(cls, table: Table) -> FederatedDataset:
        y, names = with_numbers(table.y)
        if table.class_names:
            names = table.class_names
        client = table.client if table.client is not None else y
        if has_sets(client):
            raise UserError(SEVERAL)
        count = len(names) if names else None
        found = cls.from_arrays(table.x, y, client, classes=count)
        return replace(found, class_names=names, input_columns=table.input_columns)

    @classmethod
    def by_owner(
        cls, columns: Mapping[str, Column], owner: Tensor, classes: int, clients: int = 0
    ) -> FederatedDataset:
        """Examples sorted to their owners; at least so many clients, the last ones maybe empty."""
        order = torch.argsort(owner, stable=True)
        sorted_columns = {name: column.select(order).compact() for name, column in columns.items()}
        lengths = torch.bincount(owner, minlength=clients)
        return cls(sorted_columns, offsets_from_lengths(lengths), classes)
