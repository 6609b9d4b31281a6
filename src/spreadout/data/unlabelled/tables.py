"""Inputs in text: sparse rows, tables of numbers, ARFF. Labels may stand there, and are left out."""

from __future__ import annotations

import csv
import io
import re
from dataclasses import replace
from pathlib import Path

import numpy as np

from spreadout.core.errors import UserError
from spreadout.data.decimals import pointed, with_point
from spreadout.data.input_columns import InputColumns, is_number
from spreadout.data.io.archive import beside, open_plain
from spreadout.data.io.csv_table import (
    HEAD,
    TABLE,
    columns_in,
    delimiter_in,
    first_row,
    head_of,
    text_of,
)
from spreadout.data.io.text import BOM
from spreadout.data.sources.arff import Header, read_header, unescaped
from spreadout.data.sources.arff_rows import read_cells
from spreadout.data.sources.mulan_labels import likely_class
from spreadout.data.sources.mulan_table import Table
from spreadout.data.sources.sparse_rows import Rows, as_sparse, line_of, read_rows
from spreadout.data.unlabelled.wanted import Unlabelled, Wanted

HEADER = re.compile(rb"\s*\d+(\s+\d+){1,2}\s*")  # N D L, or N D
MARKS = ",;\t "
NUMBER = r"[-+]?[\d.]+([eE][-+]?\d+)?"
NUMBERS = re.compile(rf"\s*({NUMBER}([,\s]\s*|$))*\s*")
PAIR = re.compile(r"(^|\s)\d+:[-+.\d]")
PAIRS = re.compile(rf"\s*({NUMBER}(,{NUMBER})*\s+)?\d+:[^\s:,;|]+(\s+\d+:[^\s:,;|]+)*\s*")


def read_sparse(path: Path, wanted: Wanted) -> Unlabelled:
    """Lines `label,label feature:value …`, with labels or without, with a header `N D L` or without."""
    with open_plain(path) as stream:
        headed = HEADER.fullmatch(stream.readline(1000).removeprefix(BOM)) is not None
    with open_plain(path) as stream:
        if headed:
            stream.readline()
        rows = read_rows(stream, str(path), skip_lines=int(headed), comments=not headed)
    filled = rows.label_counts + rows.feature_counts > 0
    last = int(np.flatnonzero(filled)[-1]) + 1 if filled.any() else 0
    # Under a header an empty line is an example without features; elsewhere it is no example.
    kept = np.arange(len(filled)) < last if headed else filled
    rows = _from_zero(path, _of_lines(rows, kept), getattr(wanted.source, "first_feature", 0))
    width = 1 + int(rows.features.max(initial=0)) if wanted.features is None else wanted.features
    return Unlabelled(as_sparse(rows, str(path), width))


def _of_lines(rows: Rows, kept: np.ndarray) -> Rows:
    counts = {name: getattr(rows, name)[kept] for name in ("label_counts", "feature_counts", "line")}
    return replace(rows, **counts)


def _from_zero(path: Path, rows: Rows, first: int) -> Rows:
    if len(rows.features) and rows.features.min() < first:
        at = int(np.flatnonzero(rows.features < first)[0])
        line = line_of(at, rows.feature_counts, rows.line)
        raise UserError(f"{path}:{line}: feature 0, but the run's features are counted from {first}")
    return replace(rows, features=rows.features - first)


def read_numbers(path: Path, wanted: Wanted) -> Unlabelled:
    """A table of numbers, one input a line, with a header or without.

    Under a header, the columns that the run's own table had for labels and clients are left out.
    """
    text = text_of(path, wanted.encoding)
    lines = [(number, line) for number, line in enumerate(text.splitlines(), 1) if line.strip()]
    if not lines:
        return Unlabelled()
    own = getattr(wanted.source, "delimiter", " ")
    mark = own if own in lines[0][1] else max(MARKS, key=lines[0][1].count)
    mark = mark if mark in lines[0][1] else " "
    cells = [
        (n, line.split() if mark == " " else next(csv.reader([line], delimiter=mark)))
        for n, line in lines
    ]
    for number, row in cells:
        if len(row) != len(cells[0][1]):
            raise UserError(f"{path}:{number}: {len(row)} cells, others have {len(cells[0][1])}")
    used = list(range(len(cells[0][1])))
    if not all(is_number(with_point(cell)) for cell in cells[0][1]):
        used = _inputs_in(path, [name.strip() for name in cells.pop(0)[1]], wanted)
    if not cells:
        raise UserError(f"{path}: has no line of numbers; this run takes {wanted.described}")
    read = with_point if wanted.has_decimal_comma and mark != "," else str
    rows = [[read(row[place]) for place in used] for _, row in cells]
    for (number, _), row in zip(cells, rows, strict=True):
        odd = next((cell for cell in row if not is_number(cell)), None)
        if odd is not None:
            raise UserError(
                f"{path}:{number}: {odd[:40]!r} is no number; this run takes {wanted.described}"
            )
    return Unlabelled(np.array(rows, dtype=np.float64))


