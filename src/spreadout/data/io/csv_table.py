"""A CSV file with a header as columns of cells: what ends a cell, and on which line a row stands."""

from __future__ import annotations

import codecs
import csv
import io
import re
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from itertools import chain
from pathlib import Path

from spreadout.core.errors import UserError
from spreadout.core.limits import refuse_bomb
from spreadout.data.io.archive import open_plain

MARKS = ",;\t|"  # what may end a cell
TABLE = re.compile(r"\.[ct]sv(\.gz|\.bz2)?$")  # names of such files
HEAD = 1 << 16  # bytes in which a header ends
MEASURED = re.compile(r"[-+]?\d*[.,]\d+([eE][-+]?\d+)?")
UTF_16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)


class Cells(list[str]):
    """A column as text, and the line of the file that each cell's row ends on."""

    def __init__(self, cells: Iterable[str], lines: Sequence[int]) -> None:
        super().__init__(cells)
        self.lines = lines

    def refuse_empty(self, path: Path, name: str) -> None:
        """Every cell of such a column must say something."""
        empty = [line for line, cell in zip(self.lines, self, strict=True) if not cell]
        if empty:
            more = f" in {len(empty):,} of {len(self):,} rows" if len(empty) > 1 else ""
            those = "them" if more else "the row"
            raise UserError(f"{path}:{empty[0]}: {name} is empty{more}; fill it in or drop {those}")


def text_of(path: Path, encoding: str | None = None) -> str:
    """The text of a file: UTF-8, or UTF-16 where its first bytes say so.

    encoding: of a file that is neither; None: it is refused, since letters are not guessed.
    """
    with open_plain(path) as stream:
        payload = stream.read()
    refuse_bomb(path, len(payload), path.stat().st_size)
    if payload.startswith(UTF_16):
        return payload.decode("utf-16", "replace")
    try:
        return payload.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        if encoding is not None:
            return payload.decode(encoding, "replace")
        line = payload.count(b"\n", 0, error.start) + 1
        raise UserError(
            f"{path}:{line}: is no text in UTF-8; save it as UTF-8, or say what it is in: "
            f'data.source.encoding = "{encoding_of(path)}"'
        ) from None


def encoding_of(path: Path) -> str | None:
    """What a text is likely in that is no UTF-8; None: it is, or its first bytes say what it is in."""
    for encoding in ("utf-8", "cp1252"):
        decoder = codecs.getincrementaldecoder(encoding)()
        with open_plain(path) as stream:
            chunks = iter(lambda: stream.read(HEAD), b"")
            first = next(chunks, b"")
            if first.startswith(UTF_16):
                return None
            try:
                for chunk in chain([first], chunks):
                    decoder.decode(chunk)
                decoder.decode(b"", final=True)
            except UnicodeDecodeError:
                continue
        return None if encoding == "utf-8" else encoding
    return "latin-1"  # which takes any bytes


def head_of(path: Path, encoding: str | None = None) -> str:
    """The first lines of a file, to see what it is: letters that cannot be read are replaced."""
    with open_plain(path) as stream:
        raw = stream.read(HEAD)
    if raw.startswith(UTF_16):
        return raw.decode("utf-16", "replace")
    try:
        return codecs.getincrementaldecoder("utf-8-sig")().decode(raw)  # whose last letter may be cut
    except UnicodeDecodeError:
        return raw.decode(encoding or "utf-8", "replace")


def first_row(text: str, delimiter: str) -> list[str]:
    """The cells of the first line, or of as many as a quoted cell goes over; none if it is no CSV."""
    rows = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter)
    try:
        return [cell.strip() for cell in next(filter(None, rows), [])]
    except csv.Error:
        return []


def delimiter_in(head: str, names: Collection[str], own: str | None) -> str:
    """What ends cells in a file that has these columns: the run's own delimiter, or another with which
    the header has all of the names."""
    marks = dict.fromkeys((own, *MARKS) if own else MARKS)
    fits = (mark for mark in marks if set(names) <= set(first_row(head, mark)))
    line = head.partition("\n")[0]
    return next(fits, own if own and own in line else max(MARKS, key=line.count))


