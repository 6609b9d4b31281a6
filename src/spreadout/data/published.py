"""What a source may declare of a published data set: the figures, the files, and where they come from.

Nothing is shipped. Figures and checksums are the publishers' own, or, for files whose publisher gives
none, those that independent loaders agree on.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class PublishedFile:
    """A published file: its place in SPREADOUT_DATA, its MD5, and where it may be fetched from.

    >>> import spreadout as so
    >>> so.PublishedFile("letters/train.csv", md5="d41d8cd98f00b204e9800998ecf8427e").place
    'letters/train.csv'
    """

    place: str
    md5: str | None = None
    url: str | None = None


@dataclass(frozen=True)
class PublishedDataset:
    """A data set that configs know by name; `figures` are counts that `data check` compares.

    >>> import spreadout as so
    >>> letters = so.PublishedDataset("letters", "hand-written letters", figures={"classes": 26})
    >>> letters.fetchable  # it names no file with an address
    False
    """

    name: str
    about: str
    figures: Mapping[str, int | float] = field(default_factory=dict)
    terms: str = ""
    home: str = ""  # where people find it
    files: tuple[PublishedFile, ...] = ()
    place: str = ""  # its file or folder in SPREADOUT_DATA; empty: it ships with a dependency
    layout: str = ""  # what must lie there, where that is not one file of that name

    @property
    def fetchable(self) -> bool:
        return bool(self.files) and all(file.url for file in self.files)
