"""What a source is, and what every source returns: labelled instances in their published parts."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import torch
from pydantic import field_validator
from torch import Tensor

from spreadout.core.errors import UserError
from spreadout.core.ragged import Ragged
from spreadout.core.registry import NamedSection, Registry, unknown_name
from spreadout.data.arrays import whole_numbers, with_label_sets
from spreadout.data.columns import Column, select_all
from spreadout.data.gaps import Gappy
from spreadout.data.input_columns import InputColumns
from spreadout.data.io import cache, stored
from spreadout.data.published import PublishedDataset

SourceT = TypeVar("SourceT", bound="type[Source]")
SOURCES: Registry[type[Source]] = Registry("source")


def register_source(source: SourceT) -> SourceT:
    """A class decorator: configs then know the source by its `name`, and by those of its data sets.

    >>> import spreadout as so
    >>> @so.register_source
    ... class Coin(so.Source):
    ...     name: str = "coin"
    ...
    ...     def read(self, path):
    ...         return so.RawDataset(so.Instances.of([[0.0], [1.0]] * 10, [0, 1] * 10), classes=2)
    >>> so.DataConfig(source="coin").source
    Coin(name='coin')
    """
    source.register()
    return source


@dataclass(frozen=True)
class Instances:
    """Inputs with their label sets, and whose they are where the source knows.

    >>> import spreadout as so
    >>> held = so.Instances.of(x=[[0.0], [1.0]], y=[[0, 2], [1]], user=[7, 7])
    >>> len(held), held.labels[0].tolist(), held.user.tolist()
    (2, [0, 2], [7, 7])
    """

    columns: Mapping[str, Column]
    labels: Ragged  # n label sets
    user: Tensor | None = None  # (n,)

    @classmethod
    def of(cls, x: Any, y: Any, user: Any = None) -> Instances:
        """From arrays: inputs, a class or a list of classes for each, and whose each is."""
        inputs, labels = with_label_sets(x, y)
        sets = labels if isinstance(labels, Ragged) else single(labels)
        whose = None if user is None else whole_numbers("user", user)
        if whose is not None and len(whose) != len(sets):
            raise UserError(f"user has {len(whose)} entries, y has {len(sets)}: they must agree")
        return cls({"x": inputs}, sets, whose)

    def __len__(self) -> int:
        return len(self.labels)

    def select(self, at: Tensor) -> Instances:
        user = None if self.user is None else self.user[at]
        return Instances(select_all(self.columns, at), self.labels.select(at), user)

    def compact(self) -> Instances:
        """The same with nobody else's values behind them: what is held out cannot be trained on."""
        columns = {name: column.compact() for name, column in self.columns.items()}
        return Instances(columns, self.labels, self.user)


@dataclass(frozen=True)
class RawDataset:
    """A source's instances. `test` is the published test part; None: cut one off.

    Labels below `classes` have a row in the table. Test labels from there on are classes that are only
    ever retrieved, never trained.

    >>> import spreadout as so
    >>> train = so.Instances.of([[0.0], [1.0]], [0, 1])
    >>> found = so.RawDataset(train, classes=2, class_names=("no", "yes"))
    >>> found.test is None  # then a part of the training instances is held out
    True
    """

    train: Instances
    classes: int
    test: Instances | None = None
    row_columns: Mapping[str, str] = field(
        default_factory=dict
    )  # input columns that name rows of a table
    class_names: tuple[str, ...] = ()
    class_ids: tuple[str, ...] = ()  # what the source calls each row, where that is not its number
    notes: tuple[str, ...] = ()  # what a user should know of how the files were read
    client_names: tuple[str, ...] = ()  # what the source calls each user, where it is not the number
    input_columns: InputColumns | None = (
        None  # of a table: the columns of x, in which NaN is an empty cell
    )
    # What rows decided of the inputs, with the remedy where they must not: under `[privacy]`.
    found_in_rows: tuple[str, ...] = ()
    gaps: tuple[Gappy, ...] = ()  # of a sparse x: attributes that some rows have no value of


