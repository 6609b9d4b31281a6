"""The discrete Gaussian, exactly: P(x) ∝ exp(−x² / 2σ²) over the whole numbers.

Canonne, Kamath & Steinke, "The Discrete Gaussian for Differential Privacy" (2020), Algorithms 1 to 3,
for many samples at a time and whole σ. Everything is in whole numbers, so there is no rounding that an
observer could use, as there is with noise in floating point (Mironov 2012). How long it takes depends on
the words drawn, not on any data.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Yes = NDArray[np.bool_]
Words = Callable[[int], NDArray[np.uint64]]
"""So many independent uniform 64-bit words; a `KeyStream` is one."""

LARGEST = 1 << 20  # σ up to which no product below leaves 64 bits
BLOCK = 1 << 20  # samples at a time: what memory is for
ACCEPTED = 0.76  # √(π/2e), the share of Laplace draws that Algorithm 3 keeps where t = σ


def discrete_gaussian(count: int, sigma: int, words: Words) -> Ints:
    """Algorithm 3, with t = σ: a discrete Laplace draw is kept with probability e^(−(|y|−σ)²/2σ²)."""
    if not 1 <= sigma <= LARGEST:
        raise ValueError(f"σ = {sigma}: must lie between 1 and {LARGEST}")
    kept: list[Ints] = []
    missing = count
    while missing > 0:
        y = discrete_laplace(int(min(missing, BLOCK) / ACCEPTED) + 16, sigma, words)
        away = np.abs(y) - sigma
        kept.append(y[bernoulli_exp(away * away, 2 * sigma * sigma, words)][:missing])
        missing -= len(kept[-1])
    return np.concatenate(kept) if kept else np.empty(0, np.int64)


def discrete_laplace(count: int, scale: int, words: Words) -> Ints:
    """Algorithm 2: P(x) ∝ e^(−|x|/scale); what comes of `count` trials, 0.63 of them."""
    u = uniform(count, scale, words)
    u = u[bernoulli_exp(u, scale, words)]
    v = np.zeros(len(u), np.int64)  # how often in a row e^−1 happens
    going = np.arange(len(u))
    while len(going):
        going = going[bernoulli_exp(np.ones(len(going), np.int64), 1, words)]
        v[going] += 1
    x = u + scale * v
    negative = (words(len(x)) & np.uint64(1)).astype(bool)
    signed: Ints = np.where(negative, -x, x)
    return np.asarray(signed[~(negative & (x == 0))])  # zero has no sign: it would come twice as often


def bernoulli_exp(numerator: Ints, denominator: int, words: Words) -> Yes:
    """Algorithm 1: true with probability e^(−numerator/denominator), each by itself."""
    whole, rest = np.divmod(numerator, denominator)
    happened = _bernoulli_exp_below_one(rest, denominator, words)
    going = np.flatnonzero(happened & (whole > 0))
    while len(going):  # e^−1 must happen `whole` times more
        one = np.full(len(going), denominator, np.int64)
        again = _bernoulli_exp_below_one(one, denominator, words)
        happened[going[~again]] = False
        whole[going] -= 1
        going = going[again & (whole[going] > 0)]
    return happened


def _bernoulli_exp_below_one(p: Ints, q: int, words: Words) -> Yes:
    """e^(−p/q) for 0 ≤ p ≤ q: draw events of probability p/qk for k = 1, 2, … until one fails; k odd."""
    odd = np.empty(len(p), np.bool_)
    going, k = np.arange(len(p)), 1
    while len(going):
        happened = uniform(len(going), q * k, words) < p[going]
        odd[going[~happened]] = k % 2 == 1
        going, k = going[happened], k + 1
    return odd


def uniform(count: int, below: int, words: Words) -> Ints:
    """Whole numbers from 0 to below − 1, all alike: words beyond the last multiple are drawn again."""
    last = np.uint64((1 << 64) // below * below - 1)
    drawn = words(count).copy()
    again = np.flatnonzero(drawn > last)
    while len(again):
        drawn[again] = words(len(again))
        again = again[drawn[again] > last]
    return (drawn % np.uint64(below)).astype(np.int64)
