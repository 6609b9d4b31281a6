"""Your own table with a header: a column of labels, numbers, and perhaps whose each row is.

CSV, also .gz. Text becomes an indicator for each of its values but the first: those that rows have, or
those that are declared. An empty cell of numbers becomes the mean of the training rows, once they are
known.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Annotated, ClassVar, Literal

import numpy as np
import torch
from pydantic import Field, field_validator
from torch import Tensor

from spreadout.core.errors import UserError
from spreadout.core.registry import near
from spreadout.data.arrays import as_features
from spreadout.data.columns import Dense
from spreadout.data.decimals import pointed
from spreadout.data.in_words import counted
from spreadout.data.input_columns import (
    MOST_VALUES,
    InputColumn,
    InputColumns,
    is_number,
    says_missing,
)
from spreadout.data.io.csv_table import Cells, columns_of
from spreadout.data.naming import client_numbers
from spreadout.data.sources.base import FileSource, Instances, RawDataset, register_source
from spreadout.data.sources.encoding import Encoding
from spreadout.data.sources.label_cells import WHOLE, label_sets, plain
from spreadout.data.words import ALONE

COMMAS = re.compile(r"[-+]?[0-9]+(,[0-9]+)+")  # 3,5 or 1,234
TEXTS = "texts"  # the source that reads a column of text
WITH_UNIT = re.compile(r"[$€£¥]? ?[-+]?\d[\d.,]* ?([%$€£¥°]|[A-Za-z]{1,3})?")
Values = Annotated[tuple[str, ...], Field(min_length=2)]
LOOKED_AT = 1000  # cells of a column of text
MANY_ROWS = 20  # from here on it is no accident that a column counts them
NAMELESS = "the column without a name"
LARGEST = float(np.finfo(np.float32).max)  # features are kept in 32 bits


@register_source
class Table(FileSource):
    """A table of numbers and words, one labelled example a row."""

    about: ClassVar = "your table as CSV with a header: one labelled example a row"
    name: str = "table"
    label: str = "label"  # the column of classes
    separator: str | None = None  # what parts the labels of a row that has several
    client: str | None = None  # the column that says whose each row is; None: nobody knows
    features: tuple[str, ...] = ()  # columns of inputs; none: all others
    values: Mapping[str, Values] = {}  # of columns of text: all that may be in a cell
    delimiter: str = ","
    decimal: Literal[".", ","] = "."  # what parts the digits of 3.14
    encoding: Encoding = None

    def __hash__(self) -> int:
        """A dictionary has none of its own."""
        return hash(self.model_dump_json())

    @field_validator("values")
    @classmethod
    def _no_value_twice(cls, values: Mapping[str, Values]) -> Mapping[str, Values]:
        for column, own in values.items():
            if twice := next((value for value in own if own.count(value) > 1), None):
                raise ValueError(f"{column}: {twice!r} is there twice")
        return values

    def parse(self, path: Path) -> RawDataset:
        columns = columns_of(path, self.delimiter, self.encoding)
        asked = [self.label, *([self.client] if self.client else []), *self.features, *self.values]
        for name in asked:
            if name not in columns:
                raise UserError(
                    f"{path}: no column {name!r}{near(name, columns)}; set data.source.label, .client, "
                    ".features or .values"
                )
        if self.decimal == ",":
            kept = {*self.values, self.client, self.label if self.separator is not None else None}
            columns = {n: c if n in kept else pointed(path, n, c) for n, c in columns.items()}
        used = self.features or [n for n in columns if n not in (self.label, self.client)]
        if not used:
            raise UserError(f"{path}: has no column beside {self.label!r}: features are needed too")
        if idle := next((name for name in self.values if name not in used), None):
            raise UserError(f"{path}: column {idle!r} is no input; leave it out of data.source.values")
        notes, left_out = list[str](), dict[str, str]()
        if not self.features:  # what is named is read or refused; of the rest, what can be read
            left_out = _unreadable({n: columns[n] for n in used if n not in self.values})
            if len(left_out) == len(used):  # then they are refused
                left_out = {}
            used = [name for name in used if name not in left_out]
        notes += [
            f"{n or NAMELESS}: {why} and is left out{_of_texts(columns[n])}"
            for n, why in left_out.items()
        ]
        parts = {name: self._column(path, name, columns[name], notes) for name in used}
        labels, names = label_sets(path, self.label, columns[self.label], self.separator, notes)
        whose, clients = None, tuple[str, ...]()
        if self.client:
            ids, clients = client_numbers(plain(columns[self.client]))
            whose = torch.from_numpy(ids)
        x = np.concatenate([numbers for _, numbers in parts.values()], axis=1)
        train = Instances({"x": Dense(_with_gaps(x))}, labels, whose)
        classes = len(names) or 1 + int(labels.values.max())
        inputs = InputColumns(
            tuple(column for column, _ in parts.values()), tuple(n for n in columns if n not in used)
        )
        return RawDataset(
            train,
            classes,
            None,
            {},
            names,
            names,
            tuple(notes),
            client_names=clients,
            input_columns=inputs,
            found_in_rows=tuple(
                f"column {name!r} {why}: that it is left out tells of its rows; with [privacy] name "
                "the columns to learn from, data.source.features"
                for name, why in left_out.items()
            ),
        )

    def _column(
        self, path: Path, name: str, cells: Cells, notes: list[str]
    ) -> tuple[InputColumn, np.ndarray]:
        if name not in self.values:
            return _numbers(path, name, cells, notes)
        kinds = self.values[name]
        for line, cell in zip(cells.lines, cells, strict=True):
            if cell not in kinds:
                raise UserError(
                    f"{path}:{line}: {name} is {cell[:40]!r}, which is not among its declared values; "
                    f"correct it, or add it to data.source.values.{name}"
                )
        return InputColumn(name, len(kinds) - 1, tuple(kinds), declared=True), _one_hot(cells, kinds)


def _with_gaps(x: np.ndarray) -> Tensor:
    """Checked as other features are, but for empty cells, which stay so until rows are held out."""
    missing = torch.from_numpy(np.isnan(x))
    return as_features(np.where(np.isnan(x), 0.0, x)).masked_fill(missing, torch.nan)


def _unreadable(columns: Mapping[str, Cells]) -> dict[str, str]:
    """Those that say nothing of an input as they are, and why."""
    return {name: why for name, cells in columns.items() if (why := _left_out(cells))}


def _of_texts(cells: Cells) -> str:
    if not is_free_text(cells):
        return ""
    if all(WITH_UNIT.fullmatch(cell) for cell in cells if cell and not says_missing(cell)):
        return "; these are numbers with a sign or a unit: write the numbers alone to learn from them"
    return f"; data.source = {TEXTS} learns from one column of text" if are_words(cells) else ""


def _left_out(cells: Cells) -> str | None:
    """Why nothing can be learned from a column, if so: it is empty, or has too many different texts.

    Not one of numbers with slips in it: that is to be corrected.
    """
    if not any(cell and not says_missing(cell) for cell in cells):
        return "is empty"
    return f"has {len(set(cells))} different texts" if is_free_text(cells) else None


def are_words(cells: Sequence[str]) -> bool:
    """Whether cells are words: no ids, digests, times or addresses.

    >>> are_words(["my card is lost", "no cash"]), are_words(["2024-05-31 10:30:00", "u-17"])
    (True, False)
    """
    some = (ALONE.sub(" x ", cell) for cell in islice(cells, LOOKED_AT))
    pieces = [piece.strip(".,;:!?()\"'") for cell in some for piece in cell.split()]
    return sum(map(str.isalpha, pieces)) >= len(pieces) / 2


def is_free_text(cells: Cells) -> bool:
    """Whether a column says something else nearly everywhere, and no numbers."""
    given = [cell for cell in cells if cell and not says_missing(cell)]
    texts = sum(not is_number(cell) and not COMMAS.fullmatch(cell) for cell in given)
    return len(set(cells)) > MOST_VALUES and texts >= len(given) / 2


def names_rows(cells: Cells) -> bool:
    """Whether a column holds another whole number in every row: ids say nothing of new rows."""
    return len(set(cells)) == len(cells) >= MANY_ROWS and all(map(WHOLE.fullmatch, cells))


def _count(values: np.ndarray) -> bool:
    """Whether these are the numbers of the rows, from whichever first one on."""
    return len(values) >= MANY_ROWS and bool((np.diff(values) == 1).all())


def _numbers(path: Path, name: str, cells: Cells, notes: list[str]) -> tuple[InputColumn, np.ndarray]:
    """A column as numbers (n, 1), empty cells as NaN; or as indicators of its values (n, values − 1)."""
    missing = np.array([not cell or says_missing(cell) for cell in cells])
    if missing.all():
        raise UserError(f"{path}: column {name!r} is empty; leave it out with data.source.features")
    there = [(row, cell) for row, cell in enumerate(cells) if not missing[row]]
    odd = next(((row, cell) for row, cell in there if not is_number(cell)), None)
    if odd is not None:
        if all(COMMAS.fullmatch(cell) or is_number(cell) for _, cell in there):
            raise UserError(
                f"{path}:{cells.lines[odd[0]]}: {name} is {odd[1]!r}: write numbers with a point, and "
                'without commas, or set data.source.decimal = "," if they have a decimal comma'
            )
        return _indicators(path, name, cells, notes)
    values = np.full(len(cells), np.nan)
    values[~missing] = [float(cell) for _, cell in there]
    if missing.any():
        words = sorted({cell for row, cell in enumerate(cells) if missing[row] and cell})
        called = f" (also {', '.join(map(repr, words))})" if words else ""
        notes.append(
            f"{name}: {int(missing.sum())} empty cells{called} became the mean of the training rows"
        )
    if len(beyond := np.flatnonzero(~(np.abs(values) <= LARGEST) & ~missing)):
        row = int(beyond[0])
        why = "more than a 32-bit number holds" if np.isfinite(values[row]) else "not finite"
        raise UserError(
            f"{path}:{cells.lines[row]}: {name} is {cells[row][:40]}, {why}; clean or drop it"
        )
    if not missing.any() and _count(values):
        notes.append(
            f"{name or NAMELESS}: counts the rows and is learned from all the same; "
            "leave it out with data.source.features if it says nothing"
        )
    return InputColumn(name), values[:, None]


def _indicators(path: Path, name: str, cells: Cells, notes: list[str]) -> tuple[InputColumn, np.ndarray]:
    kinds = sorted(set(cells))
    given = [(row, cell) for row, cell in enumerate(cells) if cell and not says_missing(cell)]
    texts = [row for row, cell in given if not is_number(cell)]
    mostly = len(texts) < len(given) / 2  # a slip makes text of what was meant as numbers
    why = f" because of {cells[texts[0]][:20]!r} in line {cells.lines[texts[0]]}" if mostly else ""
    if len(kinds) > MOST_VALUES:
        before, after = ": ids and times say nothing of new rows;", ""
        if mostly:
            before = f", and is text{why}: correct that, or"
        elif are_words(cells):
            before, after = ":", f", or learn from the words of this one by source = {TEXTS!r}"
        raise UserError(
            f"{path}: column {name!r} has {len(kinds)} different texts ({kinds[-1][:20]!r} …){before} "
            f'name the columns to learn from, data.source.features = ["…", "…"]{after}'
        )
    notes.append(f"{name}: is text{why} and became {counted(len(kinds) - 1, 'indicator')}")
    return InputColumn(name, len(kinds) - 1, tuple(kinds)), _one_hot(cells, kinds)


def _one_hot(cells: Sequence[str], kinds: Sequence[str]) -> np.ndarray:
    """An indicator for each kind but the first: (n, kinds − 1)."""
    found = np.array([[cell == kind for kind in kinds[1:]] for cell in cells], dtype=np.float64)
    return found.reshape(len(cells), len(kinds) - 1)
