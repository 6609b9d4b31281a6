"""A column of labels: a class in each cell, or several; what holds no classes is refused."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import torch

from spreadout.core.errors import UserError
from spreadout.core.ragged import Ragged, offsets_from_lengths
from spreadout.data.decimals import with_point
from spreadout.data.input_columns import is_number, says_missing
from spreadout.data.io.csv_table import Cells
from spreadout.data.naming import FEW_NUMBERS, numbered

WHOLE = re.compile(r"(0|-?[1-9][0-9]{0,17})(\.0+)?")  # as programs write whole numbers, below 2^63
MOSTLY = {"|": 0.6, ";": 0.6, ",": 0.8}  # of the parts of such cells, those that are labels elsewhere
MANY_ROWS = 20  # from here on it is no accident that all labels differ
FEW_EACH = 5  # rows a class, below which whole numbers may well be a quantity
OWN = 0.9  # different labels a row, from which on they name rows


def label_sets(
    path: Path, name: str, cells: Cells, separator: str | None, notes: list[str]
) -> tuple[Ragged, tuple[str, ...]]:
    """One label a row, or a set of them, which may be empty, where something parts them; their names."""
    if separator is None:
        cells.refuse_empty(path, name)
        notes += _notes(name, cells)
        refuse_no_classes(path, name, cells)
    sets = [parts_of(cell, separator) for cell in cells]
    every = [label for own in sets for label in own]
    if not every:
        raise UserError(f"{path}: column {name!r} is empty; set data.source.label")
    (numbers,), names = numbered("label", plain(every))
    lengths = torch.tensor([len(own) for own in sets])
    return Ragged(offsets_from_lengths(lengths), torch.from_numpy(numbers)), names


def parts_of(cell: str, separator: str | None) -> list[str]:
    """The labels of a cell, each once."""
    if separator is None:
        return [cell]
    return list(dict.fromkeys(part for one in cell.split(separator) if (part := one.strip())))


def plain(cells: Sequence[str]) -> list[object]:
    """Whole numbers as numbers, so that 10 comes after 9, and 1.0 is 1."""
    if all(WHOLE.fullmatch(cell) for cell in cells):
        return [int(cell.partition(".")[0]) for cell in cells]
    return list(cells)


def refuse_no_classes(
    path: Path, name: str, cells: Sequence[str], key: str = "data.source.label"
) -> None:
    """A quantity, or a name of every row. key: where another column is named."""
    distinct = len(set(cells))
    numbers = all(is_number(with_point(cell)) for cell in cells)
    fractions = numbers and not all(WHOLE.fullmatch(cell) for cell in cells)
    many = len(cells) >= MANY_ROWS and distinct >= OWN * len(cells)
    if fractions and (distinct > FEW_NUMBERS or many):
        raise UserError(
            f"{path}: {name} looks like a quantity ({distinct} different numbers with fractions in "
            f"{len(cells)} rows), and classes are needed: cut it into ranges, or name another column by "
            f"{key}"
        )
    if many:
        kind = "a quantity, or a name of each row" if numbers else "a name of each row"
        joint = joint_of(cells)
        parted = f', or part labels by data.source.separator = "{joint}"' if joint else ""
        raise UserError(
            f"{path}: {name} looks like {kind} ({distinct} different values in {len(cells)} rows), and "
            f"nobody can learn a class from one example: name another column by {key}{parted}"
        )


def joint_of(cells: Sequence[str]) -> str | None:
    """What parts several labels in a cell, if cells say so; a comma in a name does not."""
    return next((mark for mark in MOSTLY if _joins(cells, mark)), None)


def _joins(cells: Sequence[str], mark: str) -> bool:
    """Whether most parts of the cells that have this mark are labels on their own, too.

    Sets of which none has one label show no such parts. A bar or a semicolon, which names hardly have,
    joins labels also if most parts meet several others and some stand first here and later there, as
    in a|b, b|c, a|c. Of a comma that is not enough: Thomas, Dylan; Smith, Thomas.
    """
    rows = [[part.strip() for part in cell.split(mark)] for cell in cells if mark in cell]
    sets = {tuple(row) for row in rows}
    if len(sets) < 2 or any(len(set(one)) < len(one) or "" in one for one in sets):
        return False
    if all(is_number(part) for one in sets for part in one) and _are_decimals(sets, mark):
        return False
    alone = {cell for cell in cells if mark not in cell}
    parts = [part for row in rows for part in row]
    if sum(part in alone for part in parts) >= MOSTLY[mark] * len(parts):
        return True
    met = Counter(part for one in sets for part in one)
    moved = {one[0] for one in sets} & {part for one in sets for part in one[1:]}
    often = sum(met[part] > 1 or part in alone for part in parts) >= MOSTLY[mark] * len(parts)
    return mark != "," and often and bool(moved)


def _are_decimals(sets: set[tuple[str, ...]], mark: str) -> bool:
    """1,5 and 2,5: steps of a half or a quarter, beside whole numbers."""
    return mark == "," and all(len(one) == 2 for one in sets) and len({one[1] for one in sets}) <= 3


def _notes(name: str, cells: Sequence[str]) -> list[str]:
    """A word for what is missing may also be a name: it is one class more, and said to be. So is a cell
    that looks like several labels."""
    notes = []
    if words := [cell for cell in cells if says_missing(cell)]:
        notes.append(
            f"{name}: {words[0]!r} is a class of its own ({len(words)} rows); drop them if it is none"
        )
    distinct = len(set(cells))
    if distinct > FEW_NUMBERS and len(cells) < FEW_EACH * distinct and all(map(WHOLE.fullmatch, cells)):
        notes.append(
            f"{name}: {distinct} different numbers in {len(cells)} rows are a class each; if they are a "
            "quantity, cut it into ranges"
        )
    if (joint := joint_of(cells)) is not None:
        one = next(cell for cell in cells if joint in cell)
        notes.append(
            f"{name}: {one[:40]!r} is one class, and looks like several; if it is, set "
            f'data.source.separator = "{joint}"'
        )
    return notes
