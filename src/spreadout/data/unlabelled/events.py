"""Histories of items: written down one a line, or as the events they are made of."""

from __future__ import annotations

import csv
import re
import zipfile
from pathlib import Path

import numpy as np

from spreadout.core.errors import UserError
from spreadout.data.io.archive import open_plain, opened
from spreadout.data.io.npz import Array
from spreadout.data.sources.interactions import Interactions, read_csv
from spreadout.data.sources.movielens import LAYOUTS, MovieLens, ratings
from spreadout.data.sources.parquet import read_parquet
from spreadout.data.sources.times import in_order
from spreadout.data.unlabelled.histories import parse_histories
from spreadout.data.unlabelled.wanted import Unlabelled, Wanted


def read_items(path: Path, wanted: Wanted) -> Unlabelled:
    """Events of users, whose histories they make; anything else is one history a line."""
    if path.suffix.lower() in (".npy", ".npz"):
        raise UserError(f"{path}: this run takes histories of items, not arrays: give a text file")
    if path.is_dir() or path.name in LAYOUTS or zipfile.is_zipfile(path):
        return _movielens(path, wanted)
    asked = wanted.source if isinstance(wanted.source, Interactions) else Interactions()
    if path.suffix.lower() == ".parquet":
        return _histories(path, *read_parquet(path, (asked.user, asked.item, asked.time)))
    header = _header(path, asked.delimiter)
    if {asked.user, asked.item} <= set(header):
        timed = asked.time in header
        named = (asked.user, asked.item, asked.time) if timed else (asked.user, asked.item)
        return _histories(path, *read_csv(path, named, asked.delimiter))
    try:
        with open_plain(path) as stream:
            text = stream.read().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UserError(f"{path}: cannot be read ({error})") from None
    found = list(parse_histories(text, str(path)))
    if not found:
        raise UserError(f"{path}: has no histories; write one a line")
    return Unlabelled(histories=found)


def histories_of(user: Array, item: Array, time: Array | None) -> Unlabelled:
    """Each user's items in order of time, ties and events without a time in the order given."""
    names, codes = np.unique(user, return_inverse=True)
    keys = (codes,) if time is None else (time, codes)
    order = np.lexsort(keys)
    ends = np.cumsum(np.bincount(codes, minlength=len(names)))
    parts = np.split(item[order], ends[:-1])
    return Unlabelled(
        histories=[[_text(one) for one in part.tolist()] for part in parts],
        called=[_text(name) for name in names.tolist()],
    )


def _histories(path: Path, user: Array, item: Array, time: Array | None = None) -> Unlabelled:
    return histories_of(user, item, None if time is None else in_order(path, time))


def _movielens(path: Path, wanted: Wanted) -> Unlabelled:
    with opened(path) as archive:
        found = ratings(archive)
    least = wanted.source.min_rating if isinstance(wanted.source, MovieLens) else 0.0
    kept = found.rating >= least
    return histories_of(found.user[kept], found.movie[kept], found.time[kept])


def _header(path: Path, delimiter: str) -> list[str]:
    with open_plain(path) as stream:
        line = stream.readline(1 << 16).decode("utf-8-sig", "replace").rstrip("\r\n")
    if re.search(r"\d", line[:1]) or line.lstrip().startswith("["):
        return []
    try:
        return next(csv.reader([line], delimiter=delimiter), [])
    except csv.Error:
        return []


def _text(value: object) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
