"""A clip that follows a quantile of the updates' lengths, found under noise (Andrew et al. 2021).

Beside the sum of updates the server releases how many of them were no longer than the clip, minus half
of all: a client moves that by ½. The two are one Gaussian mechanism: with z_Δ clips of noise on the sum
and σ_b on the count, z^−2 = z_Δ^−2 + (2σ_b)^−2. The config's noise is z, what is accounted for, and the
sum gets the larger z_Δ that leaves room for the count.
"""

from __future__ import annotations

import math

from torch import Tensor

from spreadout.privacy.discrete_gaussian import Words, discrete_gaussian
from spreadout.privacy.mechanism import GaussianMechanism
from spreadout.privacy.release import FINE

RATE = 0.2  # η_C: how fast the clip moves, as in the paper
SHARE = 20  # σ_b is a twentieth of the cohort, as in the paper …
LEAST = 2.0  # … and at least so many z, which makes z_Δ no more than a thirtieth larger than z


def count_noise(mechanism: GaussianMechanism, expected: float) -> float:
    """σ_b; expected: clients in a round."""
    return max(expected / SHARE, LEAST * mechanism.noise)


def sum_noise(mechanism: GaussianMechanism, expected: float) -> float:
    """z_Δ: the noise on the sum of updates, in clips."""
    if mechanism.clip_quantile is None or not mechanism.noise:
        return mechanism.noise
    spent = (2 * count_noise(mechanism, expected)) ** -2
    return float((mechanism.noise**-2 - spent) ** -0.5)


def next_clip(
    mechanism: GaussianMechanism, clip: float, lengths: Tensor, expected: float, noise: float
) -> float:
    """The clip after a round with updates of these lengths (k,); noise: one standard normal number."""
    if mechanism.clip_quantile is None:
        return clip
    above_half = float((lengths <= clip).double().sum()) - len(lengths) / 2
    sigma = count_noise(mechanism, expected) if mechanism.noise else 0.0
    return _moved(mechanism.clip_quantile, clip, above_half + sigma * noise, expected)


def released_clip(
    mechanism: GaussianMechanism, clip: float, lengths: Tensor, expected: float, words: Words
) -> float:
    """The same where the noise protects real clients: a discrete Gaussian on twice the count.

    Twice the count is a sum of ±1, which one client moves by 1: a whole number of the grid's units.
    """
    if mechanism.clip_quantile is None:
        return clip
    twice = int((lengths <= clip).sum()) * 2 - len(lengths)
    sigma = 2 * count_noise(mechanism, expected)
    unit = min(1.0, math.ldexp(1.0, math.frexp(sigma)[1] - FINE))  # a power of two
    noise = discrete_gaussian(1, math.ceil(sigma / unit) + 1, words)
    noised = (round(twice / unit) + int(noise[0])) * unit
    return _moved(mechanism.clip_quantile, clip, noised / 2, expected)


def _moved(quantile: float, clip: float, above_half: float, expected: float) -> float:
    share = 0.5 + above_half / expected
    return clip * math.exp(-RATE * (share - quantile))
