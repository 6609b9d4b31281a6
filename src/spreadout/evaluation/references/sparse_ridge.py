"""The same ridge regression where features are words: few of many, so XᵀX is never made.

Conjugate gradients (Hestenes & Stiefel 1952) need X and Xᵀ times something and nothing else. They are
preconditioned with the diagonal, since some words are a thousand times as frequent as others.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from spreadout.core.ragged import Ragged
from spreadout.evaluation.references.features import DENSER, Features, by_rows, places_of
from spreadout.evaluation.references.ridge import STRENGTHS, Ridge, labels_among
from spreadout.evaluation.references.scoring import Clock

EXACT = 1e-6  # what may be left of the right side, of its own length
MOST_STEPS = 200
MOST_WEIGHTS = 1 << 22  # of all classes together: a step works on five tables of so many numbers
USUAL = 50  # steps to a solution, in the mean of all strengths
PER_WEIGHT = 200  # what a step costs for each weight beside the products, in the same unit


def work(features: Features, classes: int) -> float:
    """What a solution costs, in multiply-adds of dense products."""
    met = min(features.width, features.stored)  # words that occur, at most
    return USUAL * classes * (2 * DENSER * features.stored + PER_WEIGHT * met)


def pays(features: Features, classes: int, width: int) -> bool:
    """Whether that is less than a factor and its use would be, of features in so many dense columns."""
    n, size = len(features), min(len(features), width)
    dense = size**3 / 3 + size**2 * classes + n * width * size / len(STRENGTHS)
    return features.is_sparse and features.width >= width and work(features, classes) < dense


@dataclass(frozen=True)
class SparseSystem:
    """The normal equations of some instances, of words that occur; centred without storing more."""

    x: Tensor  # (n, u) double, by rows, not centred
    transposed: Tensor  # (u, n) the same
    right: Tensor  # (u, c) XᵀY, centred
    center: Tensor  # (F,)
    bias: Tensor  # (c,)
    classes: Tensor  # (c,)
    words: Tensor  # (u,) which features they are
    sizes: Tensor  # (u, 1) the diagonal of XᵀX, centred
    clock: Clock

    def solve(self, strength: float, start: Ridge | None = None) -> Ridge:
        """λ as in `System.solve`, to within EXACT or MOST_STEPS; sooner from a start that is near."""
        unit = float(self.sizes.sum()) / min(len(self.x), len(self.center))
        shift = strength * unit if unit > 0 else 1.0
        scale = self.sizes + shift
        found = torch.zeros_like(self.right) if start is None else start.weights[self.words]
        rest = self.right - self._times(found, shift)
        enough = EXACT * self.right.norm(dim=0)
        ready = rest / scale
        way, left = ready.clone(), (rest * ready).sum(0)
        for _ in range(MOST_STEPS):
            self.clock.check()
            if bool((rest.norm(dim=0) <= enough).all()):
                break
            moved = self._times(way, shift)
            length = _share(left, (way * moved).sum(0))
            found.addcmul_(length, way)
            rest.addcmul_(length, moved, value=-1)
            torch.div(rest, scale, out=ready)
            before, left = left, (rest * ready).sum(0)
            torch.addcmul(ready, _share(left, before), way, out=way)
        weights = found.new_zeros(len(self.center), found.shape[1])
        weights[self.words] = found
        return Ridge(weights, self.center, self.bias, self.classes)

    def _times(self, weights: Tensor, shift: float) -> Tensor:
        """(XᵀX + λ I) times weights, X centred: (u, c)."""
        center = self.center[self.words]
        mean = len(self.x) * (center @ weights)  # (c,)
        found = self.transposed @ (self.x @ weights)
        return found.addr_(center, mean, alpha=-1).add_(weights, alpha=shift)


def sparse_system_of(
    features: Features, labels: Ragged, classes: Tensor, at: Tensor, clock: Clock
) -> SparseSystem:
    """Of the instances at these places."""
    clock.check()
    n, classes = len(at), classes.to(features.device)
    every = features.sparse_rows(at)
    row, column = places_of(every)
    words, place = torch.unique(column, return_inverse=True)
    x = by_rows(torch.stack([row, place]), every.values(), (n, len(words)))
    transposed = by_rows(torch.stack([place, row]), every.values(), (len(words), n))
    targets = x.values().new_zeros(n, len(classes))
    targets[labels_among(labels, classes, at)] = 1.0
    share = targets.mean(0)
    mean, squares = x.values().new_zeros(2, len(words))
    mean.index_add_(0, place, every.values() / n)
    squares.index_add_(0, place, every.values() ** 2)
    right = transposed @ targets - n * torch.outer(mean, share)
    center = mean.new_zeros(features.width).index_copy_(0, words, mean)
    sizes = (squares - n * mean**2).clamp_min(0)[:, None]
    return SparseSystem(x, transposed, right, center, share, classes, words, sizes, clock)


def _share(part: Tensor, whole: Tensor) -> Tensor:
    """Part by whole; 0 where a class is solved and nothing is left."""
    return torch.where(whole > 0, part / whole, 0.0)
