"""libsvm's multi-label text: `label,label feature:value …`, no header, features usually from 1.

A test file is `NAME.t`, or has `test` for `train` in its name; in a folder, the one called so. Plain,
.gz or .bz2.
https://www.csie.ntu.edu.tw/~cjlin/libsvmtools/datasets/multilabel.html
"""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import ClassVar, Literal

import numpy as np

from spreadout.core.errors import UserError
from spreadout.data.io.archive import open_plain
from spreadout.data.sources.base import FileSource, Instances, RawDataset, register_source
from spreadout.data.sources.sparse_rows import (
    Rows,
    as_labels,
    as_sparse,
    line_of,
    read_rows,
    refuse_beyond,
)

TEST = re.compile(r"(^|[._-])test([._-]|$)|\.t(\.gz|\.bz2)?$", re.IGNORECASE)
MOST_FEATURES = 2**31  # ids are kept in 32 bits


@register_source
class LibSVM(FileSource):
    """Sparse features with one or several labels, numbered as you like."""

    about: ClassVar = "libsvm text, several labels a row"
    name: str = "libsvm"
    first_feature: Literal[0, 1] = 1  # what the first feature is called

    def content(self, path: Path) -> list[Path]:
        return [file for file in _files(path) if file is not None]

    def parse(self, path: Path) -> RawDataset:
        train, test = _files(path)
        rows = [_read(file, self.first_feature) for file in (train, test) if file is not None]
        names = np.unique(np.concatenate([part.labels for part in rows]))
        width = 1 + max((int(part.features.max()) for part in rows if len(part.features)), default=0)
        parts = []
        for part in rows:
            numbered = replace(part, labels=np.searchsorted(names, part.labels))
            parts.append(Instances({"x": as_sparse(part, str(train), width)}, as_labels(numbered)))
        tested = parts[1] if len(parts) > 1 else None
        called = tuple(map(str, names.tolist()))
        return RawDataset(parts[0], len(called), tested, class_names=called, class_ids=called)


def _files(path: Path) -> tuple[Path, Path | None]:
    """The training file, and the test file that goes with it."""
    if path.is_file():
        siblings = [
            f for f in sorted(path.parent.iterdir()) if f.is_file() and _is_test_of(f.name, path.name)
        ]
        return path, siblings[0] if siblings else None
    files = sorted(f for f in path.iterdir() if f.is_file() and not f.name.startswith("."))
    tests = [f for f in files if TEST.search(f.name)]
    trains = [f for f in files if f not in tests]
    if len(trains) != 1 or len(tests) > 1:
        found = ", ".join(f.name for f in files[:4]) or "nothing"
        raise UserError(f"{path}: needs one training file and at most one test file; found {found}")
    return trains[0], tests[0] if tests else None


def _is_test_of(name: str, train: str) -> bool:
    """`a.t` of `a`, `a.t.gz` of `a.gz`, `a-test.svm` of `a-train.svm`."""
    plain, packing = re.fullmatch(r"(.*?)((\.gz|\.bz2)?)", train).group(1, 2)  # type: ignore[union-attr]
    return name == f"{plain}.t{packing}" or ("train" in train and name == train.replace("train", "test"))


def _read(path: Path, first: int) -> Rows:
    with open_plain(path) as stream:
        rows = read_rows(stream, str(path), comments=True)
    if len(rows.features) and rows.features.min() < first:
        at = int(np.flatnonzero(rows.features < first)[0])
        line = line_of(at, rows.feature_counts, rows.line)
        raise UserError(
            f"{path}:{line}: feature 0, but data.source.first_feature = {first}; set it to 0"
        )
    refuse_beyond(rows.features, rows.feature_counts, rows.line, str(path), "feature", MOST_FEATURES)
    kept = rows.label_counts + rows.feature_counts > 0  # blank and comment lines are no rows
    return replace(
        rows,
        features=rows.features - first,
        label_counts=rows.label_counts[kept],
        feature_counts=rows.feature_counts[kept],
        line=rows.line[kept],
    )
