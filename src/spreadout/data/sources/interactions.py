"""Your own interactions, one a row: who (user), what (item), when (time). CSV, or Parquet with an extra.

Users and items may be numbers or words. Times are numbers, or ISO dates, which sort as text. Columns are
found by name in the header. Quoted CSV is read by Python's csv module, plain CSV by NumPy.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np

from spreadout.data.archive import open_plain
from spreadout.data.sources.base import Labelled, Source
from spreadout.data.sources.timeline import BY_USER, Windows
from spreadout.data.text import Block, Tokens, blocks, cut
from spreadout.errors import UserError
from spreadout.randomness import Ints

ISO_DATE = re.compile(rb"\d{4}-\d{2}-\d{2}")


class Interactions(Windows, Source):
    """A table of events as next-item examples."""

    natural: ClassVar[Mapping[str, Any]] = BY_USER
    name: Literal["interactions"] = "interactions"
    user: str = "user"
    item: str = "item"
    time: str = "time"
    delimiter: str = ","

    def parse(self, path: Path) -> Labelled:
        wanted = (self.user, self.item, self.time)
        if path.suffix == ".parquet":
            columns = _parquet(path, wanted)
        else:
            columns = _csv(path, wanted, self.delimiter)
        user, item, time = columns
        if self.numbering == "published":
            return self.examples(_codes(user)[0], _published(path, item), _order(path, time))
        codes, names = _codes(item)
        return self.examples(_codes(user)[0], codes + 1, _order(path, time), ("", *names))


def _codes(values: np.ndarray) -> tuple[Ints, list[str]]:
    """Numbers 0 … n−1 by ascending value, and the values as text."""
    if values.dtype.kind == "S" and all(v.isdigit() for v in values[:1000].tolist()):
        numeric = np.char.isdigit(values)
        if numeric.all():
            values = values.astype(np.int64)  # 10 comes after 9, not after 1
    distinct, codes = np.unique(values, return_inverse=True)
    names = [v.decode("utf-8", "replace") if isinstance(v, bytes) else str(v) for v in distinct.tolist()]
    return codes.astype(np.int64), names


def _published(path: Path, item: np.ndarray) -> Ints:
    try:
        return item.astype(np.int64)
    except ValueError:
        raise UserError(
            f"{path}: data.source.numbering = 'published' needs items that are whole numbers"
        ) from None


def _order(path: Path, time: np.ndarray) -> np.ndarray:
    """Times as something that sorts: numbers, or ISO dates as the text they are."""
    if time.dtype.kind != "S":
        return time
    if not ISO_DATE.match(time[0]):
        try:
            return time.astype(np.float64)
        except ValueError:
            pass
    odd = [v for v in time.tolist() if not ISO_DATE.match(v)]
    if odd:
        words = [v for v in odd if not re.fullmatch(rb"[-+.\d]+", v)] or odd
        shown = words[0].decode("utf-8", "replace")
        raise UserError(f"{path}: time {shown!r} is neither a number nor an ISO date (2024-05-31 …)")
    return time


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
        parts = [
            _cells(block, places, len(header), delimiter)
            for block in blocks(stream, str(path), skip_lines=1)
        ]
    if not parts:
        raise UserError(f"{path}: has a header and no rows")
    return [np.concatenate(column) for column in zip(*parts, strict=True)]


def _cells(block: Block, places: Sequence[int], width: int, delimiter: str) -> list[np.ndarray]:
    """The wanted columns of a block as byte strings."""
    if b'"' in block.text:
        return _quoted(block, places, width, delimiter)
    tokens = cut(block, delimiter.encode())
    count = np.bincount(tokens.line, minlength=tokens.lines)
    if (count[count > 0] != width).any():
        bad = int(np.flatnonzero((count > 0) & (count != width))[0])
        at = int(tokens.start[np.flatnonzero(tokens.line == bad)[0]])
        raise block.error(at, f"{count[bad]} filled fields instead of {width}")
    return [_strings(tokens, np.arange(place, len(tokens), width)) for place in places]


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


def _quoted(block: Block, places: Sequence[int], width: int, delimiter: str) -> list[np.ndarray]:
    found: list[list[bytes]] = [[] for _ in places]
    reader = csv.reader(io.StringIO(block.text.decode("utf-8", "replace")), delimiter=delimiter)
    for row in reader:
        if not row:
            continue
        if len(row) != width or not all(row[place] for place in places):
            number = block.first_line + reader.line_num - 1
            raise UserError(
                f"{block.name}:{number}: {len(row)} fields instead of {width}, or an empty one"
            )
        for column, place in zip(found, places, strict=True):
            column.append(row[place].encode())
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
        table: Any = parquet.read_table(path, columns=list(wanted))
    except (arrow.ArrowException, OSError) as error:
        raise UserError(f"{path}: not a readable Parquet file ({str(error).splitlines()[0]})") from None
    columns = []
    for name in wanted:
        if name not in table.column_names:
            raise UserError(
                f"{path}: no column {name!r}: set data.source.user, .item and .time to those it has"
            )
        column = table.column(name)
        if column.null_count:
            raise UserError(f"{path}: column {name!r} has {column.null_count} empty cells; drop them")
        values = column.to_numpy()
        if values.dtype.kind == "O":
            values = np.array([str(v).encode() for v in values.tolist()], dtype=np.bytes_)
        columns.append(values)
    return columns
