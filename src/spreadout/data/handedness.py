"""Whether classes of images have a side: whether they can be told from their mirror images.

A cat looks left as often as right, and mirrored it is still a cat; a mirrored b is a d. What an image
does not share with its mirror image is its odd part, o = (x − mirror(x)) / 2. Where classes have no
side, the odd parts of a class have nothing in common. The share of their energy that is common to a
class,

    share = Σ_c n_c mean_{i≠j} ⟨o_i, o_j⟩ / Σ_i ‖o_i‖²    (i, j of the n_c images of class c)

is then 0, however few images there are, as none is paired with itself. It is 1 where all images of a
class are odd in the same way. Two views of images are looked at: brightness, and edges (the structure
tensor), as signs are painted bright on dark and dark on bright.

Odd parts of things that may be anywhere in the frame have nothing in common either, so that a small
classifier, which does not mind the place, is asked if it knows mirror images (`recognition.py`).

`docs/defaults_found.md` has the numbers of many data sets, by which limits were chosen.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from spreadout.core.ragged import Ragged
from spreadout.data.arrangement import arrangements, shrunk, slopes
from spreadout.data.columns import Dense, Lists
from spreadout.data.recognition import Recognition, recognition

LIMIT = 0.05  # a share below this is none: photographs have a few hundredths, letters more than a tenth
SURE, SURE_OF_ONE = 2.0, 4.0  # standard errors: of all classes together, and of one of many classes
MOST, NUMBERS = 2000, 1 << 27  # images that are looked at, and numbers in them
OF_A_CLASS = 20  # images of a class, if it has so many: rather than more classes
FEWEST = 3  # images of a class: of two, leaving one out leaves no pair
CELLS, FEW_CELLS = 8, 2  # a side of a view, at most and at least: each is of two pixels or more
AT_ONCE = 1 << 22  # numbers in memory at once
TINY = 1e-6


@dataclass(frozen=True)
class Share:
    """How much of the odd parts' energy is common to a class, in one view of the images."""

    share: float
    error: float  # its standard error
    surest: float  # of the class that has a side the most surely: what its share is above

    @property
    def is_none(self) -> bool:
        """Surely small, and no class surely has a side; not so where there is no number."""
        return max(self.share, 0.0) + SURE * self.error < LIMIT and not self.surest >= LIMIT


@dataclass(frozen=True)
class Handedness:
    """What can be said of the sides of classes."""

    images: int  # that were looked at
    classes: int  # that these are of
    brightness: Share
    edges: Share
    recognition: Recognition

    @property
    def is_none(self) -> bool:
        """Whether no side is seen, and mirror images are still known."""
        return self.brightness.is_none and self.edges.is_none and self.recognition.is_kept


