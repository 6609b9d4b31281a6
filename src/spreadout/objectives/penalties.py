"""Penalties φ(s) of the dot product s of two unit rows. A regulariser sums them over pairs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional as F

Distance = Literal["cosine", "euclidean"]


@dataclass(frozen=True)
class HingePenalty:
    """φ(s) = max(0, ν − d)² (Eq. 7).

    >>> import torch
    >>> import spreadout as so
    >>> so.regularizers.HingePenalty(margin=1.5).value(torch.tensor([1.0, 0.0, -1.0]))  # d: 0, 1, 2
    tensor([2.2500, 0.2500, 0.0000])
    """

    margin: float  # ν
    distance: Distance = "cosine"

    def value(self, s: Tensor) -> Tensor:
        return F.relu(self.margin - self._d(s)).square()

    def slope(self, s: Tensor) -> Tensor:
        """dφ/ds."""
        short = F.relu(self.margin - self._d(s))
        if self.distance == "cosine":
            return 2 * short
        return 2 * short / self._d(s).clamp_min(1e-6)  # dd/ds = −1/d; two equal rows have no direction

    def polynomial(self) -> tuple[float, float, float] | None:
        """(a, b, c) with φ = a + b·s + c·s² for every s in [−1, 1], if there are such."""
        if self.distance == "cosine" and self.margin >= 2:  # d ≤ 2: the hinge never switches off
            mu = self.margin - 1
            return mu * mu, 2 * mu, 1.0
        return None

    def _d(self, s: Tensor) -> Tensor:
        return 1 - s if self.distance == "cosine" else (2 - 2 * s).clamp_min(0).sqrt()


@dataclass(frozen=True)
class FarPenalty:
    """φ(s) = −d² (Eq. 8).

    With the cosine distance the slope 2(1 − s) vanishes where rows coincide, and over nearly all
    pairs two antipodal clusters are the optimum; with the Euclidean distance −d² = 2s − 2 the push
    is the same at any distance.

    >>> import torch
    >>> import spreadout as so
    >>> so.regularizers.FarPenalty().value(torch.tensor([0.0, -1.0]))  # d: 1, 2
    tensor([-1., -4.])
    """

    distance: Distance = "cosine"

    def value(self, s: Tensor) -> Tensor:
        return -(1 - s).square() if self.distance == "cosine" else 2 * s - 2

    def slope(self, s: Tensor) -> Tensor:
        return 2 * (1 - s) if self.distance == "cosine" else torch.full_like(s, 2.0)

    def polynomial(self) -> tuple[float, float, float] | None:
        return (-1.0, 2.0, -1.0) if self.distance == "cosine" else (-2.0, 2.0, 0.0)


@dataclass(frozen=True)
class NearPenalty:
    """φ(s) = d²: what pulls classes together that occur together (FedALC, Eq. 12).

    >>> import torch
    >>> import spreadout as so
    >>> so.regularizers.NearPenalty().value(torch.tensor([0.0, -1.0]))  # d: 1, 2
    tensor([1., 4.])
    """

    distance: Distance = "cosine"

    def value(self, s: Tensor) -> Tensor:
        return -FarPenalty(self.distance).value(s)

    def slope(self, s: Tensor) -> Tensor:
        return -FarPenalty(self.distance).slope(s)


Penalty = HingePenalty | FarPenalty
