"""Your own interactions, one a row: who (user), what (item), when (time). CSV, or Parquet with an extra.

Users and items may be numbers or words, times numbers or ISO dates. Columns are found by name in the
header. Quoted CSV is read by Python's csv module, plain CSV by NumPy.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from spreadout.core.errors import UserError
from spreadout.core.randomness import Ints
from spreadout.data.io.archive import open_plain
from spreadout.data.io.text import Block, Tokens, blocks, cut
from spreadout.data.sources.base import FileSource, RawDataset, register_source
from spreadout.data.sources.timeline import BY_USER, Windows
from spreadout.data.sources.times import in_order


@register_source
class Interactions(Windows, FileSource):
    """A table of events as next-item examples."""

    about: ClassVar = "your events: user, item, time as CSV or Parquet"
    data_defaults: ClassVar = BY_USER
    name: str = "interactions"
    user: str = "user"
    item: str = "item"
    time: str = "time"
    delimiter: str = ","

    def parse(self, path: Path) -> RawDataset:
        wanted = (self.user, self.item, self.time)
        if path.suffix == ".parquet":
            columns = _parquet(path, wanted)
        else:
            columns = _csv(path, wanted, self.delimiter)
        user, item, time = columns
        if self.numbering == "published":
            return self.examples(_codes(user)[0], _published(path, item), in_order(path, time))
        codes, names = _codes(item)
        titles = dict(enumerate(names, 1))
        found = self.examples(_codes(user)[0], codes + 1, in_order(path, time), titles)
        return replace(found, class_ids=found.class_names)


def _codes(values: np.ndarray) -> tuple[Ints, list[str]]:
    """Numbers 0 … n−1 by ascending value, and the values as text."""
    if values.dtype.kind == "S" and values.dtype.itemsize <= 18 and np.char.isdigit(values).all():
        numbers = values.astype(np.int64)
        if (numbers.astype(values.dtype) == values).all():  # 007 and 7 are two
            values = numbers  # 10 comes after 9, not after 1
    distinct, codes = np.unique(values, return_inverse=True)
    names = [v.decode("utf-8", "replace") if isinstance(v, bytes) else str(v) for v in distinct.tolist()]
    return codes.astype(np.int64), names


def _published(path: Path, item: np.ndarray) -> Ints:
    try:
        if item.dtype.kind == "f":
            raise ValueError
        return item.astype(np.int64)
    except (ValueError, OverflowError):
        raise UserError(
            f"{path}: data.source.numbering = 'published' needs items that are whole numbers"
        ) from None


def _csv(path: Path, wanted: Sequence[str], delimiter: str) -> list[np.ndarray]:
    if len(delimiter.encode()) != 1:
        raise UserError(f"data.source.delimiter = {delimiter!r}: must be one character")
    with open_plain(path) as stream:
        first = stream.readline(1 << 16).decode("utf-8-sig", "replace").rstrip("\r\n")
        header = next(csv.reader([first], delimiter=delimiter), [])
        for name in wanted:
            if name not in header:
                raise UserError(
                    f"{path}:1: no column {name!r}; the header has {', '.join(header)[:80]!r}: set "
                    "data.source.user, .item and .time"
                )
        places = [header.index(name) for name in wanted]
        parts, rest = [], blocks(stream, str(path), skip_lines=1)
        for block in rest:
            if b'"' in block.text:  # a quoted field may go over several lines, and blocks
                parts.append(_quoted(block, rest, places, len(header), delimiter))
            else:
                parts.append(_cells(block, places, len(header), delimiter))
    if not parts or not len(parts[0][0]):
        raise UserError(f"{path}: has a header and no rows")
    return [np.concatenate(column) for column in zip(*parts, strict=True)]


def _cells(block: Block, places: Sequence[int], width: int, delimiter: str) -> list[np.ndarray]:
    """The wanted columns of a block as byte strings."""
    tokens = cut(block, delimiter.encode(), empty=True)
    count = np.bincount(tokens.line, minlength=tokens.lines)
    blank = (count == 1) & (width > 1)  # nothing but a newline
    first = np.cumsum(count) - count  # the first token of each line
    blank &= (tokens.end == tokens.start)[np.minimum(first, max(len(tokens) - 1, 0))]
    bad = np.flatnonzero((count != width) & ~blank)
    if len(bad):
        raise block.error(int(tokens.start[first[bad[0]]]), f"{count[bad[0]]} fields instead of {width}")
    start = first[~blank]
    cells = []
    for place in places:
        which = start + place
        hollow = np.flatnonzero(tokens.end[which] == tokens.start[which])
        if len(hollow):
            raise block.error(int(tokens.start[which[hollow[0]]]), f"column {place + 1} is empty")
        cells.append(_strings(tokens, which))
    return cells


def _strings(tokens: Tokens, which: Ints) -> np.ndarray:
    """Tokens as one array of byte strings, gathered without a loop over them."""
    start, length = tokens.start[which], (tokens.end - tokens.start)[which]
    longest = int(length.max(initial=1))
    raw = np.frombuffer(tokens.block.text, dtype=np.uint8)
    letters = np.zeros((len(which), longest), dtype=np.uint8)
    for place in range(longest):
        inside = length > place
        letters[inside, place] = raw[start[inside] + place]
    return letters.view(f"S{longest}")[:, 0]


def _quoted(
    block: Block, rest: Iterator[Block], places: Sequence[int], width: int, delimiter: str
) -> list[np.ndarray]:
    """From a block with quotes in it to the end of the file, by Python's own reader."""
    found: list[list[bytes]] = [[] for _ in places]
    lines = (line for part in chain([block], rest) for line in part.text.splitlines(keepends=True))
    reader = csv.reader((line.decode("utf-8", "replace") for line in lines), delimiter=delimiter)
    try:
        for row in reader:
            if not row:
                continue
            number = block.first_line + reader.line_num - 1
            if len(row) != width:
                raise UserError(f"{block.name}:{number}: {len(row)} fields instead of {width}")
            for column, place in zip(found, places, strict=True):
                if not row[place]:
                    raise UserError(f"{block.name}:{number}: column {place + 1} is empty")
                column.append(row[place].encode())
    except csv.Error as error:
        number = block.first_line + reader.line_num - 1
        raise UserError(f"{block.name}:{number}: cannot be read as CSV ({error})") from None
    return [np.array(column, dtype=np.bytes_) for column in found]


def _parquet(path: Path, wanted: Sequence[str]) -> list[np.ndarray]:
    try:
        import pyarrow as arrow  # type: ignore[import-untyped]
        from pyarrow import parquet
    except ImportError:
        raise UserError(
            f"{path}: reading Parquet needs an extra: pip install 'spreadout[parquet]'"
        ) from None
    try:
        known = parquet.read_schema(path).names
        for name in wanted:
            if name not in known:
                raise UserError(
                    f"{path}: no column {name!r}, but {', '.join(known)[:80]!r}: set data.source.user, "
                    ".item and .time"
                )
        table: Any = parquet.read_table(path, columns=list(wanted))
    except (arrow.ArrowException, OSError) as error:
        raise UserError(f"{path}: not a readable Parquet file ({str(error).splitlines()[0]})") from None
    if not table.num_rows:
        raise UserError(f"{path}: has no rows")
    columns = []
    for name in wanted:
        column = table.column(name)
        if column.null_count:
            raise UserError(f"{path}: column {name!r} has {column.null_count} empty cells; drop them")
        values = column.to_numpy()
        if values.dtype.kind == "O":
            values = np.array([str(v).encode() for v in values.tolist()], dtype=np.bytes_)
        columns.append(values)
    return columns
