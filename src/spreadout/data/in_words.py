"""Data in one short line, for whoever prints it."""

from __future__ import annotations

from collections.abc import Mapping

from spreadout.data.columns import Column, Dense, Lists, Sparse


def counted(number: int, what: str) -> str:
    """
    >>> counted(1, "client"), counted(1200, "class")
    ('1 client', '1,200 classes')
    """
    return f"{number:,} {what}" + ("" if number == 1 else "es" if what.endswith("s") else "s")


def inputs_in_words(columns: Mapping[str, Column]) -> str:
    """What an example has, column by column: "x: 13 numbers"."""
    return ", ".join(f"{name}: {_of(column)}" for name, column in columns.items() if name != "y")


def _of(column: Column) -> str:
    if isinstance(column, Dense):
        shape = tuple(column.values.shape[1:])
        numbers = "×".join(map(str, shape)) or "a number"
        return counted(shape[0], "number") if len(shape) == 1 else numbers
    if isinstance(column, Sparse):
        return f"{counted(column.width, 'number')}, few not 0"
    return "ids" if isinstance(column, Lists) else column.kind
