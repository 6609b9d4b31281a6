"""MNIST's idx files, plain or gzipped: `train-images-idx3-ubyte`, `train-labels-idx1-ubyte`, `t10k-…`.

Two zero bytes, the type (8: bytes), the number of dimensions, each dimension as a big-endian 32-bit
number, then the values.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar, Literal

import numpy as np
import torch
from torch import Tensor

from spreadout.core.errors import UserError
from spreadout.data.io.archive import open_plain
from spreadout.data.sources.base import FileSource, Instances, RawDataset, single
from spreadout.data.sources.images import as_column


class Idx(FileSource):
    """Grey pictures with one label each."""

    usual: ClassVar[Mapping[str, str]] = {"mnist": "mnist", "fashion-mnist": "fashion-mnist"}
    name: Literal["idx", "mnist", "fashion-mnist"]

    def parse(self, path: Path) -> RawDataset:
        train, test = (_part(path, part) for part in ("train", "t10k"))
        shapes = [tuple(part.columns["x"].take(torch.tensor(0)).shape) for part in (train, test)]
        if shapes[0] != shapes[1]:
            raise UserError(f"{path}: train pictures are {shapes[0]}, t10k pictures {shapes[1]}")
        largest = max(int(part.labels.values.max()) for part in (train, test))
        return RawDataset(train, largest + 1, test)


def _part(folder: Path, part: str) -> Instances:
    pictures = _read(folder, f"{part}-images-idx3-ubyte", 3)
    labels = _read(folder, f"{part}-labels-idx1-ubyte", 1)
    if len(pictures) != len(labels):
        raise UserError(f"{folder}: {len(pictures):,} {part} pictures, but {len(labels):,} labels")
    if not len(labels):
        raise UserError(f"{folder}: the {part} part is empty")
    return Instances({"x": as_column(pictures[:, None])}, single(labels.long()))


def _read(folder: Path, name: str, dimensions: int) -> Tensor:
    # Some copies have a dot for the last dash.
    dotted = name.replace("-idx", ".idx")
    tries = [folder / f"{n}{end}" for n in (name, dotted) for end in ("", ".gz")]
    path = next((p for p in tries if p.exists()), None)
    if path is None:
        raise UserError(f"{folder}: has no {name} (or {name}.gz)")
    with open_plain(path) as stream:
        raw = stream.read()
    if len(raw) < 4 + 4 * dimensions or raw[:4] != bytes([0, 0, 8, dimensions]):
        raise UserError(f"{path}: not an idx file of bytes in {dimensions} dimensions")
    shape = np.frombuffer(raw, dtype=">u4", count=dimensions, offset=4).astype(int).tolist()
    values = np.frombuffer(raw, dtype=np.uint8, offset=4 + 4 * dimensions)
    if values.size != math.prod(shape):
        raise UserError(
            f"{path}: promises {math.prod(shape):,} bytes, holds {values.size:,}; it may be cut short"
        )
    return torch.from_numpy(values.copy()).view(*shape)
