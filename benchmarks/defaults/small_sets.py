"""Small sets: a few rows of a published training part to train on, its other rows to judge by."""

from __future__ import annotations

import random
from pathlib import Path

MOST = 2000  # rows to judge by


def drawn(folder: Path, rows: int, seed: int, place: Path) -> Path:
    """A folder with so many rows of the set as its training part and others as its test part."""
    (source,), (labels,) = folder.glob("*.arff"), folder.glob("*.xml")
    head, lines = _halves(source.read_text().splitlines())
    random.Random(f"{folder.name} {rows} {seed}").shuffle(lines)
    out = place / f"{folder.name}-{rows}-{seed}"
    out.mkdir(parents=True)
    for part, some in (("train", lines[:rows]), ("test", lines[rows : rows + MOST])):
        (out / f"{folder.name}-{part}.arff").write_text("\n".join([*head, *some, ""]))
    (out / f"{folder.name}.xml").write_bytes(labels.read_bytes())
    return out


def some_rows(folder: Path, rows: int, seed: int, place: Path) -> Path:
    """A folder with so many rows of a set that is one file with a class a row; a seed draws the same."""
    (source,) = folder.glob("*.arff")
    head, lines = _halves(source.read_text().splitlines())
    random.Random(f"{folder.name} {rows} {seed}").shuffle(lines)
    out = place / f"{folder.name}-{rows}-{seed}"
    out.mkdir(parents=True, exist_ok=True)
    (out / source.name).write_text("\n".join([*head, *lines[:rows], ""]))
    return out


def _halves(lines: list[str]) -> tuple[list[str], list[str]]:
    """The header with its @data, and the rows."""
    at = next(i for i, line in enumerate(lines) if line.strip().lower() == "@data") + 1
    return lines[:at], [line for line in lines[at:] if line.strip() and not line.startswith("%")]
