"""An ARFF file as features and label sets, or classes."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch

from spreadout.core.errors import UserError
from spreadout.core.ragged import Ragged, offsets_from_lengths
from spreadout.core.randomness import Ints
from spreadout.data.columns import Sparse
from spreadout.data.gaps import Gappy
from spreadout.data.io.archive import Archive
from spreadout.data.sources.arff import Attribute, Header, read_header
from spreadout.data.sources.arff_rows import Cells, read_cells
from spreadout.data.sources.base import single
from spreadout.data.sources.mulan_labels import (
    class_named,
    class_of,
    is_on_first,
    labels_of,
    places_of,
)


def _classes(header: Header, place: int, like: Table | None, name: str) -> list[str]:
    """The names of the classes, which are the same in all parts."""
    if like is not None and header.attributes[place : place + 1] != (like.header.attributes[place],):
        raise UserError(
            f"{name}: attribute {place} is not the class {like.header.attributes[place].shown()}"
        )
    return list(header.attributes[place].values)


@dataclass(frozen=True)
class Table:
    """The cells of a file, and which of its attributes are labels; the others are features."""

    name: str  # the file, for errors
    header: Header
    cells: Cells
    labels: list[str]
    places: list[int]  # the attribute that each label is; of a class, the one that names it

    @classmethod
    def read(
        cls, archive: Archive, file: str, like: Table | None = None, named: str | None = None
    ) -> Table:
        """A file whose labels are those of another, or said by the XML beside it or by itself.

        named: the attribute that is the class, where the user says so.
        """
        name = archive.label(file)
        with archive.open(file) as stream:
            header = read_header(stream, name)
            if like is not None:
                one = like.class_place
            elif named is not None:
                one = class_named(named, header, name)
            else:
                one = class_of(archive, file, header)
            if one is not None:
                names, places = _classes(header, one, like, name), [one]
            else:
                names = labels_of(archive, file, header) if like is None else like.labels
                places = places_of(names, header, name)
                for place in places:
                    is_on_first(header.attributes[place], name)  # refused before rows are read
            return cls(name, header, read_cells(stream, name, header), names, places)

    @property
    def class_place(self) -> int | None:
        """The attribute that names a row's class, where one does; None: each label has one."""
        return self.places[0] if len(self.labels) > len(self.places) else None

    @property
    def rows(self) -> int:
        return len(self.cells.row_lines)

    @cached_property
    def number(self) -> np.ndarray:
        """(attributes,) which feature an attribute is, from 0; of labels, −1 − which."""
        found = np.zeros(len(self.header.attributes), dtype=np.int64)
        found[self.places] = -1 - np.arange(len(self.places))
        found[found == 0] = np.arange(len(found) - len(self.places))
        return found

    @cached_property
    def features(self) -> list[Attribute]:
        return [a for a, number in zip(self.header.attributes, self.number, strict=True) if number >= 0]

    def missed(self) -> set[int]:
        """Features that some row has no value of."""
        numbers = np.unique(self.number[self.cells.attribute[np.isnan(self.cells.value)]]).tolist()
        return {number for number in numbers if number >= 0 and self.features[number].width}

    @cached_property
    def widths(self) -> Ints:
        """(features,) columns of each."""
        return np.array([attribute.width for attribute in self.features], dtype=np.int64)

    @cached_property
    def first(self) -> Ints:
        """(features,) where the columns of each begin."""
        found: Ints = np.cumsum(self.widths) - self.widths
        return found

    def gappy(self, feature: int) -> Gappy:
        """A feature that some rows have no value of."""
        nominal = self.features[feature].kind == "nominal"
        return Gappy(int(self.first[feature]), int(self.widths[feature]), nominal)

    def inputs(self) -> Sparse:
        """The features of all rows, side by side; NaN where a row has no value of one."""
        nominal = np.array([attribute.kind == "nominal" for attribute in self.features], dtype=bool)
        feature = self.number[self.cells.attribute]
        own = feature >= 0
        row, feature, value = self.cells.row[own], feature[own], self.cells.value[own]
        kept = (value != 0) & (self.widths[feature] > 0)
        row, feature, value = row[kept], feature[kept], value[kept]
        gap = np.isnan(value)
        of_value = np.where(nominal[feature] & ~gap, value - 1, 0)
        column = self.first[feature] + of_value.astype(np.int64)
        weight = np.where(nominal[feature] & ~gap, 1.0, value)
        order = np.lexsort((column, row))
        return Sparse(
            torch.from_numpy(column[order].astype(np.int32)),
            torch.from_numpy(weight[order].astype(np.float32)),
            offsets_from_lengths(torch.from_numpy(np.bincount(row, minlength=self.rows))),
            int(self.widths.sum()),
        )

    def label_sets(self) -> Ragged:
        """The labels that are on, row by row; or the class of each."""
        if self.class_place is not None:
            return self._classes_of_rows()
        label = -1 - self.number[self.cells.attribute]  # (cells,), below 0: a feature
        value, row = self.cells.value, self.cells.row
        odd = (label >= 0) & (value != 0) & (value != 1)
        if odd.any():
            at = int(np.flatnonzero(odd)[0])
            said = "missing" if np.isnan(value[at]) else f"{value[at]:g}, not 0 or 1"
            line = self.cells.row_lines[row[at]]
            raise UserError(f"{self.name}:{line}: the label {self.labels[label[at]]!r} is {said}")
        written = (label >= 0) & (value == 1)
        row, label = row[written], label[written]
        # Where the value that means "on" is declared first, it is the one a sparse row leaves out.
        for i, place in enumerate(self.places):
            if is_on_first(self.header.attributes[place], self.name):
                on = np.setdiff1d(np.arange(self.rows), row[label == i])
                row = np.concatenate([row[label != i], on])
                label = np.concatenate([label[label != i], np.full(len(on), i)])
        return Ragged.from_pairs(torch.from_numpy(row), torch.from_numpy(label), self.rows)

    def _classes_of_rows(self) -> Ragged:
        own = self.cells.attribute == self.places[0]
        found = np.zeros(self.rows)  # a sparse row leaves out the first value
        found[self.cells.row[own]] = self.cells.value[own]
        if np.isnan(found).any():
            at = self.cells.row_lines[np.isnan(found).argmax()]
            raise UserError(f"{self.name}:{at}: the class is missing")
        return single(torch.from_numpy(found.astype(np.int64)))

    def refuse_unlike(self, other: Table, name: str) -> None:
        """Features that are others than those of the table they go with."""
        if len(self.features) != len(other.features):
            raise UserError(
                f"{self.name}: has {len(self.features)} features, {name} has {len(other.features)}: "
                "they must agree"
            )
        for ours, theirs in zip(self.features, other.features, strict=True):
            if ours != theirs:
                raise UserError(
                    f"{self.name}: declares {ours.shown()} where {name} has {theirs.shown()}: "
                    "they must agree"
                )
