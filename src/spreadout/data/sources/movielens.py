"""MovieLens (Harper & Konstan 2015) in GroupLens' own layouts: 100K, 1M, 10M, and 20M and later.

`u.data` is separated by tabs, `ratings.dat` by `::`, `ratings.csv` by commas under a header. The zip or
the folder it unpacks to. Movies are named from `u.item`, `movies.dat` or `movies.csv` where it is there.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np
import numpy.typing as npt
from pydantic import Field

from spreadout.core.errors import UserError
from spreadout.core.randomness import Ints
from spreadout.data.io.archive import Archive, opened
from spreadout.data.io.text import BOM, NEWLINE, Block, blocks, cut, joined, whole
from spreadout.data.published import PublishedDataset, PublishedFile
from spreadout.data.sources.base import FileSource, RawDataset, register_source
from spreadout.data.sources.timeline import BY_USER, Windows

HEADER = b"userId,movieId,rating,timestamp"
LAYOUTS = {"u.data": b"\t", "ratings.dat": b"::", "ratings.csv": b","}


def _published(size: str, ratings: int, users: int, movies: int, md5: str) -> PublishedDataset:
    file = f"ml-{size}.zip"
    return PublishedDataset(
        f"movielens-{size}",
        f"movie ratings by {users:,} people, as next-movie examples",
        {"ratings": ratings, "users": users, "movies": movies, "examples": ratings - users},
        "Harper & Konstan 2015; research use, no redistribution without permission",
        f"https://grouplens.org/datasets/movielens/{size}/",
        (PublishedFile(file, md5, f"https://files.grouplens.org/datasets/movielens/{file}"),),
        file,
    )


@register_source
class MovieLens(Windows, FileSource):
    """Who rated what when, as next-movie examples; a rating counts as having watched."""

    about: ClassVar = "any MovieLens zip or folder"
    published: ClassVar = (
        _published("100k", 100_000, 943, 1_682, "0e33842e24a9c977be4e0107933c0723"),
        _published("1m", 1_000_209, 6_040, 3_706, "c4d9eecfca2ab87c1945afe126590906"),
        _published("10m", 10_000_054, 69_878, 10_677, "ce571fd55effeba0271552578f2648bd"),
        _published("20m", 20_000_263, 138_493, 26_744, "cd245b17a1ae2cc31bb14903e1204af3"),
        _published("25m", 25_000_095, 162_541, 59_047, "6b51fb2759a8657d3bfcbfc42b592ada"),
        _published("32m", 32_000_204, 200_948, 84_432, "d472be332d4daa821edc399621853b57"),
    )
    data_defaults: ClassVar = BY_USER

    name: str = "movielens"
    min_rating: float = Field(0.0, ge=0)  # ratings below are left out

    def locate(self, path: Path | None) -> Path:
        found = self.default_location() if path is None else path
        unpacked = found.with_suffix("")
        if path is None and not found.exists() and unpacked.is_dir():
            return unpacked
        return super().locate(path)

    def counts(self, path: Path) -> dict[str, int]:
        with opened(path) as archive:
            found = ratings(archive)
        return {
            "ratings": len(found.user),
            "users": len(np.unique(found.user)),
            "movies": len(np.unique(found.movie)),
        }

    def parse(self, path: Path) -> RawDataset:
        with opened(path) as archive:
            found = ratings(archive)
            titles = movie_titles(archive)
            _refuse_unknown(archive, found, titles)
            _refuse_repeated_users(archive)
        kept = found.rating >= self.min_rating
        if not kept.any():
            raise UserError(f"data.source.min_rating = {self.min_rating}: leaves no rating in {path}")
        return self.examples(found.user[kept], found.movie[kept], found.time[kept], titles)


@dataclass(frozen=True)
class Ratings:
    """Every rating in file order, and the line it stands in."""

    user: Ints
    movie: Ints
    rating: npt.NDArray[np.float64]
    time: Ints
    line: Ints


def ratings(archive: Archive) -> Ratings:
    """The ratings, whichever of the three layouts they come in."""
    found = [(file, mark) for file, mark in LAYOUTS.items() if archive.find(file)]
    if not found:
        raise UserError(f"{archive.path}: has no u.data, ratings.dat or ratings.csv; is it MovieLens?")
    file, mark = found[0]
    name = archive.only(file, what="ratings")
    label = archive.label(name)
    parts = []
    with archive.open(name) as stream:
        if mark == b",":
            header = stream.readline(1000).removeprefix(BOM).strip()
            if header != HEADER:
                shown = header[:60].decode("utf-8", "replace")
                raise UserError(f"{label}:1: the header must be {HEADER.decode()!r}, is {shown!r}")
        for block in blocks(stream, label, skip_lines=1 if mark == b"," else 0):
            parts.append(_four_numbers(block, mark))
    if not parts:
        raise UserError(f"{label}: has no ratings; the file may be cut short")
    return joined(parts)


def _four_numbers(block: Block, mark: bytes) -> Ratings:
    tokens = cut(block, mark[:1])
    count = np.bincount(tokens.line, minlength=tokens.lines)
    filled = np.flatnonzero(count)
    # Four numbers with exactly one mark between them, and nothing before or after.
    follows = np.append(tokens.line[1:] == tokens.line[:-1], False)
    gap = np.append(tokens.start[1:] - tokens.end[:-1], 0)
    wrong = np.where(follows, gap != len(mark), tokens.after != NEWLINE)
    wrong |= count[tokens.line] != 4
    tokens.refuse(wrong, f"not user, movie, rating and time with {mark.decode()!r} between them")
    values = tokens.numbers()
    user, movie, time = (
        whole(tokens, values, np.arange(len(tokens)) % 4 == field, what)
        for field, what in ((0, "user"), (1, "movie"), (3, "time"))
    )
    return Ratings(user, movie, values[2::4], time, block.first_line + filled)


def movie_titles(archive: Archive) -> dict[int, str]:
    """Movie id → title, from whichever file lists them; empty where none does."""
    for file, mark in (("movies.csv", ","), ("movies.dat", "::"), ("u.item", "|")):
        if archive.find(file):
            name = archive.only(file, what="movies")
            return _titles(_decoded(archive.read(name)), mark, archive.label(name))
    return {}


def _decoded(raw: bytes) -> str:
    """UTF-8 as since 10M; 100K and 1M are in ISO 8859-1."""
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError:
        return raw.decode("iso-8859-1")


def _titles(text: str, mark: str, label: str) -> dict[int, str]:
    titles: dict[int, str] = {}
    rows = csv.reader(io.StringIO(text)) if mark == "," else (ln.split(mark) for ln in text.split("\n"))
    for number, row in _counted(rows, label):
        if not row or row == [""] or (mark == "," and number == 1):
            continue
        if len(row) < 2 or not re.fullmatch("[0-9]{1,15}", row[0].strip()):
            raise UserError(f"{label}:{number}: cannot read a movie's id and title in {str(row)[:40]!r}")
        movie = int(row[0])
        if movie in titles:
            raise UserError(f"{label}:{number}: movie {movie} is listed twice")
        titles[movie] = row[1].strip()
    return titles


def _counted(rows: Iterable[list[str]], label: str) -> Iterator[tuple[int, list[str]]]:
    number = 0
    try:
        for number, row in enumerate(rows, 1):
            yield number, row
    except csv.Error as error:
        raise UserError(f"{label}:{number + 1}: cannot be read as CSV ({error})") from None


def _refuse_unknown(archive: Archive, found: Ratings, titles: dict[int, str]) -> None:
    if not titles:
        return
    movie = found.movie
    bad = np.flatnonzero(~np.isin(movie, list(titles)))
    if bad.size:
        name = next(n for file in LAYOUTS for n in archive.find(file))
        line, odd = found.line[bad[0]], movie[bad[0]]
        raise UserError(f"{archive.label(name)}:{line}: movie {odd} is not in the list of movies")


def _refuse_repeated_users(archive: Archive) -> None:
    for name in archive.find("users.dat"):
        seen: dict[bytes, int] = {}
        for number, row in enumerate(archive.read(name).split(b"\n"), 1):
            user = row.partition(b"::")[0]
            if user and user in seen:
                shown = user.decode("utf-8", "replace")
                raise UserError(
                    f"{archive.label(name)}:{number}: user {shown} is listed twice, "
                    f"first in line {seen[user]}"
                )
            seen[user] = number
