"""Your own arrays in one `.npz` file: `x` (n, …), `y` (n,) classes, and optionally `client` (n,).

`x_test` and `y_test` hold a test set; without them one is cut off. Classes and clients may be text or
numbers with gaps: they are numbered, training and test together, and keep their names.
"""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

import numpy as np
import torch

from spreadout.core.errors import UserError
from spreadout.data.arrays import as_examples
from spreadout.data.io.npz import read_npz
from spreadout.data.naming import client_numbers, numbered
from spreadout.data.sources.base import Instances, RawDataset, Source, register_source, single

KNOWN = {"x", "y", "client", "x_test", "y_test"}


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
            has_test = "x_test" in arrays or "y_test" in arrays
            parts = [arrays["y"], arrays["y_test"]] if has_test else [arrays["y"]]
            numbers, names = numbered("y", *parts)
            x, y = as_examples(arrays["x"], numbers[0])
            held_out = as_examples(arrays["x_test"], numbers[1]) if has_test else None
            client, clients = None, tuple[str, ...]()
            if "client" in arrays:
                ids, clients = client_numbers(arrays["client"])
                client = torch.from_numpy(ids)
        except KeyError as missing:
            raise UserError(f"{path}: x_test and y_test come together; {missing} is missing") from None
        except UserError as error:
            raise UserError(f"{path}: {error}") from None
        if held_out is not None and arrays["x_test"].shape[1:] != arrays["x"].shape[1:]:
            shapes = f"{arrays['x_test'].shape[1:]}, x of {arrays['x'].shape[1:]}"
            raise UserError(f"{path}: x_test has examples of shape {shapes}: they must agree")
        kinds = [arrays[name].dtype for name in ("x", "x_test") if name in arrays]
        if len({kind == np.uint8 for kind in kinds}) > 1:
            said = f"x is {kinds[0]} and x_test {kinds[1]}"
            raise UserError(f"{path}: {said}: bytes are scaled, so give both as bytes or neither")
        if client is not None and client.shape != y.shape:
            raise UserError(f"{path}: client has {len(client)} entries, y has {len(y)}")
        labels = [y] if held_out is None else [y, held_out[1]]
        classes = int(max(part.max() for part in labels)) + 1
        test = None
        if held_out is not None:
            test = Instances({"x": held_out[0]}, single(held_out[1]))
        train = Instances({"x": x}, single(y), client)
        return RawDataset(train, classes, test, class_names=names, class_ids=names, client_names=clients)
