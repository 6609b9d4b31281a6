"""The rows of an ARFF file, dense or sparse, as cells (row, attribute, value).

A nominal value is its place among those declared, from 0: what a sparse row leaves out is 0 for numbers
and nominal attributes alike. A missing value (`?`) is NaN. Files of nothing but numbers are cut a block
at a time; words, quotes and question marks take the slow way, line by line. Both read the same. Weka's
weight of a row, a number in braces at its end, is passed over; the lines that have one are kept.
"""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import IO

import numpy as np

from spreadout.core.errors import UserError
from spreadout.core.randomness import Ints
from spreadout.data.io.text import LARGEST, NUMERIC, Block, Floats, Tokens, blocks, cut, joined, whole
from spreadout.data.sources.arff import QUOTED, Attribute, Header, decoded, plain

OPEN, CLOSE, SPACE, NEWLINE = (ord(c) for c in "{} \n")
_TOKEN = re.compile(rf"\s*(?:({QUOTED}|[^\s,{{}}'\"%][^\s,{{}}]*)|([,{{}}])|(%.*)|(\S))", re.DOTALL)
_NUMBER = r"\+?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?"  # of a weight
_WEIGHT = re.compile(rf"(?<=[^\n]),?\{{{_NUMBER}\}}(?=\n)".encode())
_FAST = NUMERIC.copy()
_FAST[list(b"{} ,\n")] = True


@dataclass(frozen=True)
class Cells:
    row: Ints  # (cells,) ascending
    attribute: Ints  # (cells,)
    value: Floats  # (cells,)
    row_lines: Ints  # (rows,) the line each row stands in
    weighted: Ints  # lines whose row has a weight


def read_cells(stream: IO[bytes], label: str, header: Header) -> Cells:
    """The rest of a stream whose header was read."""
    fast = all(a.kind == "number" or a.by_number is not None for a in header.attributes)
    parts, rows = [], 0
    for block in blocks(stream, label, skip_lines=header.lines):
        tidy = _tidy(block)
        if fast and _FAST[np.frombuffer(tidy.text, dtype=np.uint8)].all():
            part = fast_cells(tidy, header.attributes)
        else:
            part = slow_cells(block, header.attributes)
        parts.append(replace(part, row=part.row + rows))
        rows += len(part.row_lines)
    if not parts:
        return _cells([], [], [], [], [])
    found = joined(parts)
    _refuse_twice(found, label, header)
    return found


def _refuse_twice(cells: Cells, label: str, header: Header) -> None:
    key = cells.row * len(header.attributes) + cells.attribute
    order = np.arange(len(key)) if (np.diff(key) > 0).all() else np.argsort(key, kind="stable")
    same = np.flatnonzero(np.diff(key[order]) == 0)
    if len(same):
        at = order[same[0]]
        line, name = cells.row_lines[cells.row[at]], header.attributes[cells.attribute[at]].name
        raise UserError(f"{label}:{line}: gives attribute {cells.attribute[at]} ({name!r}) twice")


def fast_cells(block: Block, attributes: tuple[Attribute, ...]) -> Cells:
    """The cells of a tidy block of nothing but numbers."""
    block, weighted = _without_weights(block)
    for gap in (b",,", b"{,", b",}", b",\n", b"\n,"):
        if (at := block.text.find(gap)) >= 0:
            raise block.error(at + (gap[:1] == b"\n"), "a value is missing")
    if block.text[:1] == b",":
        raise block.error(0, "a value is missing")
    raw = np.frombuffer(block.text, dtype=np.uint8)
    ends = np.flatnonzero(raw == NEWLINE)
    starts = np.concatenate([[0], ends[:-1] + 1]) if len(ends) else ends
    is_row = ends > starts
    sparse_line = is_row & (raw[starts] == OPEN)  # (lines,)
    closed = raw[np.maximum(ends - 1, 0)] == CLOSE
    for bad, problem in (
        (sparse_line & ~closed, "a sparse row without its closing brace"),
        (_per_line(raw, OPEN, ends) != sparse_line, "an opening brace too many"),
        (_per_line(raw, CLOSE, ends) != sparse_line, "a closing brace too many"),
    ):
        if bad.any():
            raise block.error(int(starts[np.flatnonzero(bad)[0]]), problem)
    tokens = cut(block, b"{} ,")
    values = tokens.numbers()
    in_sparse = sparse_line[tokens.line]
    named = in_sparse & (tokens.after == SPACE)
    valued = in_sparse & (tokens.before == SPACE)
    tokens.refuse(in_sparse & (named == valued), "{} is not part of an `attribute value` pair")
    number = whole(tokens, values, named, "attribute")
    count = len(attributes)
    beyond = named.copy()
    beyond[named] = number >= count
    tokens.refuse(beyond, f"attribute {{}}, but there are {count} (counted from 0)")
    dense = ~in_sparse
    width = np.bincount(tokens.line[dense], minlength=tokens.lines)
    wrong = is_row & ~sparse_line & (width != count)
    if wrong.any():
        line = int(np.flatnonzero(wrong)[0])
        raise block.error(int(starts[line]), f"{width[line]} values for {count} attributes")
    attribute = np.zeros(len(tokens), dtype=np.int64)
    attribute[valued] = number
    attribute[dense] = np.arange(int(dense.sum())) % count
    is_value = valued | dense
    values = _places(tokens, attribute, values, is_value, attributes)
    row_of: Ints = np.cumsum(is_row) - is_row  # rows are counted without blank lines
    row = row_of[tokens.line[is_value]]
    lines = block.first_line + np.flatnonzero(is_row)
    return Cells(row, attribute[is_value], values[is_value], lines, weighted)


