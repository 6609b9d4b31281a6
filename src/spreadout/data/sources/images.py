"""Decoding pictures to one size: (n, channels, height, width) bytes."""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from spreadout.core.errors import UserError
from spreadout.core.limits import refuse_bomb
from spreadout.data.io.archive import PICTURES
from spreadout.data.sources.tiff import tile_pixels

FORMATS = ("PNG", "JPEG", "BMP", "WEBP", "GIF", "TIFF")  # some others are decoded by programs
WORST = 12  # bytes a pixel takes while it is decoded, turned and put on white


def is_picture(name: str) -> bool:
    return name.lower().endswith(PICTURES)


def decode_all(
    names: Sequence[str],
    read: Callable[[str], bytes],
    label: Callable[[str], str],
    *,
    size: int,
    grey: bool,
) -> Tensor:
    """Every image, its shorter side scaled to `size` and the middle cut out, as bytes."""
    module = _pillow()
    pixels = np.empty((len(names), 1 if grey else 3, size, size), dtype=np.uint8)
    for i, name in enumerate(names):
        pixels[i] = _decode(module, read(name), label(name), size, grey)
    return torch.from_numpy(pixels)


def _decode(module: Any, raw: bytes, label: str, size: int, grey: bool) -> np.ndarray:
    try:
        with warnings.catch_warnings():
            # Pillow's own limit does not know how large the file is; ours does.
            warnings.simplefilter("ignore", module.DecompressionBombWarning)
            opened = module.open(io.BytesIO(raw), formats=FORMATS)  # reads no pixels yet
            wide, high = opened.size
            what = f"{label}: a picture of {wide:,} x {high:,} pixels"
            refuse_bomb(what, max(wide * high, tile_pixels(raw)) * WORST, len(raw))
            return _fitted(module, _upright(module, opened).convert("L" if grey else "RGB"), size)
    except (UserError, MemoryError):
        raise
    except Exception as error:  # a broken picture may raise anything
        reason = re.sub(r" <_io.*", "", str(error)).partition("\n")[0][:80] or type(error).__name__
        raise UserError(f"{label}: does not decode as a picture ({reason})") from None


def _fitted(module: Any, image: Any, size: int) -> np.ndarray:
    """Its shorter side scaled and the middle cut out: (channels, size, size)."""
    wide, high = image.size
    if (wide, high) != (size, size):
        side = min(wide, high)
        left, top = (wide - side) // 2, (high - side) // 2
        image = image.resize(
            (size, size), module.Resampling.BOX, box=(left, top, left + side, top + side)
        )
    array = np.asarray(image, dtype=np.uint8)
    return array[None] if array.ndim == 2 else array.transpose(2, 0, 1)


def _upright(module: Any, image: Any) -> Any:
    """Turned as the camera was held, on white where it is transparent, in eight bits."""
    from PIL import ImageOps

    image = ImageOps.exif_transpose(image)
    if image.mode.startswith("I"):  # sixteen bits of grey
        return module.fromarray((np.asarray(image) >> 8).astype(np.uint8))
    if image.mode in ("RGBA", "LA", "PA") or "transparency" in image.info:
        coloured = image.convert("RGBA")
        ground = module.new("RGBA", coloured.size, (255, 255, 255, 255))
        return module.alpha_composite(ground, coloured)
    return image


def _pillow() -> Any:
    try:
        from PIL import Image
    except ImportError:
        raise UserError("reading pictures needs an extra: pip install 'spreadout[images]'") from None
    return Image
