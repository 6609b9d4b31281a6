"""Whether mirror images are still known: a classifier that was trained on images as they are is asked.

It is the most direct sense in which a side matters. If classes are mirror images of each other (b and
d, arrows to either side), it takes every mirrored image for one of another class; if they have no side,
it knows as many of them as of others. It looks at how parts lie to each other (`arrangement.py`), so
that things may be anywhere in the frame; a ridge regression on that is no good classifier, and good
enough to tell.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

PART = 0.25  # of what is known beyond chance: no more may be lost in the mirror …
SURE = 3.0  # … if it is that surely lost, in standard errors
OF_ONE, SURE_OF_ONE = 0.3, 4.0  # the same for the images of one class of many
ENOUGH = 20  # images of a class that is looked at by itself
FOLDS = 4
RIDGE = 1.0  # in units of the mean square of the features
TINY = 1e-6


@dataclass(frozen=True)
class Recognition:
    """What a classifier knows of images that it was not trained on, as they are and mirrored."""

    known: float  # share of images whose class is right
    mirrored: float  # the same of their mirror images
    chance: float  # share of the largest class
    error: float  # standard error of known − mirrored
    surest: float  # of the class that loses the most surely: the share that it loses at least

    @property
    def is_kept(self) -> bool:
        """Whether mirror images are known as well; not so where there is no number."""
        lost = self.known - self.mirrored
        much = lost > PART * max(self.known - self.chance, 0.0)
        return math.isfinite(lost) and not (much and lost > SURE * self.error) and self.surest < OF_ONE


def recognition(plain: Tensor, mirrored: Tensor, group: Tensor) -> Recognition:
    """Of the features (n, d) of images and of their mirror images; group: classes from 0 on, ascending.

    Each image is asked of a classifier that was trained on three quarters of the others.
    """
    count = torch.bincount(group)
    chance = float(count.max()) / len(group)
    if not bool(plain.isfinite().all()):
        return Recognition(math.nan, math.nan, chance, math.nan, -1.0)
    centre = (plain.mean(0) + mirrored.mean(0)) / 2
    plain, mirrored = plain - centre, mirrored - centre
    spread = ((plain.square() + mirrored.square()).mean(0) / 2).sqrt().clamp_min(TINY)
    plain, mirrored = plain / spread, mirrored / spread
    fold = (torch.arange(len(group)) - (count.cumsum(0) - count)[group]) % FOLDS
    wanted = F.one_hot(group, len(count)).float() - count / len(group)
    parts = [(plain[fold == i], wanted[fold == i]) for i in range(FOLDS)]
    squares, sums = [x.T @ x for x, _ in parts], [x.T @ y for x, y in parts]
    square, total = torch.stack(squares).sum(0), torch.stack(sums).sum(0)
    ridge = RIDGE * float(square.diagonal().mean()) + TINY
    right = torch.zeros(2, len(group), dtype=torch.float64)  # as they are, mirrored
    for i in range(FOLDS):
        rest = square - squares[i]
        rest.diagonal().add_(ridge)
        weights = torch.cholesky_solve(total - sums[i], torch.linalg.cholesky(rest))  # (d, classes)
        held = fold == i
        for way, x in enumerate((plain, mirrored)):
            right[way, held] = ((x[held] @ weights).argmax(1) == group[held]).double()
    lost = right[0] - right[1]
    error = float(lost.std(correction=0)) / math.sqrt(len(lost))
    known, still = right.mean(1).tolist()
    return Recognition(known, still, chance, error, _surest(lost, group, count))


def _surest(lost: Tensor, group: Tensor, count: Tensor) -> float:
    """The share of images that the class loses at least which loses the most surely; −1 without any."""
    zeros = torch.zeros(len(count), dtype=torch.float64)
    mean = zeros.index_add(0, group, lost) / count
    apart = zeros.index_add(0, group, (lost - mean[group]).square())
    error = ((apart + 1) / (count * (count - 1).clamp_min(1))).sqrt()  # as if one more were lost
    alone = (mean - SURE_OF_ONE * error)[count >= ENOUGH]
    return float(alone.max()) if len(alone) else -1.0