class Source(NamedSection, ABC):
    """A frozen value: its options are its fields (and the keys of `[data.source]` in a config).

    >>> import numpy as np
    >>> import spreadout as so
    >>> @so.register_source
    ... class Corners(so.Source):
    ...     name: str = "corners"
    ...     copies: int = 10
    ...
    ...     def read(self, path):
    ...         corner = np.tile(np.arange(4), self.copies)
    ...         x = np.stack([corner % 2, corner // 2], axis=1)
    ...         return so.RawDataset(so.Instances.of(x, corner), classes=4)
    >>> data = so.load_data(so.DataConfig(source={"name": "corners", "copies": 20}))
    >>> data.train.clients, data.train.examples + len(data.test)
    (4, 80)
    """

    registry: ClassVar[Registry[type[Source]]] = SOURCES
    about: ClassVar[str] = ""  # a line for `spreadout data list`; empty: the docstring's first
    published: ClassVar[tuple[PublishedDataset, ...]] = ()  # data sets it reads, each by its own name
    data_defaults: ClassVar[Mapping[str, Any]] = {}  # defaults of keys of [data]
    reads_path: ClassVar[bool] = True  # whether it reads a file or folder; if not, none may be named
    listed: ClassVar[bool] = True  # whether `spreadout data list` shows it
    hashes: ClassVar[bool] = False  # whether its inputs are hashed features already
    turns_ink_bright: ClassVar[bool] = False  # whether it turns dark strokes on white into bright ones

    @classmethod
    def names(cls) -> tuple[str, ...]:
        """Its own name, for any files of its format, and those of the data sets it declares."""
        return tuple(dict.fromkeys((*super().names(), *(data.name for data in cls.published))))

    @field_validator("name")
    @classmethod
    def _is_its_name(cls, name: str) -> str:
        if name not in cls.names():
            raise unknown_name(name, cls.names())
        return name

    @abstractmethod
    def read(self, path: Path | None) -> RawDataset:
        """The instances."""

    def counts(self, path: Path) -> dict[str, int]:
        """Figures that are counted in the files, by the names they are published under."""
        return {}

    def locate(self, path: Path | None) -> Path:
        """Where the files lie: the given path, or the default one in SPREADOUT_DATA."""
        found = path if path is not None else self.default_location()
        if not found.exists():
            raise UserError(f"data.source = {self.name!r}: {found} is not there{self._where()}")
        return found

    def default_location(self) -> Path:
        """Where the data set of this name lies in SPREADOUT_DATA."""
        place = next((data.place for data in self.published if data.name == self.name), "")
        if not place:
            raise UserError(f"data.source = {self.name!r}: set data.path to the file or folder to read")
        home = data_home()
        if home is None:
            raise UserError(
                f"data.source = {self.name!r}: set data.path, or SPREADOUT_DATA to a folder that "
                f"holds {place}"
            )
        return home / place

    def _where(self) -> str:
        named = any(data.name == self.name for data in self.published)
        return f"; `spreadout data list {self.name}` says where to get it" if named else ""


class FileSource(Source):
    """A source that parses published files, once: afterwards they come out of the cache."""

    @abstractmethod
    def parse(self, path: Path) -> RawDataset:
        """Read the published files."""

    def content(self, path: Path) -> list[Path]:
        """The files and folders a cache entry depends on."""
        return [path]

    def read(self, path: Path | None) -> RawDataset:
        found = self.locate(path)
        return from_cache(self, found, self.content(found), lambda into: write(self.parse(found), into))


def from_cache(
    source: Source, path: Path, files: Sequence[Path], store: Callable[[Path], None]
) -> RawDataset:
    """What `store` writes of a source, from the cache where it was written before."""
    about = f"{type(source).__name__} {source.model_dump_json()}"
    return open_stored(cache.cached(path, files, about, store))


def data_home() -> Path | None:
    """The folder published data sets lie in."""
    folder = os.environ.get("SPREADOUT_DATA")
    return Path(folder).expanduser() if folder else None


def single(label: Tensor) -> Ragged:
    """One label per instance as label sets."""
    return Ragged(torch.arange(len(label) + 1), label)


def write(found: RawDataset, folder: Path) -> None:
    """RawDataset instances as arrays in a folder."""
    meta: dict[str, Any] = {
        "classes": found.classes,
        "row_columns": dict(found.row_columns),
        "class_names": list(found.class_names),
        "class_ids": list(found.class_ids),
        "notes": list(found.notes),
        "client_names": list(found.client_names),
        "input_columns": None if found.input_columns is None else found.input_columns.as_json(),
        "found_in_rows": list(found.found_in_rows),
        "gaps": [one.as_json() for one in found.gaps],
        "parts": {},
    }
    for part, instances in (("train", found.train), ("test", found.test)):
        if instances is None:
            continue
        arrays = stored.column_arrays(part, instances.columns)
        arrays |= {f"{part}-labels": instances.labels.values, f"{part}-sets": instances.labels.offsets}
        if instances.user is not None:
            arrays[f"{part}-user"] = instances.user
        stored.write_arrays(folder, arrays)
        meta["parts"][part] = stored.columns_meta(instances.columns)
    stored.write_index(folder, meta)


def open_stored(folder: Path) -> RawDataset:
    """What `write` wrote, memory-mapped."""
    meta = stored.read_index(folder)
    assert meta is not None  # the cache gives whole folders only
    parts = {}
    for part, described in meta["parts"].items():
        columns = stored.open_columns(folder, part, described)
        sets, labels = (stored.open_array(folder / f"{part}-{n}.npy") for n in ("sets", "labels"))
        whose = folder / f"{part}-user.npy"
        user = stored.open_array(whose) if whose.exists() else None
        parts[part] = Instances(columns, Ragged(sets, labels), user)
    names, ids, notes = (tuple(meta[key]) for key in ("class_names", "class_ids", "notes"))
    called, of_rows = (tuple(meta.get(key, ())) for key in ("client_names", "found_in_rows"))
    rows, inputs = meta["row_columns"], InputColumns.from_json(meta.get("input_columns"))
    return RawDataset(
        parts["train"],
        meta["classes"],
        parts.get("test"),
        rows,
        names,
        ids,
        notes,
        called,
        inputs,
        of_rows,
        tuple(Gappy(**one) for one in meta.get("gaps", ())),
    )
