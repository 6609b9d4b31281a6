"""The extreme-classification repository's text format: a line `N D L`, then one row per point.

A row is `label,label feature:value …`, all counted from 0; it starts with a space where a point has no
label. Data comes as a train and a test file, as one file with split files (1-based row numbers, one
column per split), or as `trn_X_Xf` / `trn_X_Y` pairs of matrices with headers `N D` and `N L`.
http://manikvarma.org/downloads/XC/XMLRepository.html
"""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import IO, ClassVar

import numpy as np
import torch
from pydantic import Field

from spreadout.core.errors import UserError
from spreadout.core.randomness import Ints
from spreadout.data.columns import Sparse
from spreadout.data.io.archive import Archive, opened
from spreadout.data.io.text import BOM, blocks, cut, whole
from spreadout.data.published import PublishedDataset
from spreadout.data.sources.base import FileSource, Instances, RawDataset, register_source
from spreadout.data.sources.sparse_rows import Rows, as_labels, as_sparse, read_rows, refuse_beyond

MOST = (2**31 - 1, 100_000_000)  # features (or columns), labels
TRAIN = re.compile(r"(^|[/_-])train\.txt(\.gz)?$", re.IGNORECASE)
TEST = re.compile(r"(^|[/_-])test\.txt(\.gz)?$", re.IGNORECASE)
TRAIN_SPLIT = re.compile(r"(tr|trn|train)_?Split\.txt$", re.IGNORECASE)
TEST_SPLIT = re.compile(r"(ts|tst|test)_?Split\.txt$", re.IGNORECASE)


def _published(
    name: str, features: int, classes: int, train: int, test: int, files: str = "train.txt and test.txt"
) -> PublishedDataset:
    return PublishedDataset(
        name,
        "sparse text, many labels",
        {"train": train, "test": test, "features": features, "classes": classes},
        "Bhatia et al. 2016 and each set's own paper; research use",
        "http://manikvarma.org/downloads/XC/XMLRepository.html",
        place=name,
        layout=files,
    )


@register_source
class XCText(FileSource):
    """Sparse text features with very many labels."""

    about: ClassVar = "extreme-classification text with a header `N D L`"
    published: ClassVar = (
        _published("eurlex-4k", 5_000, 3_993, 15_539, 3_809, "eurlex_train.txt and eurlex_test.txt"),
        _published("wiki10-31k", 101_938, 30_938, 14_146, 6_616, "wiki10_train.txt and wiki10_test.txt"),
        _published("amazoncat-13k", 203_882, 13_330, 1_186_239, 306_782),
        _published("delicious-200k", 782_585, 205_443, 196_606, 100_095),
        _published("wikilshtc-325k", 1_617_899, 325_056, 1_778_351, 587_084),
        _published("amazon-670k", 135_909, 670_091, 490_449, 153_025),
        _published("lf-amazontitles-131k", 40_000, 131_073, 294_805, 134_835),
        _published("lf-wikiseealsotitles-320k", 40_000, 312_330, 693_082, 177_515),
    )

    name: str = "xc-text"
    split: int = Field(0, ge=0)  # which column of the split files

    def parse(self, path: Path) -> RawDataset:
        with opened(path) as archive:
            texts = [n for n in archive.names if n.endswith((".txt", ".txt.gz"))]
            train = [n for n in texts if TRAIN.search(n)]
            test = [n for n in texts if TEST.search(n)]
            splits = [n for n in texts if TRAIN_SPLIT.search(n) or TEST_SPLIT.search(n)]
            if archive.find("trn_X_Xf.txt"):
                return _matrices(archive)
            if splits:
                return _split(archive, texts, self.split)
            if len(train) == 1 and len(test) == 1:
                return _pair(archive, train[0], test[0])
            if len(texts) == 1:
                whole_set = _read(archive, texts[0])
                return RawDataset(whole_set[0], whole_set[2])
            raise UserError(
                f"{path}: looked for train.txt and test.txt (or one file with split files, or "
                f"trn_X_Xf.txt) and found {', '.join(texts[:4]) or 'no .txt file'}"
            )


def _pair(archive: Archive, train: str, test: str) -> RawDataset:
    taught, features, classes = _read(archive, train)
    tested, test_features, test_classes = _read(archive, test)
    if (features, classes) != (test_features, test_classes):
        raise UserError(
            f"{archive.label(test)}:1: says {test_features} features and {test_classes} labels, "
            f"but {train} says {features} and {classes}"
        )
    return RawDataset(taught, classes, tested)


def _split(archive: Archive, texts: list[str], column: int) -> RawDataset:
    data = [n for n in texts if not (TRAIN_SPLIT.search(n) or TEST_SPLIT.search(n))]
    parts = [[n for n in texts if pattern.search(n)] for pattern in (TRAIN_SPLIT, TEST_SPLIT)]
    if not (len(data) == len(parts[0]) == len(parts[1]) == 1):
        raise UserError(
            f"{archive.path}: needs one data file, one train split and one test split; "
            f"found {', '.join(texts[:5])}"
        )
    every, _, classes = _read(archive, data[0])
    train, test = (_split_rows(archive, part[0], column, len(every)) for part in parts)
    both = np.intersect1d(train, test)
    if both.size:
        raise UserError(f"{archive.path}: row {both[0] + 1} is in the train and in the test split")
    return RawDataset(
        every.select(torch.from_numpy(train)), classes, every.select(torch.from_numpy(test))
    )


