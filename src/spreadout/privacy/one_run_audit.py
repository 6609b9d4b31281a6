"""A lower bound on ε from a single training (Steinke, Nasr & Jagielski 2023).

Many canaries, each of which is there or not by the toss of a coin. Whoever sees what was released
guesses some of the coins and leaves out those he is unsure of. If (ε, δ) holds, every guess is right
with probability e^ε / (1 + e^ε) at most, and the number of right ones is no larger than a binomial one,
but for what δ allows (Theorem 5.2). So many right guesses refute every ε with which they would be too
unlikely.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.stats import binom

CONFIDENCE = 0.999  # that a sound mechanism is not accused
SHARES = (
    0.02,
    0.1,
    0.3,
    1.0,
)  # of the canaries that are guessed; each is tried, at a part of the doubt
STEPS = 40  # of a bisection


@dataclass(frozen=True)
class OneRun:
    """What the guesses show of a whole training, and what is claimed of it."""

    canaries: int
    rounds: int
    guesses: int
    right: int
    shown: float  # ε is at least this
    claimed: float | None  # None: nothing is
    delta: float

    @property
    def refutes(self) -> bool:
        return self.claimed is not None and self.shown > self.claimed


def audited(
    scores: NDArray[np.float64],
    there: NDArray[np.bool_],
    *,
    rounds: int,
    claimed: float,
    delta: float,
) -> OneRun:
    """From a score of each canary, larger for those that seem to be there, and the coins themselves."""
    order, best = np.argsort(scores, kind="stable"), OneRun(0, 0, 0, 0, -1.0, None, delta)
    for share in SHARES:
        half = max(1, round(len(scores) * share / 2))
        right = int(there[order[-half:]].sum() + (~there[order[:half]]).sum())
        shown = least_epsilon(len(scores), 2 * half, right, delta, (1 - CONFIDENCE) / len(SHARES))
        if shown > best.shown:
            finite = claimed if math.isfinite(claimed) else None
            best = OneRun(len(scores), rounds, 2 * half, right, shown, finite, delta)
    return best


def least_epsilon(canaries: int, guesses: int, right: int, delta: float, doubt: float) -> float:
    """The largest ε that so many right guesses refute, but for this doubt."""
    low, high = 0.0, 1.0
    if chance_of(canaries, guesses, right, low, delta) > doubt:
        return 0.0
    while chance_of(canaries, guesses, right, high, delta) <= doubt:
        low, high = high, 2 * high
    for _ in range(STEPS):
        middle = (low + high) / 2
        if chance_of(canaries, guesses, right, middle, delta) <= doubt:
            low = middle
        else:
            high = middle
    return low


def chance_of(canaries: int, guesses: int, right: int, epsilon: float, delta: float) -> float:
    """How likely as many right guesses are, at most, if (ε, δ) holds (their Appendix D)."""
    q = 1 / (1 + math.exp(-epsilon))
    beta = float(binom.sf(right - 1, guesses, q))
    # max over i of P(right − i ≤ B < right) / i: what moving δ of the probability can gain
    before = np.cumsum(binom.pmf(np.arange(right - 1, -1, -1), guesses, q))
    alpha = float((before / np.arange(1, right + 1)).max()) if right else 0.0
    return min(1.0, beta + 2 * canaries * delta * alpha)