def handedness(x: Dense, y: Dense | Lists) -> Handedness | None:
    """Of images (n, channels, height, width) with their classes; None where nothing can be said."""
    at, group = _sample(y, max(1, NUMBERS // max(x.values.shape[1:].numel(), 1)))
    if not len(at) or min(x.values.shape[-2:]) < 2 * FEW_CELLS:
        return None
    parts = torch.split(at, max(1, AT_ONCE // x.values.shape[1:].numel()))
    looks = [_looks(x.take(part).cpu().float()) for part in parts]
    brightness, edges, plain, mirrored = (torch.cat(look) for look in zip(*looks, strict=True))
    return Handedness(
        len(at),
        int(group.max()) + 1,
        _share(brightness, group),
        _share(edges, group),
        recognition(plain, mirrored, group),
    )


def _looks(x: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Odd parts in two views, and how parts lie to each other on images and on their mirror images."""
    x = shrunk(x)
    return (*_odd_parts(x), *arrangements(x))


def _sample(y: Dense | Lists, most: int) -> tuple[Tensor, Tensor]:
    """Some images of some classes, spread evenly over both, class by class; and which class each is of.

    Sorting the labels is all that depends on how many there are.
    """
    example, label = _pairs(y)
    order = torch.argsort(label, stable=True)
    _, count = torch.unique_consecutive(label[order], return_counts=True)
    first = count.cumsum(0) - count
    usable = torch.nonzero(count >= FEWEST)[:, 0]
    most = min(most, MOST)
    each = max(OF_A_CLASS, most // max(len(usable), 1))
    usable = usable[_spread(len(usable), max(1, most // each))]
    places = [first[c] + _spread(int(count[c]), each) for c in usable]
    if not places:
        return torch.zeros(0, dtype=torch.int64), torch.zeros(0, dtype=torch.int64)
    lengths = torch.tensor([len(some) for some in places])
    group = torch.repeat_interleave(torch.arange(len(places)), lengths)
    return example[order[torch.cat(places)]], group


def _pairs(y: Dense | Lists) -> tuple[Tensor, Tensor]:
    """Every example with every class it has."""
    if isinstance(y, Lists):
        labels: Ragged = y.ragged()
        return torch.repeat_interleave(torch.arange(len(labels)), labels.lengths), labels.values.cpu()
    every = torch.arange(len(y))
    return every, y.take(every).cpu()


def _spread(count: int, most: int) -> Tensor:
    """So many of the first numbers at most, evenly spread."""
    return torch.from_numpy(np.linspace(0, count - 1, min(count, most)).astype(np.int64))


def _odd_parts(x: Tensor) -> tuple[Tensor, Tensor]:
    """Of brightness and of edges, each in units of the view's own length: (n, d) double."""
    high, wide = x.shape[-2:]
    cells = min(CELLS, high // 2), min(CELLS, wide // 2)
    x = x - x.mean((-2, -1), keepdim=True)
    brightness = F.adaptive_avg_pool2d(x, cells)
    right, down = slopes(x)
    steep = (right.square() + down.square()).sqrt().clamp_min(TINY)
    along = [part / steep for part in (right.square(), down.square(), 2 * right * down)]
    edges = torch.stack([F.adaptive_avg_pool2d(part, cells) for part in along], 1)
    mirrored = edges.flip(-1) * torch.tensor([1.0, 1.0, -1.0]).view(1, 3, 1, 1, 1)  # right is left
    return _relative(brightness, brightness.flip(-1)), _relative(edges, mirrored)


def _relative(view: Tensor, mirrored: Tensor) -> Tensor:
    length = view.flatten(1).square().sum(1, keepdim=True).sqrt().clamp_min(TINY)
    return ((view - mirrored).flatten(1) / (2 * length)).double()


def _share(odd: Tensor, group: Tensor) -> Share:
    """Over all groups of images, with errors by leaving out one image after the other (jackknife)."""
    count = torch.bincount(group).double()
    zeros = torch.zeros_like(count)
    sums = odd.new_zeros(len(count), odd.shape[1]).index_add_(0, group, odd)
    energy = odd.square().sum(1)
    others = (odd * sums[group]).sum(1) - energy  # inner products with the others of its class
    pairs, own = (zeros.index_add(0, group, one) for one in (others, energy))
    n = count[group]
    common = pairs / (count - 1)  # of a class
    less = (pairs[group] - 2 * others) / (n - 2)  # without this image
    each = less / (own[group] - energy)
    error_of_each = _jackknife(each, group, count).sqrt()
    whole = (common.sum() - common[group] + less) / (own.sum() - energy)
    error = _jackknife(whole, group, count).sum().sqrt()
    alone = (common / own - SURE_OF_ONE * error_of_each)[count >= OF_A_CLASS]
    surest = float(alone.nan_to_num(-1.0).max()) if len(alone) else -1.0
    return Share(float(common.sum() / own.sum()), float(error), surest)


def _jackknife(left: Tensor, group: Tensor, count: Tensor) -> Tensor:
    """The variance that the images of each group make: from what is found without one of them."""
    mean = torch.zeros_like(count).index_add(0, group, left) / count
    apart = (left - mean[group]).square()
    return torch.zeros_like(count).index_add(0, group, apart) * (count - 1) / count
