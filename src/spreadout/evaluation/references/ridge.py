"""Ridge regression of label sets on features, in closed form (Hoerl & Kennard 1970).

W = (XᵀX + λ I)⁻¹ XᵀY with X and Y centred, or the same through the (n, n) matrix XXᵀ where instances are
fewer than features. λ is chosen on a part of the training data.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from spreadout.core.ragged import Ragged
from spreadout.evaluation.pooled import Pool
from spreadout.evaluation.references.features import Features
from spreadout.evaluation.references.scoring import TIE, Clock, Scorer

STRENGTHS = (
    1e-3,
    1e-2,
    3e-2,
    0.1,
    0.2,
    0.5,
    1.0,
    5.0,
    20.0,
    100.0,
)  # λ, in units of the mean eigenvalue
MOST_WEIGHTS = 1 << 25  # weights of all classes together
UNKNOWN = -1e6  # the score of a class that is left out, far below the others


@dataclass(frozen=True)
class Ridge:
    """Weights of the classes that are scored; the others come after them, the most frequent first."""

    weights: Tensor  # (F, c) double
    center: Tensor  # (F,) mean of the features
    bias: Tensor  # (c,) share of instances that have each class
    classes: Tensor  # (c,) which they are

    def scorer(self, features: Features, prior: Tensor) -> Scorer:
        """Scores for instances with these features."""
        base = UNKNOWN + prior

        def scores(at: Tensor) -> Tensor:
            known = TIE * prior.to(self.bias.device)[self.classes]
            level = self.bias - self.center @ self.weights + known
            found = base.to(level.device).repeat(len(at), 1)
            found[:, self.classes] = features.times(at, self.weights) + level
            return found

        return scores


class Solvable(Protocol):
    """The normal equations of some instances, in whatever form."""

    def solve(self, strength: float, start: Ridge | None = None) -> Ridge: ...


SystemOf = Callable[[Features, Ragged, Tensor, Tensor, Clock], Solvable]


@dataclass(frozen=True)
class System:
    """The normal equations of some instances, to be solved for any λ."""

    matrix: Tensor  # (F, F) or (n, n) double, centred
    right: Tensor  # (F, c) or (n, c)
    center: Tensor  # (F,)
    bias: Tensor  # (c,)
    classes: Tensor  # (c,)
    rows: Tensor | None = None  # (n, F) centred, of the (n, n) form

    def solve(self, strength: float, start: Ridge | None = None) -> Ridge:
        """λ = strength · mean eigenvalue of XᵀX, of those that need not be 0; no start is needed."""
        size = len(self.matrix)
        unit = float(self.matrix.trace()) / size
        shift = strength * unit if unit > 0 else 1.0
        eye = torch.eye(size, dtype=self.matrix.dtype, device=self.matrix.device)
        factor = torch.linalg.cholesky(self.matrix + shift * eye)
        found = torch.cholesky_solve(self.right, factor)
        weights = found if self.rows is None else self.rows.T @ found
        return Ridge(weights, self.center, self.bias, self.classes)


def most_classes(pool: Pool, width: int) -> Tensor:
    """The classes that are scored: those with an instance, the most frequent of too many. (c,)"""
    order = torch.argsort(pool.prior, descending=True)
    held = int((pool.counts[order] > 0).sum())
    return order[: min(held, max(1, MOST_WEIGHTS // width))].sort().values


def system_of(features: Features, labels: Ragged, classes: Tensor, at: Tensor, clock: Clock) -> System:
    """Of the instances at these places; the smaller of the two forms."""
    form = _by_features if features.width <= len(at) else _by_instances
    return form(features, labels, classes.to(features.device), at, clock)


def _by_features(
    features: Features, labels: Ragged, classes: Tensor, at: Tensor, clock: Clock
) -> System:
    device, width, n = features.device, features.width, len(at)
    gram = torch.zeros(width, width, dtype=torch.float64, device=device)
    total = torch.zeros(width, dtype=torch.float64, device=device)
    together = torch.zeros(len(classes), width, dtype=torch.float64, device=device)
    counts = torch.zeros(len(classes), dtype=torch.float64, device=device)
    for some, rows in features.blocks(at):
        clock.check()
        gram += (rows.T @ rows).double()
        total += rows.double().sum(0)
        owner, place = labels_among(labels, classes, some)
        counts += torch.bincount(place, minlength=len(classes))
        ones = rows.new_ones(len(owner))
        named = torch.sparse_coo_tensor(
            torch.stack([place, owner]), ones, (len(classes), len(rows)), check_invariants=False
        )
        together += torch.sparse.mm(named, rows).double()
    center, share = total / n, counts / n
    matrix = gram - n * torch.outer(center, center)
    return System(matrix, (together - n * torch.outer(share, center)).T, center, share, classes)


def _by_instances(
    features: Features, labels: Ragged, classes: Tensor, at: Tensor, clock: Clock
) -> System:
    rows = torch.cat([block for _, block in features.blocks(at)]).double()  # (n, F), n < F
    clock.check()
    center = rows.mean(0)
    rows -= center
    targets = torch.zeros(len(at), len(classes), dtype=torch.float64, device=rows.device)
    owner, place = labels_among(labels, classes, at)
    targets[owner, place] = 1.0
    share = targets.mean(0)
    return System(rows @ rows.T, targets - share, center, share, classes, rows)


def labels_among(labels: Ragged, classes: Tensor, at: Tensor) -> tuple[Tensor, Tensor]:
    """Which of these instances has which of these classes, both by place."""
    own = labels.select(at)
    owner = torch.repeat_interleave(torch.arange(len(at)), own.lengths).to(classes.device)
    value = own.values.to(classes.device)
    place = torch.searchsorted(classes, value).clamp_max(max(len(classes) - 1, 0))
    known = classes[place] == value
    return owner[known], place[known]
