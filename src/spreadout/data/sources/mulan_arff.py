"""Multi-label data in Mulan's ARFF (sparse or dense rows), the labels named by an XML file.

A folder with `NAME.xml` and either `NAME-train.arff` and `NAME-test.arff` or one `NAME.arff`.
https://mulan.sourceforge.net/format.html. Known by name: `bibtex` (Katakis et al. 2008) and others.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import IO, ClassVar
from xml.etree import ElementTree

import numpy as np
import torch

from spreadout.core.errors import UserError
from spreadout.core.ragged import Ragged, offsets_from_lengths
from spreadout.core.randomness import Ints
from spreadout.data.columns import Sparse
from spreadout.data.io.archive import Archive, opened
from spreadout.data.io.text import Block, blocks, cut, whole
from spreadout.data.published import PublishedDataset
from spreadout.data.sources.base import FileSource, Instances, RawDataset, register_source

_ATTRIBUTE = re.compile(r"@attribute\s+('(?:[^'\\]|\\.)*'|\"[^\"]*\"|\S+)", re.IGNORECASE)
OPEN, CLOSE, SPACE, COMMA, NEWLINE = (ord(c) for c in "{} ,\n")


def _published(name: str, cite: str, figures: Mapping[str, int | float]) -> PublishedDataset:
    return PublishedDataset(
        name,
        "multi-label, Mulan's ARFF",
        figures,
        cite,
        "https://mulan.sourceforge.net/datasets-mlc.html",
        place=name,
        layout=f"{name}-train.arff, {name}-test.arff and {name}.xml",
    )


@register_source
class MulanArff(FileSource):
    """Features and labels in one table; the XML says which attributes are labels."""

    about: ClassVar = "Mulan ARFF with its XML"
    published: ClassVar = (
        _published(
            "bibtex",
            "Katakis et al. 2008",
            {"train": 4880, "test": 2515, "features": 1836, "classes": 159, "labels a row": 2.40},
        ),
        _published("mediamill", "Snoek et al. 2006", {"rows": 43_907, "features": 120, "classes": 101}),
        _published(
            "delicious", "Tsoumakas et al. 2008", {"rows": 16_105, "features": 500, "classes": 983}
        ),
        _published("corel5k", "Duygulu et al. 2002", {"rows": 5_000, "features": 499, "classes": 374}),
    )
    name: str = "mulan"

    def content(self, path: Path) -> list[Path]:
        return [_folder(path)]

    def parse(self, path: Path) -> RawDataset:
        with opened(_folder(path)) as archive:
            labels = label_names(archive)
            train, test = _files(archive)
            taught = read(archive, train, labels)
            tested = None if test is None else read(archive, test, labels)
        if tested is not None and _width(tested) != _width(taught):
            raise UserError(
                f"{archive.label(test or '')}: has {_width(tested)} features, "
                f"{train} has {_width(taught)}: they must agree"
            )
        return RawDataset(taught, len(labels), tested, class_names=tuple(labels))


def _folder(path: Path) -> Path:
    """What holds the .arff files and the XML: an archive, a folder, or the folder of the file given."""
    return path.parent if path.suffix.lower() == ".arff" else path


def _width(part: Instances) -> int:
    column = part.columns["x"]
    assert isinstance(column, Sparse)
    return column.width


def _files(archive: Archive) -> tuple[str, str | None]:
    arff = [name for name in archive.names if name.lower().endswith(".arff")]
    ends = {name: Path(name).stem.lower().replace("_", "-") for name in arff}
    train = [name for name in arff if ends[name].endswith("-train")]
    test = [name for name in arff if ends[name].endswith("-test")]
    if len(train) == 1 and len(test) == 1:
        return train[0], test[0]
    if len(arff) == 1:
        return arff[0], None
    found = ", ".join(arff[:4]) or "no .arff file"
    raise UserError(
        f"{archive.path}: needs NAME-train.arff and NAME-test.arff, or one .arff; has {found}"
    )


def label_names(archive: Archive) -> list[str]:
    """The label attributes' names, in the XML's order: label i is the i-th."""
    files = [name for name in archive.names if name.lower().endswith(".xml")]
    if len(files) != 1:
        found = ", ".join(files[:4]) or "none"
        raise UserError(f"{archive.path}: needs one XML file that names the labels; has {found}")
    try:
        root = ElementTree.fromstring(archive.read(files[0]))
    except (ElementTree.ParseError, LookupError, ValueError) as error:
        raise UserError(f"{archive.label(files[0])}: not well-formed XML ({error})") from None
    names = [str(node.get("name")) for node in root.iter() if node.tag.endswith("label")]
    if not names:
        raise UserError(f"{archive.label(files[0])}: names no labels")
    if twice := [name for name, count in Counter(names).items() if count > 1]:
        raise UserError(f"{archive.label(files[0])}: names the label {twice[0]!r} twice")
    return names


def read(archive: Archive, name: str, label_names: list[str]) -> Instances:
    """Features as a sparse column and the label sets of one ARFF file."""
    label = archive.label(name)
    with archive.open(name) as stream:
        attributes, lines = _header(stream, label)
        place = {attribute: i for i, attribute in enumerate(attributes)}
        missing = [wanted for wanted in label_names if wanted not in place]
        if missing:
            raise UserError(f"{label}: no attribute for the label {missing[0]!r} named in the XML")
        parts = [_cells(block, len(attributes)) for block in blocks(stream, label, skip_lines=lines)]
    row, attribute, value, count = _joined(parts)
    # Where each attribute goes: labels to −1 − their number, features to their place among features.
    target = np.zeros(len(attributes), dtype=np.int64)
    target[[place[wanted] for wanted in label_names]] = -1 - np.arange(len(label_names))
    is_feature = target == 0
    target[is_feature] = np.arange(is_feature.sum())
    goes = target[attribute]
    feature, tagged = goes >= 0, (goes < 0) & (value != 0)
    if (odd := tagged & (value != 1)).any():
        at = int(np.flatnonzero(odd)[0])
        name = label_names[-1 - goes[at]]
        raise UserError(
            f"{label}: data row {row[at] + 1}: the label {name!r} is {value[at]:g}, not 0 or 1"
        )
    sets = Ragged.from_pairs(torch.from_numpy(row[tagged]), torch.from_numpy(-1 - goes[tagged]), count)
    kept = feature & (value != 0)
    lengths = torch.from_numpy(np.bincount(row[kept], minlength=count))
    x = Sparse(
        torch.from_numpy(goes[kept].astype(np.int32)),
        torch.from_numpy(value[kept].astype(np.float32)),
        offsets_from_lengths(lengths),
        int(is_feature.sum()),
    )
    return Instances({"x": x}, sets)


def _header(stream: IO[bytes], label: str) -> tuple[list[str], int]:
    """The attributes' names, and how many lines the header takes."""
    attributes: list[str] = []
    number = 0
    while raw := stream.readline(1 << 20):
        number += 1
        line = raw.decode("utf-8", "replace").strip()
        if line.lower().startswith("@data"):
            return attributes, number
        if match := _ATTRIBUTE.match(line):
            attributes.append(match[1].strip("'\"").replace("\\'", "'"))
    raise UserError(f"{label}: no @data section; the file may be cut short")


