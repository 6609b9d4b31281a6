"""What a source is, and what every source returns: labelled instances in their published parts."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import torch
from pydantic import BaseModel, ConfigDict
from torch import Tensor

from spreadout.core.errors import UserError
from spreadout.core.ragged import Ragged
from spreadout.data.columns import Column, select_all
from spreadout.data.io import cache, stored


@dataclass(frozen=True)
class Instances:
    """Inputs with their label sets, and whose they are where the source knows."""

    columns: Mapping[str, Column]
    labels: Ragged  # n label sets
    user: Tensor | None = None  # (n,)

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
    """

    train: Instances
    classes: int
    test: Instances | None = None
    row_columns: Mapping[str, str] = field(
        default_factory=dict
    )  # input columns that name rows of a table
    class_names: tuple[str, ...] = ()
    class_ids: tuple[str, ...] = ()  # what the source calls each row, where that is not its number


class Source(BaseModel, ABC):
    """A frozen value: its options are its fields (and the keys of `[data.source]` in a config)."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    name: str
    usual: ClassVar[Mapping[str, str]] = {}  # name → its file or folder inside SPREADOUT_DATA
    natural: ClassVar[Mapping[str, Any]] = {}  # keys of [data] that go with it unless told otherwise

    @abstractmethod
    def read(self, path: Path | None) -> RawDataset:
        """The instances."""

    def counts(self, path: Path) -> dict[str, int]:
        """Figures that only the files themselves tell, by the names they are published under."""
        return {}

    def locate(self, path: Path | None) -> Path:
        """Where the files lie: the given path, or their usual place in SPREADOUT_DATA."""
        found = path if path is not None else self.usual_path()
        if not found.exists():
            raise UserError(f"data.source = {self.name!r}: {found} is not there{self._where()}")
        return found

    def usual_path(self) -> Path:
        default = self.usual.get(self.name)
        if default is None:
            raise UserError(f"data.source = {self.name!r}: set data.path to the file or folder to read")
        home = data_home()
        if home is None:
            raise UserError(
                f"data.source = {self.name!r}: set data.path, or SPREADOUT_DATA to a folder that "
                f"holds {default}"
            )
        return home / default

    def _where(self) -> str:
        named = self.name in self.usual
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
        return kept(self, found, self.content(found), lambda into: write(self.parse(found), into))


def kept(source: Source, path: Path, files: Sequence[Path], store: Callable[[Path], None]) -> RawDataset:
    """What `store` writes of a source, from the cache where it was written before."""
    about = f"{type(source).__name__} {source.model_dump_json()}"
    return open_stored(cache.cached(path, files, about, store))


def data_home() -> Path | None:
    """The folder published data sets lie in."""
    told = os.environ.get("SPREADOUT_DATA")
    return Path(told).expanduser() if told else None


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
    names, ids = tuple(meta["class_names"]), tuple(meta["class_ids"])
    return RawDataset(
        parts["train"], meta["classes"], parts.get("test"), meta["row_columns"], names, ids
    )
