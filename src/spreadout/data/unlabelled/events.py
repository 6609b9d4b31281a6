"""Histories of items: written down one a line, or as the events they are made of."""

from __future__ import annotations

import re
import zipfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from spreadout.core.errors import UserError
from spreadout.data.io.archive import opened
from spreadout.data.io.csv_table import TABLE, delimiter_in, first_row, head_of, text_of
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
    if path.is_dir() or zipfile.is_zipfile(path):
        return _movielens(path, wanted)
    asked = wanted.source if isinstance(wanted.source, Interactions) else Interactions()
    if path.suffix.lower() == ".parquet":
        return _histories(path, *read_parquet(path, (asked.user, asked.item, asked.time)))
    head = head_of(path)
    mark = delimiter_in(head, (asked.user, asked.item), asked.delimiter)
    header = first_row(head, mark)
    if {asked.user, asked.item} <= set(header):
        timed = asked.time in header
        named = (asked.user, asked.item, asked.time) if timed else (asked.user, asked.item)
        return _histories(path, *read_csv(path, named, mark))
    if path.name in LAYOUTS:  # not before: the run's own events may be in a file of that name
        return _movielens(path, wanted)
    if isinstance(wanted.source, Interactions):
        _refuse_other_events(path, header, asked, wanted.labels)
    found = list(parse_histories(text_of(path), str(path)))
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


def _refuse_other_events(
    path: Path, header: Sequence[str], asked: Interactions, items: Sequence[str]
) -> None:
    """A table of events, by its name or its header, that lacks who or what; not one of histories."""
    own = {asked.user, asked.item, asked.time}
    plain = all(re.fullmatch(r"[\d;\s]*", cell) for cell in header) or header[0].startswith("[")
    if plain or not (own & set(header) or TABLE.search(path.name.lower())):
        return
    if len(header) > 1 and set(header).isdisjoint(items):
        missing = next(name for name in (asked.user, asked.item) if name not in header)
        raise UserError(
            f"{path}:1: no column {missing!r}, which this run was trained on; the header has "
            f"{', '.join(header)[:80]!r}"
        )


def _text(value: object) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
