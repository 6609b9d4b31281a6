"""What the papers printed (`published.toml`), as values."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

FILE = Path(__file__).with_suffix(".toml")


@dataclass(frozen=True)
class Row:
    """A line of a paper's table, and the arm of a result file that is its counterpart, if any."""

    label: str
    paper: tuple[float, ...]  # one for each metric of the table
    result: str = ""  # below results/
    variant: str = ""
    reference: bool = False  # not the method of the page
    why: str = ""


@dataclass(frozen=True)
class Table:
    """A paper's table: how cells are named there and, where that differs, in our files."""

    page: str
    source: str
    of: str
    metrics: tuple[str, ...]
    rows: tuple[Row, ...]
    data: str = ""  # what ours was trained on, beside the paper's
    columns: dict[str, str] = field(default_factory=dict)
    relative_to: str = ""  # figures are shares of this row's, in percent
    times: str = ""  # figures are this arm's over the row's own
    digits: int = 1


@cache
def tables() -> dict[str, Table]:
    return {name: _table(said) for name, said in tomllib.loads(FILE.read_text("utf-8")).items()}


def _table(said: dict[str, object]) -> Table:
    rows = said.pop("rows")
    assert isinstance(rows, list)
    made = tuple(Row(**{**row, "paper": tuple(row["paper"])}) for row in rows)
    return Table(**{**said, "metrics": tuple(said["metrics"]), "rows": made})  # type: ignore[arg-type]


def figures_of(table: str) -> dict[str, tuple[float, ...]]:
    """A table's figures by the labels of its rows."""
    return {row.label: row.paper for row in tables()[table].rows}
