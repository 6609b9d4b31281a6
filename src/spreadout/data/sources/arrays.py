"""Your own arrays in one `.npz` file: `x` (n, …), `y` (n,) classes, and optionally `client` (n,).

`x_test` and `y_test` hold a test set; without them one is cut off.
"""

from __future__ import annotations

import zipfile
from pathlib import Path

import numpy as np
import torch

from spreadout.data.federated import as_examples
from spreadout.data.sources.base import Labelled, single
from spreadout.errors import UserError


def load(path: Path | None) -> Labelled:
    if path is None:
        raise UserError("data.source = 'npz': set data.path to a .npz file with arrays x and y")
    arrays = _read(path)
    for name in ("x", "y"):
        if name not in arrays:
            raise UserError(f"{path}: has {', '.join(sorted(arrays)) or 'no arrays'}, but no {name}")
    try:
        x, y = as_examples(arrays["x"], arrays["y"])
        held_out = as_examples(arrays["x_test"], arrays["y_test"]) if "x_test" in arrays else None
    except KeyError as missing:
        raise UserError(f"{path}: x_test needs {missing} beside it") from None
    except UserError as error:
        raise UserError(f"{path}: {error}") from None
    client = None
    if "client" in arrays:
        client = torch.from_numpy(np.asarray(arrays["client"]).astype(np.int64))
        if client.shape != y.shape:
            raise UserError(f"{path}: client has {len(client)} entries, y has {len(y)}")
    labels = [y] if held_out is None else [y, held_out[1]]
    classes = int(max(part.max() for part in labels)) + 1
    test = None if held_out is None else (held_out[0], single(held_out[1]))
    return Labelled(x, single(y), classes, test, client)


def _read(path: Path) -> dict[str, np.ndarray]:
    try:
        with np.load(path, allow_pickle=False) as file:
            return dict(file)
    except FileNotFoundError:
        raise UserError(f"data.path = {str(path)!r}: no such file") from None
    except (ValueError, OSError, zipfile.BadZipFile) as error:
        raise UserError(f"{path}: not a readable .npz file ({error})") from None
