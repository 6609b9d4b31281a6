"""MNIST's idx files, plain or gzipped: `train-images-idx3-ubyte`, `train-labels-idx1-ubyte`, `t10k-…`.

Two zero bytes, the type (8: bytes), the number of dimensions, each dimension as a big-endian 32-bit
number, then the values.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from spreadout.core.errors import UserError
from spreadout.core.limits import refuse_bomb
from spreadout.data.arrays import as_column
from spreadout.data.io.archive import open_plain
from spreadout.data.published import PublishedDataset, PublishedFile
from spreadout.data.sources.base import FileSource, Instances, RawDataset, register_source, single


def _published(
    name: str, about: str, base: str, md5s: Mapping[str, str], cite: str, home: str
) -> PublishedDataset:
    return PublishedDataset(
        name,
        about,
        {"train": 60_000, "test": 10_000, "classes": 10},
        cite,
        home,
        tuple(PublishedFile(f"{name}/{file}", md5, base + file) for file, md5 in md5s.items()),
        name,
        layout="the four idx files, gzipped or not",
    )


@register_source
class Idx(FileSource):
    """Grey pictures with one label each."""

    about: ClassVar = "MNIST's file format"
    published: ClassVar = (
        _published(
            "mnist",
            "28x28 handwritten digits",
            "https://ossci-datasets.s3.amazonaws.com/mnist/",
            {
                "train-images-idx3-ubyte.gz": "f68b3c2dcbeaaa9fbdd348bbdeb94873",
                "train-labels-idx1-ubyte.gz": "d53e105ee54ea40749a09fcbcd1e9432",
                "t10k-images-idx3-ubyte.gz": "9fb629c4189551a2d022fa330f9573f3",
                "t10k-labels-idx1-ubyte.gz": "ec29112dd5afa0611ce80d1b7f02629c",
            },
            "LeCun et al. 1998",
            "http://yann.lecun.com/exdb/mnist/",
        ),
        _published(
            "fashion-mnist",
            "28x28 pictures of clothes",
            "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
            {
                "train-images-idx3-ubyte.gz": "8d4fb7e6c68d591d4c3dfef9ec88bf0d",
                "train-labels-idx1-ubyte.gz": "25c81989df183df01b3e8a0aad5dffbe",
                "t10k-images-idx3-ubyte.gz": "bef4ecab320f06d8554ea6380940ec79",
                "t10k-labels-idx1-ubyte.gz": "bb300cfdad3c16e7a12a480ee83cd310",
            },
            "Xiao et al. 2017; MIT",
            "https://github.com/zalandoresearch/fashion-mnist",
        ),
    )
    name: str = "idx"

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
    return read_idx_file(path, dimensions)


def read_idx_file(path: Path, dimensions: int) -> Tensor:
    """The bytes of one file, in so many dimensions."""
    with open_plain(path) as stream:
        head = stream.read(4 + 4 * dimensions)
        if len(head) < 4 + 4 * dimensions or head[:4] != bytes([0, 0, 8, dimensions]):
            raise UserError(f"{path}: not an idx file of bytes in {dimensions} dimensions")
        shape = np.frombuffer(head, dtype=">u4", offset=4).astype(int).tolist()
        promised = math.prod(shape)
        refuse_bomb(path, promised, path.stat().st_size)
        raw = bytearray(stream.read(promised + 1))  # one more, to see whether more follow
    if len(raw) != promised:
        holds = f"{len(raw):,}" if len(raw) < promised else "more"
        raise UserError(f"{path}: promises {promised:,} bytes, holds {holds}; it may be cut short")
    return torch.frombuffer(raw, dtype=torch.uint8).view(*shape) if promised else torch.zeros(shape)
