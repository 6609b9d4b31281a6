"""Noise on a sum over pairs of labels, each of which moves two rows by up to the clip (FedALC §IV-E).

Unlike a client's change, the sum is not bounded: it is rounded to the grid instead of cut, and the noise
is larger by what rounding may add to one pair's difference, a unit in each number of its two rows.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from spreadout.core import randomness
from spreadout.privacy.discrete_gaussian import Words, discrete_gaussian
from spreadout.privacy.mechanism import GaussianMechanism
from spreadout.privacy.release import Grid


def noisy_rows(
    sums: Tensor, mechanism: GaussianMechanism, sensitivity: float, words: Words | None = None
) -> Tensor:
    """Sums (m, d) on the grid, with discrete Gaussian noise from the operating system's entropy.

    sensitivity: of the sums to one pair, in units of the clip. words: for tests.
    """
    if words is None:
        from spreadout.privacy.keystream import KeyStream  # needs `cryptography`, as deployments do

        words = KeyStream()
    grid = Grid.of(mechanism)
    rounding = mechanism.noise * math.sqrt(2 * sums.shape[-1]) / sensitivity  # in units
    units = np.rint(sums.detach().double().cpu().numpy() / grid.unit)
    noise = discrete_gaussian(units.size, grid.sigma + math.ceil(rounding), words)
    return torch.from_numpy((units + noise.reshape(units.shape)) * grid.unit).to(sums)


def simulated_noisy_rows(
    sums: Tensor, mechanism: GaussianMechanism, seed: int, *where: int | str
) -> Tensor:
    """The same from a seed: no guarantee."""
    draw = randomness.generator(seed, *where)
    noise = torch.from_numpy(draw.standard_normal(tuple(sums.shape), dtype=np.float32)).to(sums)
    return sums + mechanism.noise * mechanism.clip * noise
