"""The named columns that a table's inputs came from, and how each became numbers.

They go with the data into the trained model, so that whatever it is asked with later is brought into the
same order by name, and its text and empty cells become what they became in training.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from difflib import get_close_matches
from numbers import Number
from typing import Any

import numpy as np
from torch import Tensor

from spreadout.core.errors import UserError
from spreadout.data.columns import Sparse
from spreadout.data.io.csv_table import Cells
from spreadout.data.words import hashed_words

MOST_VALUES = 64  # of a column of text, that may become indicators
NOT_THERE = frozenset({"na", "n/a", "nan", "null", "none", "?", "<na>", "nat"})  # in any letters
WITH_POINT = ": write it with a decimal point, as 3.14"


@dataclass(frozen=True)
class InputColumn:
    """One column: numbers, lists of numbers of one length, or text."""

    name: str
    width: int = 1  # numbers that it makes
    values: tuple[str | None, ...] = ()  # of text: all but the first have an indicator; None: untrained
    mean: float | None = None  # of training rows, what an empty cell becomes; None: none may be empty
    words: bool = False  # text whose words are hashed into `width` numbers
    declared: bool = False  # whether its values were said by whoever gave the data, not found in rows

    @property
    def tells(self) -> str | None:
        """What it says of the rows that it was made from, whoever has it; None: nothing."""
        if self.mean is not None:
            return f"the mean of its training rows ({self.mean:g})"
        return "which values its rows have" if self.values and not self.declared else None


@dataclass(frozen=True)
class InputColumns:
    """The columns of inputs in their order, and those of the same table that are no inputs."""

    columns: tuple[InputColumn, ...]
    beside: tuple[str, ...] = ()  # labels, clients, and what was not learned from

    @classmethod
    def from_json(cls, found: Mapping[str, Any] | None) -> InputColumns | None:
        """What `as_json` gave."""
        if found is None:
            return None
        columns = (InputColumn(**{**one, "values": tuple(one["values"])}) for one in found["columns"])
        return cls(tuple(columns), tuple(found["beside"]))

    def as_json(self) -> dict[str, Any]:
        return asdict(self)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(column.name for column in self.columns)

    @property
    def width(self) -> int:
        """Numbers of an input."""
        return sum(column.width for column in self.columns)

    @property
    def described(self) -> list[str]:
        """A line for every column: how its cells become numbers, in the order of the inputs."""
        return [_described(column) for column in self.columns]

    def refuse_others(self, header: Sequence[str], origin: str, beside: Sequence[str] = ()) -> None:
        """A table without a column of these, or with one that nobody knows."""
        self.refuse_missing(header, origin)
        unknown = [one for one in self.unknown(header) if one not in beside]
        if unknown:
            raise UserError(
                f"{origin}: column {unknown[0]!r} was not in the training data; leave it out "
                f"(inputs are {', '.join(self.names)[:200]})"
            )

    def refuse_missing(self, header: Sequence[str], origin: str) -> None:
        """A table without a column of these."""
        for name in self.names:
            if name not in header:
                others = [one for one in header if one not in self.names]
                close = get_close_matches(name, others, n=1, cutoff=0.5)
                meant = f"; did you mean {close[0]!r}? It" if close else "; it"
                raise UserError(
                    f"{origin}: no column {name!r}, which this model was trained on{meant} has "
                    f"{', '.join(header)[:200]}"
                )

    def unknown(self, header: Sequence[str]) -> list[str]:
        """Columns that the training data did not have."""
        return [one for one in header if one not in (*self.names, *self.beside)]

    @property
    def text(self) -> InputColumn | None:
        """The one column, where inputs are texts."""
        return self.columns[0] if self.columns and self.columns[0].words else None

    def encode(
        self, table: Mapping[str, Sequence[Any]], origin: str = "x"
    ) -> tuple[np.ndarray | Sparse, tuple[str, ...]]:
        """The table's cells as the numbers that training had, whatever the order of its columns: (n, D);
        and what whoever asks should know of them. Columns that training did not have are left out."""
        self.refuse_missing(list(table), origin)
        refuse_odd_columns({name: table[name] for name in self.names}, origin)
        notes = [
            f"{name}: was not in the training data and is left out" for name in self.unknown(list(table))
        ]
        if self.text is not None:
            return self.encode_texts(table[self.text.name], origin), tuple(notes)
        parts = [_encoded(column, table[column.name], origin, notes) for column in self.columns]
        return np.concatenate(parts, axis=1), tuple(notes)

    def encode_texts(self, texts: Sequence[Any], origin: str = "x") -> Sparse:
        """Texts as the numbers that training had: (n, D); an empty cell is an empty text."""
        assert self.text is not None, "inputs are numbers"
        for row, one in enumerate(texts):
            if not is_cell_of_text(one):
                raise UserError(
                    f"{_at(origin, texts, row)}: {self.text.name} is {str(one)[:40]!r}, no text; leave "
                    "the row out, or give an empty text"
                )
        return hashed_words([_as_text(one) for one in texts], self.text.width)

    def fitted(self, train: Tensor) -> InputColumns:
        """With what only the training rows (n, D) may say: means, and which values of text occur."""
        columns, at = [], 0
        for column in self.columns:
            own = train[:, at : at + column.width]
            if column.values:
                seen = own.any(dim=0).tolist()
                kept = [v if there else None for v, there in zip(column.values[1:], seen, strict=True)]
                columns.append(replace(column, values=(column.values[0], *kept), declared=False))
            else:
                known = own[~own.isnan()]
                columns.append(replace(column, mean=float(known.double().mean()) if len(known) else 0.0))
            at += column.width
        return replace(self, columns=tuple(columns))

    def filled(self, x: Tensor) -> Tensor:
        """Rows (n, D) with means for what is missing, and no indicator that training never saw."""
        x, at = x.clone(), 0
        for column in self.columns:
            if column.values:
                for place, value in enumerate(column.values[1:], at):
                    if value is None:
                        x[:, place] = 0
            elif column.mean is not None:
                x[:, at].nan_to_num_(nan=column.mean)
            at += column.width
        return x


def by_name(given: Any) -> dict[str, Any] | None:
    """The columns of a data frame or a dictionary by name; None: it is no table, or has no names."""
    if isinstance(given, Mapping):
        return {str(name): values for name, values in given.items()}
    if not (hasattr(given, "columns") and hasattr(given, "to_numpy")):
        return None
    names = list(given.columns)
    if names == list(range(len(names))):  # an array that was made a data frame
        return None
    return {str(name): given[name].to_numpy() for name in names}


def refuse_odd_columns(table: Mapping[str, Any], origin: str) -> None:
    """Columns that are no lists of cells, such as one text, which is letters; or not all as long."""
    first = ""
    for name, cells in table.items():
        listed = hasattr(cells, "__len__") and not isinstance(cells, str | bytes | Mapping)
        if not listed or getattr(cells, "ndim", 1) == 0:
            raise UserError(
                f"{origin}: column {name!r} is {str(cells)[:40]!r}, no list; give a cell for every row"
            )
        first = first or name
        if len(cells) != len(table[first]):
            raise UserError(
                f"{origin}: column {name!r} has {len(cells)} rows, {first!r} has {len(table[first])}; "
                "they must agree"
            )


def from_rows(rows: Sequence[Mapping[str, Any]], origin: str) -> dict[str, list[Any]]:
    """Rows by the names of columns as columns; every row names the same."""
    names = list(rows[0])
    for number, row in enumerate(rows):
        if row.keys() != rows[0].keys():
            odd = min(row.keys() ^ rows[0].keys())
            raise UserError(
                f"{origin}: {str(odd)[:40]!r} is in input {number} or in the first, not in both"
            )
    return {name: [row[name] for row in rows] for name in names}


def _encoded(column: InputColumn, cells: Sequence[Any], origin: str, notes: list[str]) -> np.ndarray:
    """(n, width)"""
    if column.values:
        return _indicators(column, cells, notes)
    if column.width > 1:
        try:
            lists = np.stack([np.asarray(cell, dtype=np.float64) for cell in cells])
        except (TypeError, ValueError):
            lists = np.empty(0)
        if lists.shape != (len(cells), column.width):
            raise UserError(f"{origin}: {column.name} has no {column.width} numbers in every row")
        return lists
    found = np.empty((len(cells), 1))
    for row, cell in enumerate(cells):
        if _is_empty(cell) or (isinstance(cell, str) and says_missing(cell)):
            if column.mean is None:
                raise UserError(f"{_at(origin, cells, row)}: {column.name} is empty; fill it in")
            found[row] = column.mean
            continue
        try:
            found[row] = float(cell)
        except (TypeError, ValueError, OverflowError):
            said = f"{_at(origin, cells, row)}: {column.name} is {str(cell)[:40]!r}, which is no number"
            comma = isinstance(cell, str) and is_number(cell.replace(",", ".", 1))
            raise UserError(f"{said}{WITH_POINT if comma else ''}") from None
        if not math.isfinite(found[row, 0]):
            raise UserError(f"{_at(origin, cells, row)}: {column.name} is {str(cell)[:40]}, not finite")
    return found


def _at(origin: str, cells: Sequence[Any], row: int) -> str:
    """Where a cell stands: in a line of its file, or a row of what was given."""
    return f"{origin}:{cells.lines[row]}" if isinstance(cells, Cells) else f"{origin}: row {row + 1}"


def _indicators(column: InputColumn, cells: Sequence[Any], notes: list[str]) -> np.ndarray:
    place = {value: i for i, value in enumerate(column.values) if value is not None}
    found, unknown = np.zeros((len(cells), len(column.values))), set()
    for row, cell in enumerate(cells):
        text = "" if _is_empty(cell) else str(cell).strip()
        if text not in place and isinstance(cell, bool | np.bool_):  # as pandas reads yes and no
            text = next((value for value in place if value.lower() == text.lower()), text)
        if text in place:
            found[row, place[text]] = 1
        else:
            unknown.add(text)
    if unknown:
        notes.append(
            f"{column.name}: {min(unknown)[:40]!r} was not in the training data; all indicators of the "
            f"column are 0, as for {column.values[0]!r}"
        )
    return found[:, 1:]


def is_number(text: str) -> bool:
    """Whether a cell is written as a number."""
    try:
        float(text)
    except ValueError:
        return False
    return "_" not in text  # which Python would take, and no other program


def says_missing(text: str) -> bool:
    """Whether a cell of numbers is one of the words by which programs write that there is none."""
    return text.strip().casefold() in NOT_THERE


def _is_empty(cell: Any) -> bool:
    """As files, JSON and pandas have what is not there."""
    if isinstance(cell, str):
        return not cell.strip()
    return cell is None or (isinstance(cell, float) and math.isnan(cell)) or str(cell) in ("<NA>", "NaT")


def is_cell_of_text(cell: Any) -> bool:
    """Whether it is what files and pandas have in a column of text: text, a number, or nothing."""
    return isinstance(cell, str | Number | np.bool_) or _is_empty(cell)


def _as_text(cell: Any) -> str:
    """As it would stand in a file. pandas makes 12.0 of 12 where other cells are empty."""
    if _is_empty(cell):
        return ""
    if isinstance(cell, float | np.floating) and abs(number := float(cell)) < 2**53:
        return str(int(number)) if number.is_integer() else str(cell)
    return str(cell)


def _described(column: InputColumn) -> str:
    if column.words:
        return f"{column.name}: a text, its words and their pairs hashed into {column.width} numbers"
    if column.values:
        known = ", ".join("–" if value is None else repr(value) for value in column.values[1:])
        return f"{column.name}: 1 for its own value, else 0: {known} ({column.values[0]!r}: all 0)"
    many = "a number" if column.width == 1 else f"{column.width} numbers"
    return f"{column.name}: {many}" + ("" if column.mean is None else f" (empty: {column.mean:g})")
