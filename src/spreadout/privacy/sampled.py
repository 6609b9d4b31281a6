"""(ε, δ) of noise on sums over clients that were drawn at random: dp-accounting's accountants.

Poisson sampling: every client is in a round with probability q, by itself, and the sum of clipped
updates gets noise of σ clips; adjacency adds or removes a client, so the sensitivity is one clip. By
privacy loss distributions (PLD, nearly exact); Rényi (RDP) is a second accountant beside it.

Cohorts of a fixed size are not Poisson samples, and what is said here does not hold for them.
"""

from __future__ import annotations

import importlib
import logging
import math
from typing import Any, NamedTuple

from scipy.optimize import brentq

from spreadout.core.errors import UserError

EXTRA = "pip install 'spreadout[privacy]'"
LEAST, MOST = 0.2, 1e5  # noise multipliers that are looked at
CLOSE, STEPS = 2e-3, 6  # how near to the budget a plan comes, and in how many steps at most


class Accounted(NamedTuple):
    """ε by two accountants."""

    pld: float
    rdp: float

    @property
    def epsilon(self) -> float:
        """The smaller of what is proven."""
        return min(self.pld, self.rdp)


def poisson_epsilon(noise: float, rate: float, rounds: int, delta: float) -> Accounted:
    """Of so many rounds, each client in each of them with probability `rate`."""
    pld = _library(".pld")
    nearly_exact = pld.PLDAccountant().compose(_event(noise, rate), rounds).get_epsilon(delta)
    return Accounted(float(nearly_exact), _renyi(noise, rate, rounds, delta))


def _renyi(noise: float, rate: float, rounds: int, delta: float) -> float:
    accountant, log = _library(".rdp").RdpAccountant(), logging.getLogger("absl")
    before = log.level
    log.setLevel(logging.ERROR)  # orders that it leaves out make ε no smaller than it is
    try:
        return float(accountant.compose(_event(noise, rate), rounds).get_epsilon(delta))
    finally:
        log.setLevel(before)


def _event(noise: float, rate: float) -> Any:
    dp = _library("")
    event = dp.GaussianDpEvent(noise)
    return event if rate >= 1 else dp.PoissonSampledDpEvent(rate, event)


def least_poisson_noise(epsilon: float, rate: float, rounds: int, delta: float) -> float:
    """A noise multiplier that stays within ε at δ, and hardly more than the smallest.

    PLD takes seconds, so Rényi finds where to look: its noise is enough, and a little too much.
    """
    high = LEAST
    while _renyi(high, rate, rounds, delta) > epsilon:
        high *= 2
        if high > MOST:
            raise UserError(
                f"--epsilon {epsilon:g}: needs noise above {MOST:g} clips; take more, or fewer rounds"
            )
    if high == LEAST:
        return LEAST
    noise = brentq(lambda z: _renyi(z, rate, rounds, delta) - epsilon, high / 2, high, xtol=1e-4 * high)
    safe, slope = high, -1.0  # ε falls about as 1/z
    spent = poisson_epsilon(noise, rate, rounds, delta).epsilon
    for _ in range(STEPS):
        if spent <= epsilon:
            safe = min(safe, noise)
            if spent > epsilon * (1 - CLOSE):
                break
        before, told = noise, spent
        noise *= math.exp((math.log(epsilon * (1 - CLOSE / 2)) - math.log(spent)) / slope)
        spent = poisson_epsilon(noise, rate, rounds, delta).epsilon
        if noise != before and spent != told:
            slope = (math.log(spent) - math.log(told)) / (math.log(noise) - math.log(before))
    return float(min(safe, noise) if spent <= epsilon else safe)


def _library(part: str) -> Any:
    try:
        return importlib.import_module(f"dp_accounting{part}")
    except ImportError:
        raise UserError(f"dp-accounting is not installed; it counts sampled clients: {EXTRA}") from None