def _without_weights(block: Block) -> tuple[Block, Ints]:
    """A tidy block without the weights of its rows, and the lines that had one."""
    text = block.text
    if text.count(b"{") == text.count(b"\n{") + text.startswith(b"{"):  # all of them open a sparse row
        return block, np.zeros(0, dtype=np.int64)
    at = np.array([found.start() for found in _WEIGHT.finditer(text)], dtype=np.int64)
    ends = np.flatnonzero(np.frombuffer(text, dtype=np.uint8) == NEWLINE)
    lines: Ints = block.first_line + np.searchsorted(ends, at)
    return replace(block, text=_WEIGHT.sub(b"", text)), lines


def _per_line(raw: np.ndarray, character: int, ends: Ints) -> Ints:
    """How often each line has this character."""
    return np.diff(np.searchsorted(np.flatnonzero(raw == character), ends), prepend=0)


def _places(
    tokens: Tokens, attribute: Ints, values: Floats, is_value: np.ndarray, known: tuple[Attribute, ...]
) -> Floats:
    """Numbers as they are; of nominal attributes, the place of the value among those declared."""
    # Attributes with the same values are looked up together.
    alike = {a.values: a for a in known}
    number = {declared: k for k, declared in enumerate(alike)}
    kind_of = np.array([number[a.values] for a in known])
    kind = np.where(is_value, kind_of[attribute], -1)
    order = np.argsort(kind, kind="stable")
    cuts = np.searchsorted(kind[order], np.arange(len(alike) + 1))
    places = values.copy()
    for one, begin, end in zip(alike.values(), cuts, cuts[1:], strict=False):
        by_number = one.by_number
        if one.kind == "number" or by_number is None:
            continue
        cells = order[begin:end]
        declared = np.array(sorted(by_number))
        at = np.searchsorted(declared, values[cells]).clip(max=len(declared) - 1)
        bad = np.zeros(len(tokens), dtype=bool)
        bad[cells] = declared[at] != values[cells]
        if bad.any():
            which = known[attribute[np.flatnonzero(bad)[0]]]
            tokens.refuse(bad, f"{{}} is none of the values of {which.shown()}")
        places[cells] = np.array([by_number[value] for value in declared])[at]
    return places


def slow_cells(block: Block, attributes: tuple[Attribute, ...]) -> Cells:
    """The cells of any block, a line at a time."""
    row: list[int] = []
    attribute: list[int] = []
    value: list[float] = []
    lines: list[int] = []
    weighted: list[int] = []
    position = 0
    for number, raw in enumerate(block.text.split(b"\n")):
        try:
            tokens = _tokens(decoded(raw))
            if _has_weight(tokens):
                tokens = tokens[: -4 if tokens[-4] == "," else -3]
                weighted.append(block.first_line + number)
            if tokens:
                pairs = _pairs(tokens, len(attributes))
                cells = [(a, _value(attributes[a], token)) for a, token in pairs]
                row += [len(lines)] * len(cells)
                attribute += [a for a, _ in cells]
                value += [v for _, v in cells]
                lines.append(block.first_line + number)
        except ValueError as error:
            raise block.error(position, str(error)) from None
        position += len(raw) + 1
    return _cells(row, attribute, value, lines, weighted)