def has_pairs(path: Path, encoding: str | None = None) -> bool:
    """Whether lines hold feature:value pairs: the first that has one is nothing else.

    A time of day (10:30:00) or a name with a colon among other cells makes no such line.
    """
    for line in head_of(path, encoding).splitlines():
        plain = line.partition("#")[0]
        if PAIR.search(plain):
            return PAIRS.fullmatch(plain) is not None
        if not NUMBERS.fullmatch(plain):  # a header; but the sizes, or labels alone, may stand before
            return False
    return False


def is_table(path: Path, columns: InputColumns, own: str | None, encoding: str | None = None) -> bool:
    """Whether it has a header; what has none goes by position, as lines of numbers or of pairs.

    own: what ended a cell of the run's own table. A file of texts has one on every line, unless it is
    called a table or its first line is what the run's own table began with.
    """
    head = head_of(path, encoding)
    names = first_row(head, delimiter_in(head, columns.names, own))
    if not names:
        return False
    if columns.text is not None:
        known = {*columns.names, *columns.beside}
        return TABLE.search(path.name.lower()) is not None or {columns.text.name} <= set(names) <= known
    if set(columns.names) <= set(names):
        return True
    line = head.partition("\n")[0].strip()
    numbers = any(
        all(is_number(with_point(cell)) for cell in re.split(mark, line))
        for mark in (r"\s+", ";", r"\|", ",", r"\t")
    )
    return not numbers and not has_pairs(path, encoding)


def read_table(path: Path, wanted: Wanted) -> Unlabelled:
    """Under a header, by the names of the run's own columns, in whatever order they stand."""
    assert wanted.columns is not None, "inputs have no names"
    text = text_of(path, wanted.encoding)
    mark = delimiter_in(text[:HEAD], wanted.columns.names, getattr(wanted.source, "delimiter", None))
    header = first_row(text, mark)
    wanted.columns.refuse_missing(header, str(path))
    # Where texts are all there is, a blank line is one that is empty, and wants an answer as any other.
    texts_alone = wanted.texts is not None and len(header) == 1
    table = columns_in(text, path, mark, blank=texts_alone)
    if wanted.has_decimal_comma:
        table |= {name: pointed(path, name, table[name]) for name in wanted.columns.names}
    x, notes = wanted.columns.encode(table, str(path))
    return Unlabelled(x, notes=notes)


def read_lines(path: Path, wanted: Wanted) -> Unlabelled:
    """Texts, one on each line, be it blank."""
    assert wanted.texts is not None, "inputs are no texts"
    text = text_of(path, wanted.encoding)
    lines = io.StringIO(text, newline=None)  # `splitlines` would part more: form feeds, U+2028
    return Unlabelled(wanted.texts.encode_texts([line.removesuffix("\n") for line in lines]))


def _inputs_in(path: Path, header: list[str], wanted: Wanted) -> list[int]:
    """The places of the columns that are inputs."""
    named = [name for name in getattr(wanted.source, "features", ()) if isinstance(name, str)]
    for name in named:
        if name not in header:
            raise UserError(f"{path}:1: no column {name!r}, which this run was trained on")
    if named:
        return [header.index(name) for name in named]
    beside = {getattr(wanted.source, "label", None), getattr(wanted.source, "client", None)}
    return [place for place, name in enumerate(header) if name not in beside]


def _likely_class(header: Header, wanted: Wanted) -> str | None:
    """The attribute that was taken as the class, where nobody named it: its values are the classes."""
    place = likely_class(header)
    if place is None or not set(header.attributes[place].values) <= set(wanted.labels):
        return None
    return header.attributes[place].name


def read_arff(path: Path, wanted: Wanted) -> Unlabelled:
    """The features of an ARFF file; its labels, known by name, may be there or not."""
    archive, label = beside(path), str(path)
    with archive.open(path.name) as stream:
        header = read_header(stream, label)
        named = getattr(wanted.source, "label", None) or _likely_class(header, wanted)
        # Values of a class may be names of features too: then the class alone is no feature.
        names = {unescaped(name) for name in (wanted.labels if named is None else [named])}
        places = [i for i, one in enumerate(header.attributes) if unescaped(one.name) in names]
        labels = [header.attributes[i].name for i in places]
        table = Table(label, header, read_cells(stream, label, header), labels, places)
    if missed := sorted(table.missed()):
        name = table.features[missed[0]].name
        raise UserError(
            f"{label}: has no value of {name[:40]!r} in some rows; fill it, the run does not keep what "
            "its training rows had there"
        )
    x = table.inputs()
    if wanted.features is not None and x.width != wanted.features:
        raise UserError(f"{label}: has {x.width} features; this run takes {wanted.described}")
    return Unlabelled(x)
