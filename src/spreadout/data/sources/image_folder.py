"""Your own pictures: one folder per class, or per person.

`layout = "class"`: CLASS/picture, the class being also the one who holds it (a phone that knows one
face); `"person/class"`: PERSON/CLASS/picture. Where the top holds `train` and `test` (as CIFAR and many
others come in PNG form), they are the two parts. A folder, zip or tar.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from typing import ClassVar, Literal

import numpy as np
import torch
from pydantic import Field

from spreadout.core.errors import UserError
from spreadout.data.arrays import as_column
from spreadout.data.io.archive import Archive, opened
from spreadout.data.sources.base import FileSource, Instances, RawDataset, register_source, single
from spreadout.data.sources.images import decode_all, is_picture

PARTS = {
    "train": "train",
    "training": "train",
    "test": "test",
    "testing": "test",
    "val": "val",
    "validation": "val",
    "valid": "val",
}


@register_source
class ImageFolder(FileSource):
    """Pictures whose folders say what they show."""

    about: ClassVar = "your pictures, one folder per class or person"
    name: str = "image-folder"
    layout: Literal["class", "person/class"] = "class"
    size: int = Field(32, ge=4, le=1024)  # pixels a side
    grey: bool = False

    def parse(self, path: Path) -> RawDataset:
        with opened(path) as archive:
            return read(archive, size=self.size, grey=self.grey, layout=self.layout)


def read(archive: Archive, *, size: int, grey: bool, layout: str = "class") -> RawDataset:
    """Every picture in the folders of an archive."""
    names = [name for name in archive.names if is_picture(name)]
    if not names:
        raise UserError(f"{archive.path}: holds no pictures; put one folder per class there")
    depth = 2 if layout == "class" else 3  # folders and the picture itself
    paths = [PurePosixPath(name).parts for name in names]
    parts = [next((PARTS[p.lower()] for p in path[:-depth] if p.lower() in PARTS), "") for path in paths]
    for name, path in zip(names, paths, strict=True):
        if len(path) < depth:
            wanted = "CLASS/picture" if depth == 2 else "PERSON/CLASS/picture"
            raise UserError(f"{archive.label(name)}: lies too high up; pictures lie as {wanted}")
    classes = sorted({path[-2] for path in paths})
    people = sorted({path[-depth] for path in paths}) if layout == "person/class" else []
    number = {name: i for i, name in enumerate(classes)}
    person = {name: i for i, name in enumerate(people)}
    label = np.array([number[path[-2]] for path in paths])
    user = np.array([person[path[-depth]] for path in paths]) if people else None
    found = {}
    if {"test", "val"} <= set(parts):
        raise UserError(
            f"{archive.path}: has test/ and val/; point data.path at a folder with one of them"
        )
    parts = ["test" if part == "val" else part for part in parts]
    for part in ("train", "test", ""):
        at = np.flatnonzero([p == part for p in parts])
        if len(at):
            whose = None if user is None else user[at]
            found[part] = _instances(archive, [names[i] for i in at], label[at], whose, size, grey)
    if "" in found and len(found) > 1:
        raise UserError(
            f"{archive.path}: has train/ or test/ and other pictures too; use one or the other"
        )
    if "test" in found and "train" not in found:
        raise UserError(f"{archive.path}: has test/ but no train/")
    train = found.get("train") or found[""]
    called = tuple(classes)
    return RawDataset(train, len(called), found.get("test"), class_names=called, class_ids=called)


def _instances(
    archive: Archive,
    names: Sequence[str],
    label: np.ndarray,
    user: np.ndarray | None,
    size: int,
    grey: bool,
) -> Instances:
    pixels = decode_all(names, archive.read, archive.label, size=size, grey=grey)
    labels = single(torch.from_numpy(label.astype(np.int64)))
    whose = None if user is None else torch.from_numpy(user.astype(np.int64))
    return Instances({"x": as_column(pixels)}, labels, whose)