def _cells(
    row: list[int], attribute: list[int], value: list[float], lines: list[int], weighted: list[int]
) -> Cells:
    row_, attribute_, lines_, weighted_ = (
        np.array(part, dtype=np.int64) for part in (row, attribute, lines, weighted)
    )
    return Cells(row_, attribute_, np.array(value, dtype=np.float64), lines_, weighted_)


def _tokens(line: str) -> list[str]:
    """Names, values, commas and braces of a line; none: it is no row."""
    tokens: list[str] = []
    for match in _TOKEN.finditer(line.strip()):
        if match[3]:
            break  # a comment
        if match[4]:
            raise ValueError(f"a quote that is not closed: {line[match.start(4) :][:20]!r}")
        tokens.append(match[1] or match[2])
    return tokens


def _has_weight(tokens: list[str]) -> bool:
    """Whether a row is followed by a number in braces."""
    closed = len(tokens) > 3 and (tokens[-3], tokens[-1]) == ("{", "}")
    return closed and re.fullmatch(_NUMBER, tokens[-2]) is not None


def _pairs(tokens: list[str], count: int) -> list[tuple[int, str]]:
    """The attributes a row names and their values as written."""
    sparse = tokens[0] == "{"
    if sparse:
        if tokens[-1] != "}":
            raise ValueError("a sparse row without its closing brace")
        tokens = tokens[1:-1]
    for brace, which in (("{", "an opening"), ("}", "a closing")):
        if brace in tokens:
            raise ValueError(f"{which} brace too many")
    cells: list[list[str]] = [[]]
    for token in tokens:
        if token == ",":
            cells.append([])
        else:
            cells[-1].append(token)
    if len(cells) > 1 and not all(cells):
        raise ValueError("a value is missing")
    if not sparse:
        values = [token for cell in cells for token in cell]  # also spaces may stand between them
        if len(values) != count:
            raise ValueError(f"{len(values)} values for {count} attributes")
        return list(enumerate(values))
    if cells == [[]]:
        return []
    return [_pair(cell, count) for cell in cells]


def _pair(cell: list[str], count: int) -> tuple[int, str]:
    if len(cell) != 2:
        raise ValueError(f"{cell[-1][:30]!r} is not part of an `attribute value` pair")
    name, value = cell
    if not (name.isascii() and name.isdigit()):
        raise ValueError(f"attribute {name[:30]!r} is not a whole number from 0 up")
    if len(name) > 15 or int(name) >= count:
        raise ValueError(f"attribute {name[:30]!r}, but there are {count} (counted from 0)")
    return int(name), value


def _value(attribute: Attribute, token: str) -> float:
    if token == "?":
        return float("nan")
    if attribute.kind == "text":
        return 0.0
    if attribute.kind == "number":
        return _number(plain(token))
    found = attribute.index.get(plain(token))
    if found is None and attribute.by_number is not None:
        with suppress(ValueError):
            found = attribute.by_number.get(_number(plain(token)))  # 1.0 where 1 was declared
    if found is None:
        raise ValueError(f"{token[:30]!r} is none of the values of {attribute.shown()}")
    return found


def _number(token: str) -> float:
    try:
        value = float(token)
    except ValueError:
        raise ValueError(f"{token[:30]!r} is not a number") from None
    if not np.isfinite(value):
        raise ValueError(f"{token[:30]!r} is not a finite number")
    if "_" in token or not token.isascii():
        raise ValueError(f"{token[:30]!r} is not a number")
    if abs(value) > LARGEST:
        raise ValueError(f"{token[:30]!r} is too large for a 32-bit number")
    return value


def _tidy(block: Block) -> Block:
    """Without comments, and with single spaces where pairs are cut."""
    text = block.text.replace(b"\t", b" ")
    if b"%" in text:
        text = re.sub(rb"(?m)^[ \t]*%.*$", b"", text)
    text = re.sub(rb"  +", b" ", text)
    for mark in (b",", b"{", b"}", b"\n"):
        text = text.replace(mark + b" ", mark).replace(b" " + mark, mark)
    return Block(block.name, text.lstrip(b" "), block.first_line)
