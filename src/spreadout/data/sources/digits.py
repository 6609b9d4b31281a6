"""scikit-learn's handwritten digits: 1,797 images of 8x8 pixels, 10 classes. Ships with a dependency."""

from __future__ import annotations

from pathlib import Path

import torch
from sklearn.datasets import load_digits

from spreadout.data.sources.base import Labelled, single


def load(path: Path | None) -> Labelled:
    bunch = load_digits()
    x = torch.from_numpy(bunch.data).float() / 8 - 1  # pixels are 0 … 16
    return Labelled(x, single(torch.from_numpy(bunch.target).long()), classes=10)
