"""Your own arrays in one `.npz` file: `x` (n, …), `y` (n,) classes, and optionally `client` (n,).

`x_test` and `y_test` hold a test set; without them one is cut off.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from spreadout.core.errors import UserError
from spreadout.data.arrays import as_examples, refuse_gaps, whole_numbers
from spreadout.data.columns import Dense
from spreadout.data.io.npz import read_npz
from spreadout.data.sources.base import Instances, RawDataset, Source, register_source, single
from spreadout.data.sources.images import as_column

KNOWN = {"x", "y", "client", "x_test", "y_test"}
SMALLEST = 8  # pixels on a side of an image; smaller matrices are features
CHANNELS = (1, 3, 4)


@register_source
class Npz(Source):
    """Arrays as NumPy saved them."""

    about: ClassVar = "your arrays: x, y and client in one .npz file"
    name: str = "npz"

    def read(self, path: Path | None) -> RawDataset:
        if path is None:
            raise UserError("data.source = 'npz': set data.path to a .npz file with arrays x and y")
        arrays = read_npz(path, KNOWN)
        for name in ("x", "y"):
            if name not in arrays:
                raise UserError(f"{path}: has {', '.join(sorted(arrays)) or 'no arrays'}, but no {name}")
        try:
            x, y = as_examples(arrays["x"], arrays["y"])
            has_test = "x_test" in arrays or "y_test" in arrays
            held_out = as_examples(arrays["x_test"], arrays["y_test"]) if has_test else None
            client = whole_numbers("client", arrays["client"]) if "client" in arrays else None
            if client is not None:
                refuse_gaps("client", client)
        except KeyError as missing:
            raise UserError(f"{path}: x_test and y_test come together; {missing} is missing") from None
        except UserError as error:
            raise UserError(f"{path}: {error}") from None
        if held_out is not None and held_out[0].shape[1:] != x.shape[1:]:
            shapes = f"{tuple(held_out[0].shape[1:])}, x of {tuple(x.shape[1:])}"
            raise UserError(f"{path}: x_test has examples of shape {shapes}: they must agree")
        if client is not None and client.shape != y.shape:
            raise UserError(f"{path}: client has {len(client)} entries, y has {len(y)}")
        labels = [y] if held_out is None else [y, held_out[1]]
        classes = int(max(part.max() for part in labels)) + 1
        test = None
        if held_out is not None:
            test = Instances({"x": _column(held_out[0], arrays["x_test"])}, single(held_out[1]))
        return RawDataset(Instances({"x": _column(x, arrays["x"])}, single(y), client), classes, test)


def _column(features: Tensor, given: NDArray[Any]) -> Dense:
    """Images with their channels first, bytes of them as pixels; anything else as it is."""
    images = channels_first(features)
    if images is None:
        return Dense(features)
    return as_column(images.to(torch.uint8)) if given.dtype == np.uint8 else Dense(images)


def channels_first(features: Tensor) -> Tensor | None:
    """(n, h, w), (n, h, w, channels) or (n, channels, h, w) → (n, channels, h, w); None: no images."""
    sides = tuple(features.shape[1:])
    if len(sides) == 2 and min(sides) >= SMALLEST:
        return features[:, None]
    if len(sides) == 3 and sides[0] not in CHANNELS and sides[2] in CHANNELS:
        return features.movedim(-1, 1).contiguous()
    return features if len(sides) == 3 else None
