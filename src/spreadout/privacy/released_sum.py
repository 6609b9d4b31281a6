"""A real server's sum over its clients: clipped in whole numbers, summed exactly, noised once.

An update becomes whole numbers of a grid's units on arrival, no longer than the clip by their squares'
exact sum (`release.py`). Sums of them are exact, in any order, so one client moves the sum by one clip
and not by a rounding more. The noise is a discrete Gaussian from the operating system's entropy, added
in whole numbers before anything is made floating point: all that follows (the server's rate, its
optimiser, the sphere) reads the noised numbers alone, and its rounding tells nothing.

Why the accountants of the sampled, continuous Gaussian hold: the discrete one is a rounding at random of
a continuous one of no larger variance (`release.py`), whatever whole numbers it is added to. So what is
released is made of what the continuous mechanism would have released, with or without the client.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from spreadout.core.types import Params
from spreadout.privacy.adaptive_clip import sum_noise
from spreadout.privacy.discrete_gaussian import Words, discrete_gaussian
from spreadout.privacy.mechanism import GaussianMechanism
from spreadout.privacy.release import Grid, in_units


def sum_grid(mechanism: GaussianMechanism, clip: float, expected: float) -> Grid:
    """Of a round with this clip; expected: clients in it, in the mean. Too little noise is refused."""
    Grid.of(mechanism)  # says which of the config's own numbers is at fault
    noise = sum_noise(mechanism, expected)
    return Grid.of(mechanism.model_copy(update={"noise": noise, "clip": clip}))


def whole_units(change: Params, clip: float, grid: Grid) -> Params:
    """One client's change, clipped as a whole, in units of the grid: whole numbers, held in doubles.

    Doubles have all whole numbers up to 2^53, and a clip is at most 2^28 units.
    """
    flat = in_units(change, clip, grid).astype(np.float64)
    sizes = [value.numel() for part in change for value in part.values()]
    values = iter(np.split(flat, np.cumsum(sizes)[:-1]))
    return Params(
        *(
            {
                name: torch.from_numpy(next(values)).reshape(old.shape).to(old.device)
                for name, old in part.items()
            }
            for part in change
        )
    )


@dataclass(frozen=True)
class RealNoise:
    """The noise of one round's sum."""

    grid: Grid
    words: Words  # of this release alone

    def __call__(self, units: Tensor) -> Tensor:
        """A part of the sum, in units, as it may be released: in doubles."""
        exact = units.detach().cpu().numpy().reshape(-1).astype(np.int64)
        noised = exact + discrete_gaussian(len(exact), self.grid.sigma, self.words)
        return torch.from_numpy(noised * self.grid.unit).reshape(units.shape).to(units.device)
