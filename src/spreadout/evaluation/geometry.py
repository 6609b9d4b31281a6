"""Geometry of collapse: how far apart the classes are, and what that promises (FedAwS, Prop. 1).

Distances are Euclidean between unit vectors, `sqrt(2 − 2s)`: Prop. 1 needs a metric, which the cosine
distance is not.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from spreadout.core.tables import Table, added, local_of, places_in
from spreadout.objectives.neighbours import nearest

WORK_LIMIT = 4e9  # multiply-adds; above it, nearest pairs are looked for from a sample of the classes


@dataclass(frozen=True)
class Geometry:
    """State of the class table at one evaluation."""

    max_cosine: float  # of the two nearest classes; 1 means they coincide
    mean_cosine: float  # over all pairs, exact
    min_distance: float  # ρ
    mean_distance: float
    effective_rank: float  # exp of the entropy of W's normalised squared singular values
    own_distance: float  # ε of Prop. 1: mean distance of an example to its own class
    error_bound: float | None  # 2ε/ρ, capped at 1: no more than this share can be misclassified
    anchors: int  # classes the nearest-pair search started from; if not all, there is no bound
    collapsing: bool  # drawn to one point, or into a few directions


def class_geometry(table: Table, epsilon: float) -> Geometry:
    """Geometry of a table of unit rows (C, d), given ε measured on examples."""
    count, dim = table.shape
    here = local_of(table)
    total = added(here.sum(0), table)
    mean_cosine = float((total @ total - count) / (count * (count - 1))) if count > 1 else 1.0
    gram = added(here.T @ here, table).double()
    share = torch.linalg.eigvalsh(gram).clamp_min(0) / count  # sums to 1 for unit rows
    rank = math.exp(-float(torch.special.xlogy(share, share).sum()))

    anchors = min(count, max(64, int(WORK_LIMIT / (count * dim))))
    some = torch.linspace(0, count - 1, anchors, device=table.device).long()
    if count > 1:
        max_cosine = float(nearest(table[some], table, 1, exclude=some).scores.max().clamp(-1, 1))
    else:
        max_cosine = -1.0  # nothing to be confused with
    least = _distance(max_cosine)
    return Geometry(
        max_cosine=max_cosine,
        mean_cosine=mean_cosine,
        min_distance=least,
        mean_distance=_mean_distance(table, some),
        effective_rank=rank,
        own_distance=epsilon,
        error_bound=_bound(epsilon, least) if anchors == count > 1 else None,
        anchors=anchors,
        collapsing=count > 1 and (mean_cosine > 0.5 or rank < 1 + 0.1 * (min(count - 1, dim) - 1)),
    )


def _mean_distance(table: Table, anchors: Tensor) -> float:
    """Mean Euclidean distance from the anchors to every other class, a block at a time."""
    here = local_of(table)
    total = torch.zeros((), dtype=torch.float64, device=here.device)
    for part in torch.split(anchors, max(1, (1 << 26) // len(table))):
        s = table[part] @ here.T
        place, mine = places_in(table, part)
        own = mine.nonzero()[:, 0]
        s[own, place[own]] = 1.0  # distance 0 to itself
        total += (2 - 2 * s).clamp_min(0).sqrt().sum(dtype=torch.float64)
    return float(added(total, table)) / max(len(anchors) * (len(table) - 1), 1)


def _bound(epsilon: float, rho: float) -> float:
    return min(1.0, 2 * epsilon / rho) if rho > 0 else 1.0


def _distance(cosine: float) -> float:
    return math.sqrt(max(0.0, 2 - 2 * cosine))
