"""Numbers with a decimal comma (3,14), as tables of many countries have them, written with a point."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from spreadout.core.errors import UserError
from spreadout.data.input_columns import is_number, says_missing
from spreadout.data.io.csv_table import Cells

COMMA = re.compile(r"[-+]?(\d+,\d*|,\d+)([eE][-+]?\d+)?")
THOUSANDS = re.compile(r"[-+]?[1-9]\d{0,2}(,\d{3})+")  # 1,234: may be a whole number


def pointed(path: Path, name: str, cells: Cells) -> Cells:
    """The column with points for decimal commas. A column of numbers may not have both: 1.234 among them
    may be a thousand."""
    given = [cell for cell in cells if cell and not says_missing(cell)]
    if all(is_number(cell) or COMMA.fullmatch(cell) for cell in given):
        for line, cell in zip(cells.lines, cells, strict=True):
            if "." in cell:
                raise UserError(
                    f"{path}:{line}: {name} is {cell[:40]!r}: numbers of this table have a decimal "
                    "comma (data.source.decimal); write it so, without points"
                )
    return Cells((with_point(cell) for cell in cells), cells.lines)


def with_point(cell: str) -> str:
    """A number with a decimal comma with a point; anything else as it is."""
    return cell.replace(",", ".") if COMMA.fullmatch(cell) else cell


def have_comma(columns: Iterable[Cells]) -> bool:
    """Whether numbers of these columns have a decimal comma: some cells say so, none the contrary."""
    cells = [cell for column in columns for cell in column if cell and not says_missing(cell)]
    commas = [cell for cell in cells if COMMA.fullmatch(cell)]
    if not commas or all(THOUSANDS.fullmatch(cell) for cell in commas):
        return False
    return not any("." in cell and is_number(cell) for cell in cells)
