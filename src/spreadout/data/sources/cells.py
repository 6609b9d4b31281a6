"""Columns of names as arrays of byte strings, all with room for the longest of them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from spreadout.core.limits import refuse_bomb

LONGEST_CELL = 1 << 10  # bytes of a user's or item's name
TOO_LONG = f"is longer than {LONGEST_CELL:,} bytes"


def refuse_wide(path: Path, parts: Sequence[Sequence[np.ndarray]]) -> None:
    """All cells of a column take as much as the longest: one long one among many is a bomb."""
    for column in zip(*parts, strict=True):
        longest = max(part.dtype.itemsize for part in column)
        refuse_bomb(path, longest * sum(map(len, column)), path.stat().st_size)


def as_bytes(cells: Sequence[bytes], name: str) -> np.ndarray:
    """Byte strings as one array, each with room for the longest."""
    longest, total = max(map(len, cells), default=1), sum(map(len, cells))
    refuse_bomb(name, longest * len(cells), total)
    return np.array(cells, dtype=f"S{max(longest, 1)}")
