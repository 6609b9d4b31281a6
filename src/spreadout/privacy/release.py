"""What leaves a real client: its clipped change on a grid, plus discrete Gaussian noise.

The grid's unit is a power of two of which the noise's deviation holds 2^15 to 2^16, so all values are
exact in floating point. Values are cut towards zero, which makes no change longer, and its length is
then checked in whole numbers: two changes are never further apart than twice the clip.

Why the (ε, δ) of the continuous Gaussian holds: take a continuous Gaussian of variance σ² − 16 and round
it at random, by a discrete Gaussian of variance 16 around it. What comes out is the discrete Gaussian of
variance σ², but for factors within 1 ± 10^−136 (Peikert 2010, Thm. 3.1: by Poisson summation the sum of
e^(−(k−y)²/32) over whole k depends on y by less than that). So the discrete Gaussian is as private as a
continuous one of deviation √(σ² − 16), up to 10^−136 in ε for each number sent, and σ is rounded up by
more than makes up for the 16.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from spreadout.core.errors import UserError
from spreadout.core.types import Params
from spreadout.privacy.discrete_gaussian import Words, discrete_gaussian
from spreadout.privacy.mechanism import GaussianMechanism, clip_norm

FINE = 16  # bits: deviations are between 2^15 and 2^16 units
SMALLEST, LARGEST = 1e-25, 1e25  # deviations whose units and multiples single precision has
LEAST_SIGMA = 16  # units of a node's part of a sum's noise
LEAST_NOISE = 2.0**-12  # noise multiplier below which a change has more units than are summed exactly


class Grid(NamedTuple):
    """The numbers a release is made of: multiples of `unit`."""

    unit: float  # a power of two
    sigma: int  # deviation of the noise, in units
    most: int  # the clip in units, squared, rounded down

    @classmethod
    def of(cls, mechanism: GaussianMechanism) -> Grid:
        if mechanism.noise < LEAST_NOISE:
            raise UserError(
                f"privacy.noise = {mechanism.noise:g}: less than {LEAST_NOISE:g} promises nothing; "
                "real clients take that or more"
            )
        deviation = mechanism.noise * mechanism.clip
        if not SMALLEST <= deviation <= LARGEST:
            raise UserError(
                f"privacy.clip = {mechanism.clip:g}: noise of deviation {deviation:g} has no grid in "
                f"floating point; scale the rates so that it lies between {SMALLEST:g} and {LARGEST:g}"
            )
        mantissa, exponent = math.frexp(deviation)
        unit = math.ldexp(1.0, exponent - FINE)
        sigma = math.ceil(math.ldexp(mantissa, FINE)) + 1  # its square is larger by more than 16
        return cls(unit, sigma, math.floor((Fraction(mechanism.clip) / Fraction(unit)) ** 2))

    @classmethod
    def shared(cls, mechanism: GaussianMechanism, nodes: int) -> Grid:
        """For a sum to which so many nodes, or more, add their part of the noise.

        A sum of discrete Gaussians is one of the summed variance but for factors that are nearer to 1
        than any number here (Peikert 2010, Thm. 3.1), as long as each has a deviation of some units.
        """
        if not mechanism.noise:  # no promise: as fine as numbers in single precision are
            unit = math.ldexp(1.0, math.frexp(mechanism.clip)[1] - 1 - FINE)
            return cls(unit, 0, math.floor((Fraction(mechanism.clip) / Fraction(unit)) ** 2))
        whole = cls.of(mechanism)
        each = math.isqrt(whole.sigma**2 // nodes) + 2
        if each < LEAST_SIGMA:
            raise UserError(f"{nodes:,} nodes: are too many for a sum on one grid")
        return whole._replace(sigma=each)


def released(change: Params, mechanism: GaussianMechanism, words: Words) -> Params:
    """One client's change as it may be sent; words: of this release alone."""
    grid = Grid.of(mechanism)
    sent = in_units(change, mechanism.clip, grid)
    sent = sent + discrete_gaussian(len(sent), grid.sigma, words)
    return _in_parts(sent, grid.unit, change)


def shown_by_sum(change: Params, mechanism: GaussianMechanism, nodes: int, words: Words) -> Params:
    """What a sum shows of a change if nobody else has one: it, with the noise of so many nodes."""
    grid = Grid.shared(mechanism, nodes)
    sent = in_units(change, mechanism.clip, grid)
    for _ in range(nodes if grid.sigma else 0):
        sent = sent + discrete_gaussian(len(sent), grid.sigma, words)
    return _in_parts(sent, grid.unit, change)


def _in_parts(sent: NDArray[np.int64], unit: float, change: Params) -> Params:
    """Whole numbers of units as a change of the same parts."""
    sizes = [value.numel() for part in change for value in part.values()]
    values = iter(np.split(sent * unit, np.cumsum(sizes)[:-1]))
    return Params(*({name: _like(next(values), old) for name, old in part.items()} for part in change))


def in_units(change: Params, clip: float, grid: Grid) -> NDArray[np.int64]:
    """A change, clipped, as whole numbers of the grid's units: its dense parts, then its rows."""
    clipped = clip_norm(change, clip)
    parts: list[Tensor] = [*clipped.dense.values(), *clipped.rows.values()]
    flat = np.concatenate([part.detach().double().cpu().numpy().reshape(-1) for part in parts])
    return _within(np.trunc(flat / grid.unit).astype(np.int64), grid.most)


def _within(units: NDArray[np.int64], most: int) -> NDArray[np.int64]:
    """No longer than the clip: where it is, by the ratio of the two, rounded down in whole numbers."""
    squared = _squared(units)
    if squared <= most:
        return units
    bits = 62 - int(np.abs(units).max()).bit_length()  # of the ratio: what keeps products below 2^62
    ratio = math.isqrt((most << 2 * bits) // squared)  # of 2^bits
    shorter: NDArray[np.int64] = np.sign(units) * (np.abs(units) * ratio >> bits)
    return shorter


def _squared(units: NDArray[np.int64]) -> int:
    """The squared length, exactly."""
    if float(np.square(units, dtype=np.float64).sum()) < 2.0**62:
        return int(np.dot(units, units))
    return sum(unit * unit for unit in units.tolist())  # it would wrap around


def _like(values: NDArray[np.float64], old: Tensor) -> Tensor:
    return torch.from_numpy(values).to(old.dtype).reshape(old.shape).to(old.device)
