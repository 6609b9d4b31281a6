"""scikit-learn's handwritten digits: 1,797 images of 8x8 pixels, 10 classes. Ships with a dependency."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import torch

from spreadout.data.columns import Dense
from spreadout.data.sources.base import Instances, RawDataset, Source, single


class Digits(Source):
    """Nothing to set: the data is part of scikit-learn."""

    name: Literal["digits"] = "digits"

    def locate(self, path: Path | None) -> Path:
        return Path()  # inside a dependency

    def read(self, path: Path | None) -> RawDataset:
        from sklearn.datasets import load_digits  # slow to import, and only needed here

        bunch = load_digits()
        x = torch.from_numpy(bunch.data).float() / 8 - 1  # pixels are 0 … 16
        labels = single(torch.from_numpy(bunch.target).long())
        names = tuple(str(digit) for digit in range(10))
        return RawDataset(Instances({"x": Dense(x)}, labels), classes=10, class_names=names)
