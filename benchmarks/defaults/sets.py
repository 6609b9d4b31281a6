"""The data sets of the search, each as rows to train on and a fifth to validate on.

Published training parts only; a test part is never read into a search. A set is a folder of Mulan's ARFF
files, `digits`, `omniglot`, or NAME.npz with x (n, features), y (n, C) of 0 and 1, and va (n,), true
where a row is for validation.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from benchmarks.defaults.emulation import Held
from spreadout.core.errors import UserError
from spreadout.data.sources.base import Instances
from spreadout.data.sources.digits import Digits
from spreadout.data.sources.mulan_arff import MulanArff
from spreadout.data.sources.omniglot import Omniglot

# Rows of the sets whose validation parts were drawn one after another, from one generator each line.
DRAWN = (
    {
        "bibtex": 4880,
        "delicious": 12_920,
        "enron": 1123,
        "medical": 333,
        "yeast": 1500,
        "scene": 1211,
        "tmc2007": 21_519,  # tmc2007-500
        "emotions": 391,
        "digits": 1257,
    },
    {"corel16k": 1744, "cal500": 502},  # Corel16k001's published test file; CAL500, which has one file
)
SETS = (*DRAWN[0], *DRAWN[1], "omniglot")
DIGITS_USED = DRAWN[0]["digits"]  # of 1,797; the others are a test part
LAST_DRAWER = 16  # of twenty people who drew each character; the next four validate


def load(name: str, folders: Sequence[Path], device: torch.device) -> Held:
    """A set by its name, from the first folder that has it."""
    x, y, valid = arrays(name, folders)
    return Held.of(x.to(device), y.to(device), valid.to(device))


def arrays(name: str, folders: Sequence[Path]) -> tuple[Tensor, Tensor, Tensor]:
    """x (n, features) float32, y (n, C) uint8, and which rows validate (n,) bool."""
    if (stored := _find(f"{name}.npz", folders)) is not None:
        return _stored(stored)
    if name == "digits":
        return _digits()
    folder = _find(name, folders)
    if folder is None:
        where = ", ".join(map(str, folders)) or "no folder was given"
        raise UserError(f"--sets {name}: no folder {name} and no {name}.npz in --data ({where})")
    if name == "omniglot":
        return _omniglot(folder)
    found = MulanArff().read(folder)
    x, y = _matrices(found.train, found.classes)
    return _rounded(x), y, validation_rows(name, len(x))


def validation_rows(name: str, rows: int) -> Tensor:
    """A fifth at random; of the sets above the very rows that the search validated on: (rows,) bool."""
    together = next((sets for sets in DRAWN if name in sets), {name: rows})
    if together[name] != rows:
        raise UserError(
            f"--sets {name}: has {rows} rows to train on, the published set has {together[name]}; "
            "give other data another name"
        )
    draw, found = np.random.default_rng(0), torch.zeros(rows, dtype=torch.bool)
    for other, count in together.items():
        chosen = draw.permutation(count)[: count // 5]
        if other == name:
            found[torch.from_numpy(chosen)] = True
    return found


def _find(name: str, folders: Sequence[Path]) -> Path | None:
    return next((folder / name for folder in folders if (folder / name).exists()), None)


def _stored(path: Path) -> tuple[Tensor, Tensor, Tensor]:
    with np.load(path) as held:
        if missing := {"x", "y", "va"} - set(held.files):
            raise UserError(f"{path}: has no array {min(missing)!r}; give x, y and va")
        x, y, valid = held["x"], held["y"], held["va"]
    if not len(x) == len(y) == len(valid):
        rows = f"{len(x)}, {len(y)} and {len(valid)}"
        raise UserError(f"{path}: x, y and va have {rows} rows; they must agree")
    return torch.from_numpy(x).float(), torch.from_numpy(y != 0).byte(), torch.from_numpy(valid != 0)


def _digits() -> tuple[Tensor, Tensor, Tensor]:
    found = Digits().read(None)
    used = torch.from_numpy(np.random.default_rng(1).permutation(len(found.train))[:DIGITS_USED])
    x, y = _matrices(found.train.select(used), found.classes)
    return (x + 1) / 2, y, validation_rows("digits", len(x))  # pixels from 0 to 1


def _omniglot(folder: Path) -> tuple[Tensor, Tensor, Tensor]:
    found = Omniglot().read(folder)
    x, y = _matrices(found.train, found.classes)
    assert found.train.user is not None
    drawer = found.train.user % 20 + 1  # twenty people for each alphabet, numbered one after another
    return _rounded((x.flatten(1) + 1) / 2), y, drawer > LAST_DRAWER


def _matrices(instances: Instances, classes: int) -> tuple[Tensor, Tensor]:
    count, labels = len(instances), instances.labels
    y = torch.zeros(count, classes, dtype=torch.uint8)
    y[torch.repeat_interleave(torch.arange(count), labels.lengths), labels.values] = 1
    return instances.columns["x"].take(torch.arange(count)), y


def _rounded(x: Tensor) -> Tensor:
    """The search kept features in two bytes each."""
    return x.half().float()
