"""How the parts of an image lie to each other, wherever in the frame they are.

An image is seen as some maps a(p): its brightness, the square of that, its edges and their direction,
its colours. What two maps have in common at a distance δ,

    C_ab(δ) = Σ_p a(p) b(p + δ),

does not change if all that is on the image is moved. An arrow to the right has slanted edges to the
right of level ones, one to the left has them to the left: with C_ab(δ) and C_ab(−δ) apart, they differ.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

PIXELS = 32  # a side: larger images are made smaller
CELLS = 16  # a side of a map, at most
SPANS = ((0, 0), (1, 2), (3, 7))  # distances, in cells, that are one to either side
TINY = 1e-6


def shrunk(x: Tensor) -> Tensor:
    """Images of so few pixels that a look at them costs little."""
    high, wide = x.shape[-2:]
    if max(high, wide) <= PIXELS:
        return x
    return F.adaptive_avg_pool2d(x, (min(high, PIXELS), min(wide, PIXELS)))


def slopes(x: Tensor) -> tuple[Tensor, Tensor]:
    """Differences to the right and downwards, 0 at the rim."""
    right, down = torch.zeros_like(x), torch.zeros_like(x)
    right[..., 1:-1] = x[..., 2:] - x[..., :-2]
    down[..., 1:-1, :] = x[..., 2:, :] - x[..., :-2, :]
    return right, down


def arrangements(x: Tensor) -> tuple[Tensor, Tensor]:
    """Of images (n, channels, height, width), and of their mirror images: (n, d) each."""
    maps, sign = _maps(x)
    spectrum = torch.fft.rfft2(maps)
    a, b = torch.triu_indices(len(sign), len(sign))
    common = torch.fft.irfft2(spectrum[:, a].conj() * spectrum[:, b], s=maps.shape[-2:])
    common = _spans(maps.shape[-2]) @ common @ _spans(maps.shape[-1]).T  # (n, pairs, down, right)
    mirrored = common.flip(-1) * (sign[a] * sign[b]).view(-1, 1, 1)  # left is right, and \ is /
    return common.flatten(1), mirrored.flatten(1)


def _maps(x: Tensor) -> tuple[Tensor, Tensor]:
    """(n, maps, rows, columns), of mean 0 and length 1 each; and −1 for those that mirroring turns."""
    x = x - x.mean((-2, -1), keepdim=True)
    x = x / x.flatten(1).square().mean(1).sqrt().clamp_min(TINY).view(-1, 1, 1, 1)
    light = x.mean(1)
    right, down = slopes(light)
    steep = (right.square() + down.square()).sqrt().clamp_min(TINY)
    upright, slanted = (right.square() - down.square()) / steep, 2 * right * down / steep
    colours = [x[:, i] - light for i in range(min(x.shape[1] - 1, 2))]
    maps = torch.stack([slanted, light, light.square(), steep, upright, *colours], 1)
    high, wide = maps.shape[-2:]
    maps = F.adaptive_avg_pool2d(maps, (min(high, CELLS), min(wide, CELLS)))
    maps = maps - maps.mean((-2, -1), keepdim=True)
    length = maps.flatten(2).square().sum(2).sqrt().clamp_min(100 * TINY)
    sign = torch.ones(maps.shape[1])
    sign[0] = -1.0
    return maps / length[..., None, None], sign


def _spans(cells: int) -> Tensor:
    """The mean over each span of distances, from the far left to the far right: (spans, cells).

    >>> _spans(8).shape  # 3 and 1 to 2 to either side, and 0
    torch.Size([5, 8])
    """
    most = (cells - 1) // 2  # further to one side is nearer to the other
    there = [(low, min(high, most)) for low, high in SPANS if low <= most]
    distance = torch.arange(cells)
    distance = torch.where(distance > most, distance - cells, distance)
    both = [(-high, -low) for low, high in reversed(there[1:])] + there
    inside = torch.stack([(distance >= low) & (distance <= high) for low, high in both]).float()
    return inside / inside.sum(1, keepdim=True)
