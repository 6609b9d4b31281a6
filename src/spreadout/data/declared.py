"""Of private rows a model may carry what was declared, and nothing that was found in them.

A mean tells the last row to whoever knows the others, and a list of values that rows have tells that one
of them is there. Noise on updates hides neither.
"""

from __future__ import annotations

from pathlib import Path

import torch

from spreadout.core.errors import UserError
from spreadout.data.input_columns import InputColumns
from spreadout.data.sources.base import RawDataset


def refuse_found_in_rows(found: RawDataset, where: Path | str) -> None:
    """Raise an error, with the remedy, for the first thing that reading took from rows."""
    for said in found.found_in_rows:
        raise UserError(f"{where}: {said}")
    if found.input_columns is not None:
        _refuse_values(found.input_columns, where)
        for part in (found.train, found.test):
            if part is not None and found.input_columns.text is None:
                every = part.columns["x"].take(torch.arange(len(part)))
                _refuse_empty(found.input_columns, every, where)


def refuse_fitted(columns: InputColumns | None) -> None:
    """The same of data that was loaded before."""
    for column in () if columns is None else columns.columns:
        if column.tells:
            raise UserError(
                f"data: column {column.name!r} carries {column.tells}, which the model would tell; with "
                "[privacy] load the data by so.load_data(…, private=True)"
            )


def _refuse_values(columns: InputColumns, where: Path | str) -> None:
    for column in columns.columns:
        if column.values and column.tells:
            raise UserError(
                f"{where}: column {column.name!r} is text, and the model would tell {column.tells}; "
                f'with [privacy] declare all of them, data.source.values.{column.name} = ["…", "…"], or '
                "leave the column out with data.source.features"
            )


def _refuse_empty(columns: InputColumns, x: torch.Tensor, where: Path | str) -> None:
    """x: (n, D), NaN where a cell is empty."""
    empty, at = x.isnan().sum(0).tolist(), 0
    for column in columns.columns:
        if missing := sum(empty[at : at + column.width]):
            raise UserError(
                f"{where}: column {column.name!r} has {missing} empty cells, and a mean that fills them "
                "tells of its rows; with [privacy] fill them yourself by a public value, or leave the "
                "column out with data.source.features"
            )
        at += column.width