def columns_of_head(path: Path, delimiter: str, encoding: str | None = None) -> dict[str, Cells]:
    """Cells by column as far as the head of a file shows them; none if a row is longer than that.

    A table without rows is refused, and one with rows of other lengths than its header.
    """
    lines = _lines(head_of(path, encoding), path, delimiter)
    with open_plain(path) as stream:
        is_cut = len(stream.read(HEAD + 1)) > HEAD
    if is_cut:  # so may the last row be; a break in quotes ends none
        lines = lines[:-1]
        if sum(bool(row) for _, row in lines) < 2:
            return {}
    return _columns(lines, path, delimiter)


def columns_of(path: Path, delimiter: str, encoding: str | None = None) -> dict[str, Cells]:
    """Cells by column, as text."""
    if len(delimiter) != 1 or delimiter in '\r\n"\0':
        raise UserError(f"data.source.delimiter = {delimiter!r}: must be one character, and no quote")
    return columns_in(text_of(path, encoding), path, delimiter)


def columns_in(text: str, path: Path, delimiter: str, *, blank: bool = False) -> dict[str, Cells]:
    """The same of the text of a file; blank: a blank line is a row, too, with one empty cell."""
    return _columns(_lines(text, path, delimiter), path, delimiter, blank=blank)


def _columns(
    lines: Sequence[tuple[int, list[str]]], path: Path, delimiter: str, *, blank: bool = False
) -> dict[str, Cells]:
    """Cells by column of the rows of a CSV, which all have as many cells as its header."""
    start = next((at for at, (_, row) in enumerate(lines) if row), None)
    if start is None or not any(lines[start][1]):
        raise UserError(f"{path}: is empty; a table has a header and rows")
    first, header = lines[start][0], [name.strip() for name in lines[start][1]]
    if len(header) == 1 and (others := [mark for mark in MARKS if mark in header[0]]):
        raise UserError(
            f"{path}: is one column, {header[0][:40]!r}, if cells end at {delimiter!r}; set "
            f'data.source.delimiter = "{others[0]}"'.replace("\t", "\\t")
        )
    twice = [name for name, count in Counter(header).items() if count > 1]
    if twice:
        places = " and ".join(str(i) for i, name in enumerate(header, 1) if name == twice[0])
        called = f"are called {twice[0][:40]!r}" if twice[0] else "have no name"
        raise UserError(f"{path}:{first}: two columns {called} ({places}); rename one")
    body = [(number, row or [""]) for number, row in lines[start + 1 :] if row or blank]
    for number, row in body:
        if len(row) != len(header):
            raise UserError(f"{path}:{number}: {len(row)} fields instead of {len(header)}")
    if not body:
        raise UserError(f"{path}: has a header and no rows")
    numbers = [number for number, _ in body]
    columns = {
        name: Cells((row[i].strip() for _, row in body), numbers) for i, name in enumerate(header)
    }
    if sum(name in cells or _is_measured(name) for name, cells in columns.items()) > len(columns) / 2:
        raise UserError(
            f"{path}:{first}: is a row of data ({', '.join(header)[:40]} …), and a table has a header; "
            "put a line with the names of its columns before it"
        )
    return columns


def _is_measured(name: str) -> bool:
    """Whether it is a number that is not whole: nobody calls a column so."""
    return bool(MEASURED.fullmatch(name))


def _lines(text: str, path: Path, delimiter: str) -> list[tuple[int, list[str]]]:
    """The rows of a CSV, each with the line it ends on: blank lines and breaks in quotes count too."""
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter)
    try:
        return [(reader.line_num, row) for row in reader]
    except csv.Error as error:
        raise UserError(f"{path}: cannot be read as CSV ({error})") from None