Cells = tuple[Ints, Ints, np.ndarray, int]  # row, attribute, value of every cell; rows


def _joined(parts: list[Cells]) -> Cells:
    if not parts:
        empty = np.empty(0, dtype=np.int64)
        return empty, empty, np.empty(0), 0
    before = np.cumsum([0, *(rows for *_, rows in parts)])
    row = np.concatenate([part[0] + start for part, start in zip(parts, before, strict=False)])
    return (
        row,
        np.concatenate([part[1] for part in parts]),
        np.concatenate([part[2] for part in parts]),
        int(before[-1]),
    )


def _cells(block: Block, attributes: int) -> Cells:
    """The cells of a block: all of a dense row's, the named ones of a sparse row."""
    block = _tidy(block)
    for gap in (b",,", b"{,", b",}", b",\n", b"\n,"):
        if (at := block.text.find(gap)) >= 0:
            raise block.error(at + (gap[:1] == b"\n"), "a value is missing")
    raw = np.frombuffer(block.text, dtype=np.uint8)
    ends = np.flatnonzero(raw == NEWLINE)
    starts = np.concatenate([[0], ends[:-1] + 1]) if len(ends) else ends
    sparse_line = raw[starts] == OPEN  # (lines,)
    is_row = ends > starts
    closed = raw[np.maximum(ends - 1, 0)] == CLOSE
    if (sparse_line & ~closed).any():
        at = int(starts[np.flatnonzero(sparse_line & ~closed)[0]])
        raise block.error(at, "a sparse row without its closing brace")
    row_of: Ints = np.cumsum(is_row) - is_row  # rows are counted without blank lines
    tokens = cut(block, b"{} ,")
    values = tokens.numbers()
    in_sparse = sparse_line[tokens.line]
    named = in_sparse & (tokens.after == SPACE)
    valued = in_sparse & (tokens.before == SPACE)
    odd = in_sparse & (named == valued)
    tokens.refuse(odd, "{} is not part of an `attribute value` pair")
    number = whole(tokens, values, named, "attribute")
    beyond = named.copy()
    beyond[named] = number >= attributes
    tokens.refuse(beyond, f"attribute {{}}, but there are {attributes} (counted from 0)")
    dense = ~in_sparse
    width = np.bincount(tokens.line[dense], minlength=tokens.lines)
    wrong = is_row & ~sparse_line & (width != attributes)
    if wrong.any():
        line = int(np.flatnonzero(wrong)[0])
        raise block.error(int(starts[line]), f"{width[line]} values for {attributes} attributes")
    place = np.arange(int(dense.sum())) % max(attributes, 1)
    row = np.concatenate([row_of[tokens.line[named]], row_of[tokens.line[dense]]])
    order = np.argsort(row, kind="stable")  # a file may mix both kinds of row
    attribute = np.concatenate([number, place])[order]
    value = np.concatenate([values[valued], values[dense]])[order]
    return row[order], attribute, value, int(is_row.sum())


def _tidy(block: Block) -> Block:
    """Without comments, and with single spaces where pairs are cut."""
    text = block.text.replace(b"\t", b" ")
    if b"%" in text:
        text = re.sub(rb"(?m)^[ \t]*%.*$", b"", text)
    for loose, tight in ((b", ", b","), (b" ,", b","), (b"{ ", b"{"), (b" }", b"}"), (b" \n", b"\n")):
        while loose in text:
            text = text.replace(loose, tight)
    return Block(block.name, text, block.first_line)
