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
from typing import ClassVar

import numpy as np

from spreadout.core.errors import UserError
from spreadout.core.limits import refuse_bomb
from spreadout.core.randomness import Ints
from spreadout.data.io.archive import open_plain
from spreadout.data.io.csv_table import UTF_16, delimiter_in
from spreadout.data.io.text import Block, Tokens, blocks, cut
from spreadout.data.sources.base import FileSource, RawDataset, register_source
from spreadout.data.sources.cells import LONGEST_CELL, TOO_LONG, as_bytes, refuse_wide
from spreadout.data.sources.parquet import read_parquet
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
            columns = read_parquet(path, wanted)
        else:
            columns = read_csv(path, wanted, self.delimiter)
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


def read_csv(path: Path, wanted: Sequence[str], delimiter: str) -> list[np.ndarray]:
    """These columns, found by name in the header, as byte strings."""
    if len(delimiter.encode("utf-8", "replace")) != 1 or delimiter in '\r\n"\0':
        raise UserError(f"data.source.delimiter = {delimiter!r}: must be one character, and no quote")
    with open_plain(path) as stream:
        if stream.peek(2).startswith(UTF_16):  # type: ignore[attr-defined]
            raise UserError(f"{path}: is text in UTF-16; save it as UTF-8")
        first = stream.readline(1 << 16).decode("utf-8-sig", "replace").rstrip("\r\n")
        header = _header(first, delimiter, path)
        for name in wanted:
            if name not in header:
                mark = delimiter_in(first, wanted, delimiter)
                remedy = (
                    f'.delimiter = "{mark}"'.replace("\t", "\\t")
                    if set(wanted) <= set(_header(first, mark, path))
                    else ".user, .item and .time"
                )
                raise UserError(
                    f"{path}:1: no column {name!r}; the header has {', '.join(header)[:80]!r}: set "
                    f"data.source{remedy}"
                )
        places = [header.index(name) for name in wanted]
        parts, rest = [], blocks(stream, str(path), skip_lines=1)
        for block in rest:
            if b'"' in block.text:  # a quoted field may go over several lines, and blocks
                parts.append(_quoted(block, rest, places, len(header), delimiter))
            else:
                parts.append(_cells(block, places, len(header), delimiter))
            refuse_wide(path, parts)
    if not parts or not len(parts[0][0]):
        raise UserError(f"{path}: has a header and no rows")
    return [np.concatenate(column) for column in zip(*parts, strict=True)]


def _header(line: str, delimiter: str, path: Path) -> list[str]:
    try:
        return next(csv.reader([line], delimiter=delimiter), [])
    except csv.Error as error:
        raise UserError(f"{path}:1: cannot be read as CSV ({error})") from None


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
        length = tokens.end[which] - tokens.start[which]
        for bad, problem in ((length == 0, "is empty"), (length > LONGEST_CELL, TOO_LONG)):
            if bad.any():
                at = int(tokens.start[which[np.flatnonzero(bad)[0]]])
                raise block.error(at, f"column {place + 1} {problem}")
        cells.append(_strings(tokens, which))
    return cells


def _strings(tokens: Tokens, which: Ints) -> np.ndarray:
    """Tokens as one array of byte strings, gathered without a loop over them."""
    start, length = tokens.start[which], (tokens.end - tokens.start)[which]
    longest = int(length.max(initial=1))
    refuse_bomb(tokens.block.name, longest * len(which), len(tokens.block.text))
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
    # Bytes that are no UTF-8 stay what they are, so that no two items become one.
    text = (line.decode("utf-8", "surrogateescape") for line in lines)
    reader = csv.reader(text, delimiter=delimiter)
    try:
        for row in reader:
            if not row:
                continue
            number = block.first_line + reader.line_num - 1
            if len(row) != width:
                raise UserError(f"{block.name}:{number}: {len(row)} fields instead of {width}")
            for column, place in zip(found, places, strict=True):
                cell = row[place].encode("utf-8", "surrogateescape")
                if not cell or len(cell) > LONGEST_CELL:
                    problem = TOO_LONG if cell else "is empty"
                    raise UserError(f"{block.name}:{number}: column {place + 1} {problem}")
                column.append(cell)
    except csv.Error as error:
        number = block.first_line + reader.line_num - 1
        raise UserError(f"{block.name}:{number}: cannot be read as CSV ({error})") from None
    return [as_bytes(column, block.name) for column in found]
