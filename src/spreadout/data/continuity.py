"""Whether arrays are pictures: whether a pixel is like the one beside it and the one below.

A picture that is moved by a few pixels shows the same. An array whose neighbours have nothing in common,
such as a game board or noise, becomes another one.
"""

from __future__ import annotations

import torch
from torch import Tensor

from spreadout.data.columns import Dense

LIMIT = 0.15  # of pictures it is 0.3 at least, also of thin strokes and of 8 pixels a side
NO_CONTRAST = 1e-9  # of an image's energy: rounding
MOST, NUMBERS = 500, 1 << 25  # images that are looked at, and numbers in them


def continuity(x: Dense) -> float:
    """The mean correlation of neighbours in images (n, channels, height, width), in the worse direction.

    An image without contrast counts as one without any; so does a side of one pixel.
    """
    width = x.values.shape[1:].numel()
    if not len(x) or not width or min(x.values.shape[-2:]) < 2:
        return 0.0
    most = min(MOST, max(1, NUMBERS // width))
    at = torch.linspace(0, len(x) - 1, min(len(x), most), dtype=torch.float64).long()
    some = x.take(at).cpu().float()
    right = _correlation(some[..., 1:], some[..., :-1])
    down = _correlation(some[..., 1:, :], some[..., :-1, :])
    return min(right, down)


def is_picture(x: Dense) -> bool:
    """Whether images may be shifted."""
    return continuity(x) > LIMIT


def _correlation(one: Tensor, other: Tensor) -> float:
    """Of the values of each image, and then the mean over images; 0 of one without contrast."""
    sizes = (part.flatten(1).double().square().sum(1) for part in (one, other))
    plain = torch.maximum(*sizes) * NO_CONTRAST
    one, other = (part.flatten(1).double() for part in (one, other))
    one, other = (part - part.mean(1, keepdim=True) for part in (one, other))
    norm = (one.square().sum(1) * other.square().sum(1)).sqrt()
    return float(torch.where(norm > plain, (one * other).sum(1) / norm, 0.0).mean())