def _split_rows(archive: Archive, name: str, column: int, rows: int) -> Ints:
    label = archive.label(name)
    with archive.open(name) as stream:
        found = []
        for block in blocks(stream, label):
            tokens = cut(block, b" \t,")
            numbers = whole(tokens, tokens.numbers(), np.ones(len(tokens), dtype=bool), "row")
            width = np.bincount(tokens.line, minlength=tokens.lines)
            place = np.arange(len(tokens)) - (np.cumsum(width) - width)[tokens.line]
            if column >= width.max(initial=0):
                raise UserError(f"data.source.split = {column}: {label} has {width.max()} columns")
            if (width[width > 0] != width.max(initial=0)).any():
                raise UserError(f"{label}: its lines have {width.min()} to {width.max()} columns")
            bad = (numbers < 1) | (numbers > rows)
            tokens.refuse(bad, f"row {{}} is not one of the {rows:,} rows")
            found.append(numbers[place == column] - 1)
    chosen = np.concatenate(found) if found else np.empty(0, dtype=np.int64)
    distinct, count = np.unique(chosen, return_counts=True)
    if (count > 1).any():
        raise UserError(f"{label}: row {distinct[count > 1][0] + 1} is listed twice in column {column}")
    return chosen


def _matrices(archive: Archive) -> RawDataset:
    parts, shapes = [], []
    for part in ("trn", "tst"):
        features_file = archive.only(f"{part}_X_Xf.txt", what="features")
        labels_file = archive.only(f"{part}_X_Y.txt", what="labels")
        x, points, width = _matrix(archive, features_file)
        y, labelled, classes = _matrix(archive, labels_file)
        if points != labelled:
            raise UserError(
                f"{archive.label(labels_file)}:1: has {labelled} rows, {features_file} has {points}"
            )
        name = archive.label(labels_file)
        refuse_beyond(y.features, y.feature_counts, y.line, name, "label", classes)
        # The label matrix has labels where a feature matrix has features.
        sets = as_labels(replace(y, label_counts=y.feature_counts, labels=y.features))
        parts.append(Instances({"x": as_sparse(x, archive.label(features_file), width)}, sets))
        shapes.append((width, classes))
    if shapes[0] != shapes[1]:
        raise UserError(f"{archive.path}: train has (features, labels) {shapes[0]}, test {shapes[1]}")
    return RawDataset(parts[0], shapes[0][1], parts[1])


def _matrix(archive: Archive, name: str) -> tuple[Rows, int, int]:
    label = archive.label(name)
    with archive.open(name) as stream:
        rows, columns = _header(stream, label, ("rows", "columns"))
        found = read_rows(stream, label, skip_lines=1)
    return _counted(found, rows, label), rows, columns


def _read(archive: Archive, name: str) -> tuple[Instances, int, int]:
    """Instances, features and labels of one file with a header `N D L`."""
    label = archive.label(name)
    with archive.open(name) as stream:
        points, features, classes = _header(stream, label, ("points", "features", "labels"))
        rows = _counted(read_rows(stream, label, skip_lines=1), points, label)
    refuse_beyond(rows.labels, rows.label_counts, rows.line, label, "label", classes)
    columns: dict[str, Sparse] = {"x": as_sparse(rows, label, features)}
    return Instances(columns, as_labels(rows)), features, classes


def _header(stream: IO[bytes], label: str, fields: tuple[str, ...]) -> list[int]:
    line = stream.readline(1000).removeprefix(BOM)
    numbers = line.split()
    if len(numbers) != len(fields) or not all(n.isdigit() for n in numbers):
        shown = line[:40].decode("utf-8", "replace").strip()
        raise UserError(f"{label}:1: must say how many {', '.join(fields)} there are, says {shown!r}")
    counts = [int(n) for n in numbers]
    for count, what, most in zip(counts[1:], fields[1:], MOST, strict=False):
        if count > most:
            raise UserError(f"{label}:1: says {count:,} {what}: more than the {most:,} that fit")
    return counts


def _counted(rows: Rows, expected: int, label: str) -> Rows:
    """The rows, as many as the header says; empty lines at the end of a file are no rows."""
    found = len(rows.line)
    filled = np.flatnonzero(rows.label_counts + rows.feature_counts)
    if found > expected and (not filled.size or filled[-1] < expected):
        return replace(
            rows,
            label_counts=rows.label_counts[:expected],
            feature_counts=rows.feature_counts[:expected],
            line=rows.line[:expected],
        )
    if found != expected:
        raise UserError(
            f"{label}:1: promises {expected:,} rows, but {found:,} follow"
            + ("; the file may be cut short" if found < expected else "")
        )
    return rows
