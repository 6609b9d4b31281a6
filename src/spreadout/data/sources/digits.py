"""scikit-learn's handwritten digits: 1,797 images of 8x8 pixels, 10 classes. Ships with a dependency."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

import torch

from spreadout.data.columns import Dense
from spreadout.data.published import PublishedDataset
from spreadout.data.sources.base import Instances, RawDataset, Source, register_source, single

DIGITS = PublishedDataset(
    "digits",
    "8x8 handwritten digits; ships with scikit-learn",
    {"examples": 1797, "classes": 10},
    "UCI; free",
    "https://scikit-learn.org/stable/datasets/toy_dataset.html",
)


@register_source
class Digits(Source):
    """Nothing to set: the data is part of scikit-learn."""

    published: ClassVar = (DIGITS,)
    reads_path: ClassVar = False
    name: str = DIGITS.name

    def locate(self, path: Path | None) -> Path:
        return Path()  # inside a dependency

    def read(self, path: Path | None) -> RawDataset:
        from sklearn.datasets import load_digits  # slow to import, and only needed here

        bunch = load_digits()
        x = torch.from_numpy(bunch.data).float() / 8 - 1  # pixels are 0 … 16
        labels = single(torch.from_numpy(bunch.target).long())
        names = tuple(str(digit) for digit in range(10))
        return RawDataset(Instances({"x": Dense(x)}, labels), classes=10, class_names=names)
