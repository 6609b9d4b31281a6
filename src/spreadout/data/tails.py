"""Features with long tails, such as incomes, counts and durations, and the roots that shorten them.

A few values far out make the deviation of a feature, and standardised by it all the others are alike.
The cube root brings them near, keeps the sign, and needs no parameter: whatever the unit of a feature,
its root is the same but for a factor. A tail that is long even then takes the root twice.

How long a tail is follows from means, so that clients can say it together: with p the share of values
that are not 0,

    tail(x) = p² E[x²] / E[|x|^⅔]³

is at least 1 (Lyapunov 1901). Neither the unit nor zeros move it, and a feature that lies far from 0, or
has one value besides 0, is near 1. Normal numbers around 0 have 1.9, exponential ones 2.7, log-normal
ones exp(4σ²/3).
"""

from __future__ import annotations

import torch
from torch import Tensor

ROOT = 1 / 3
POWERS = (1.0, ROOT, ROOT**2)
LONG = 4.0  # tail(x) of a log-normal with σ of about 1


def to_power(x: Tensor, power: Tensor | float) -> Tensor:
    """sign(x) |x|^power, which 1 / power takes back. NaN stays NaN."""
    return x.sign() * x.abs() ** power


def with_roots(x: Tensor) -> Tensor:
    """Features, their roots, the roots of these, and whether each is not 0: (n, d) → (n, 4 d)"""
    return torch.cat([*(to_power(x, power) for power in POWERS), (x != 0).to(x)], 1)


def shortened(mean: Tensor, variance: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The power that each feature is taken to, and the mean and variance it has then: (d,) each.

    mean, variance: those of `with_roots`, (4 d,) double.
    """
    means, variances = mean.view(len(POWERS) + 1, -1), variance.view(len(POWERS) + 1, -1)
    squares = variances[:-1] + means[:-1] ** 2  # (3, d)
    tail = means[-1] ** 2 * squares[:-1] / squares[1:] ** 3  # (2, d); NaN of a feature that is always 0
    roots = (tail > LONG).long().cumprod(0).sum(0)  # (d,) how often the root is taken
    power = mean.new_tensor(POWERS)[roots]
    mean, variance = (part.gather(0, roots[None])[0] for part in (means, variances))
    return power, mean, variance
