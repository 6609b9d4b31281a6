"""Examples that are held out: scored, never trained on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from spreadout.core.ragged import Ragged
from spreadout.data.adapters import Columns, Table, table_of
from spreadout.data.arrays import with_label_sets, with_numbers
from spreadout.data.columns import Column
from spreadout.data.dataset import FederatedDataset
from spreadout.data.in_words import counted, inputs_in_words


@dataclass(frozen=True, repr=False)
class Examples:
    """Held-out examples: inputs and the set of right labels of each. They have no clients, so they
    cannot be trained on. Labels from `classes` on are classes that no client ever trains.

    >>> import spreadout as so
    >>> held_out = so.Examples.from_arrays(x=[[0.0], [1.0]], y=[[0, 2], [1]])  # a list: several classes
    >>> len(held_out), held_out.labels[0].tolist()
    (2, [0, 2])
    """

    inputs: Mapping[str, Column]
    labels: Ragged  # n label sets; a set may be empty
    class_names: tuple[str, ...] = ()  # by which text was numbered: those of the training data first
    column_names: tuple[str, ...] = ()  # the named columns that x was made of, in their order
    user: Tensor | None = None  # (n,) int64 whose example each is, where the source says it

    def __len__(self) -> int:
        return len(self.labels)

    def __repr__(self) -> str:
        return f"<Examples: {counted(len(self), 'example')}, {inputs_in_words(self.inputs)}>"

    def renumbered(self, places: Sequence[int], class_names: tuple[str, ...]) -> Examples:
        """The same examples; class `i` is now class `places[i]`."""
        owner = torch.repeat_interleave(torch.arange(len(self)), self.labels.lengths)
        labels = Ragged.from_pairs(owner, torch.tensor(places)[self.labels.values], len(self))
        return replace(self, labels=labels, class_names=class_names)

    @classmethod
    def from_arrays(cls, x: Any, y: Any, *, like: FederatedDataset | None = None) -> Examples:
        """Features (n, …), and one class or a list of classes per example.

        like: the training data, if its classes have names: then these are numbered by them. A class
        that no client has comes after theirs.
        """
        known, counted = ((), 0) if like is None else (like.class_names, like.classes)
        y, names = with_numbers(y, known, counted)
        inputs, labels = with_label_sets(x, y)
        if not isinstance(labels, Ragged):
            labels = Ragged(torch.arange(len(labels) + 1), labels)
        return cls({"x": inputs}, labels, names)

    @classmethod
    def from_frame(
        cls, frame: Any, *, label: str, features: Columns = None, like: FederatedDataset | None = None
    ) -> Examples:
        """A data frame or a dictionary of columns; like: the training data, by whose names to number."""
        columns = None if like is None else like.input_columns
        return cls._of_table(table_of(frame, label, None, features, columns), like)

    @classmethod
    def from_huggingface(
        cls,
        dataset: Any,
        *,
        label: str = "label",
        features: Columns = None,
        like: FederatedDataset | None = None,
    ) -> Examples:
        """A `datasets.Dataset`; like: the training data."""
        columns = None if like is None else like.input_columns
        return cls._of_table(table_of(dataset, label, None, features, columns), like)

    @classmethod
    def from_torch(cls, dataset: Any, *, like: FederatedDataset | None = None) -> Examples:
        """A torch data set of pairs (x, y); like: the training data."""
        return cls._of_table(table_of(dataset, ""), like)

    @classmethod
    def _of_table(cls, table: Table, like: FederatedDataset | None) -> Examples:
        if table.class_names:  # numbered by the library, which knows what they are called
            called = table.class_names
            named = [called[i] for i in table.y] if like is not None and like.class_names else table.y
            found = cls.from_arrays(table.x, named, like=like)
        else:
            found = cls.from_arrays(table.x, table.y, like=like)
        return replace(found, column_names=table.input_columns.names if table.input_columns else ())
