"""CIFAR-10 and CIFAR-100 (Krizhevsky 2009): the python archive, the binary one, or folders of PNGs.

The python archive holds pickles, which `data/io/pickled.py` reads without running code.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from torch import Tensor

from spreadout.core.errors import UserError
from spreadout.data.arrays import as_column
from spreadout.data.io.archive import Archive, opened
from spreadout.data.io.pickled import read_pickle
from spreadout.data.published import PublishedDataset, PublishedFile
from spreadout.data.sources import image_folder
from spreadout.data.sources.base import FileSource, Instances, RawDataset, register_source, single

PIXELS = 3 * 32 * 32


def _published(name: str, classes: int, md5: str) -> PublishedDataset:
    toronto, file = "https://www.cs.toronto.edu/~kriz/", f"{name}-python.tar.gz"
    return PublishedDataset(
        name,
        "32x32 photographs",
        {"train": 50_000, "test": 10_000, "classes": classes},
        "Krizhevsky 2009",
        f"{toronto}cifar.html",
        (PublishedFile(file, md5, f"{toronto}{file}"),),
        file,
        f"{file}, {name}-binary.tar.gz, or a folder {name} of PNGs",
    )


@register_source
class Cifar(FileSource):
    """32x32 colour photographs of 10 or 100 kinds of thing."""

    published: ClassVar = (
        _published("cifar-10", 10, "c58f30108f718f92721af3b95e74349a"),
        _published("cifar-100", 100, "eb9058c3a382ffc7106e4002c42a8d85"),
    )
    labels: Literal["fine", "coarse"] = "fine"  # CIFAR-100 has 100 fine ones and 20 coarse

    def locate(self, path: Path | None) -> Path:
        if path is None:
            default = self.default_location()
            others = (default.with_name(f"{self.name}-binary.tar.gz"), default.with_name(self.name))
            path = next((p for p in (default, *others) if p.exists()), None)
        return super().locate(path)

    def parse(self, path: Path) -> RawDataset:
        ten = self.name == "cifar-10"
        if ten and self.labels == "coarse":
            raise UserError("data.source.labels = 'coarse': only CIFAR-100 has coarse labels")
        classes = 10 if ten else 20 if self.labels == "coarse" else 100
        with opened(path) as archive:
            files = {Path(name).name: name for name in archive.names}
            if "train.bin" in files or "data_batch_1.bin" in files:
                train, test = (self._binary(archive, files, part) for part in ("train", "test"))
            elif "train" in files or "data_batch_1" in files:
                train, test = (self._python(archive, files, part) for part in ("train", "test"))
            else:
                found = image_folder.read(archive, size=32, grey=False)
                if found.classes != classes:
                    raise UserError(f"{path}: has {found.classes} folders of pictures, not {classes}")
                return found
        for part in (train, test):
            if int(part.labels.values.max()) >= classes:
                raise UserError(f"{path}: a label beyond {classes - 1}; is it {self.name}?")
        return RawDataset(train, classes, test)

    def _names(self, files: Mapping[str, str], part: str, ending: str) -> list[str]:
        if self.name == "cifar-100":
            wanted = [f"{part}{ending}"]
        elif part == "test":
            wanted = [f"test_batch{ending}"]
        else:
            wanted = [f"data_batch_{i}{ending}" for i in range(1, 6)]
        for name in wanted:
            if name not in files:
                raise UserError(f"data.source = {self.name!r}: the archive has no {name}")
        return [files[name] for name in wanted]

    def _binary(self, archive: Archive, files: Mapping[str, str], part: str) -> Instances:
        """Records of the label (coarse, then fine in CIFAR-100) and 3,072 pixels."""
        marks = 1 if self.name == "cifar-10" else 2
        records = []
        for name in self._names(files, part, ".bin"):
            raw = np.frombuffer(archive.read(name), dtype=np.uint8)
            if not raw.size or raw.size % (marks + PIXELS):
                raise UserError(
                    f"{archive.label(name)}: {raw.size:,} bytes are no whole number of records of "
                    f"{marks + PIXELS}; it may be cut short"
                )
            records.append(raw.reshape(-1, marks + PIXELS))
        every = np.concatenate(records)
        label = every[:, 0 if self.labels == "coarse" else marks - 1]
        return _instances(every[:, marks:], label.astype(np.int64))

    def _python(self, archive: Archive, files: Mapping[str, str], part: str) -> Instances:
        key = "labels" if self.name == "cifar-10" else f"{self.labels}_labels"
        pixels, labels = [], []
        for name in self._names(files, part, ""):
            batch = _batch(archive.read(name), archive.label(name))
            data: Any = batch.get("data")
            whole = isinstance(data, np.ndarray) and data.dtype == np.uint8 and data.ndim == 2
            if not whole or data.shape[1] != PIXELS or not isinstance(batch.get(key), list | np.ndarray):
                raise UserError(f"{archive.label(name)}: no batch of {key} with {PIXELS} pixels each")
            pixels.append(data)
            labels.append(_labels(batch[key], archive.label(name)))
        return _instances(np.concatenate(pixels), np.concatenate(labels))


def _labels(found: Any, label: str) -> np.ndarray:
    try:
        labels = np.asarray(found)
    except (ValueError, TypeError):
        labels = np.empty(0)
    if labels.ndim != 1 or labels.dtype.kind not in "iu" or (labels.size and labels.min() < 0):
        raise UserError(f"{label}: its labels are not a list of whole numbers")
    return labels.astype(np.int64)


def _instances(pixels: np.ndarray, label: np.ndarray) -> Instances:
    if len(pixels) != len(label):
        raise UserError(f"data.source: {len(pixels):,} pictures, but {len(label):,} labels")
    images: Tensor = torch.from_numpy(np.ascontiguousarray(pixels)).view(-1, 3, 32, 32)
    return Instances({"x": as_column(images)}, single(torch.from_numpy(label)))


def _batch(raw: bytes, label: str) -> dict[str, Any]:
    try:
        found = read_pickle(raw)
    except UserError:
        raise
    except Exception as error:  # a broken pickle may raise anything
        reason = str(error).partition("\n")[0][:80] or type(error).__name__
        raise UserError(f"{label}: not a CIFAR batch ({reason})") from None
    if not isinstance(found, dict):
        raise UserError(f"{label}: not a CIFAR batch, but a {type(found).__name__}")
    return {k.decode("latin1") if isinstance(k, bytes) else str(k): v for k, v in found.items()}
