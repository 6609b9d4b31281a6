"""(ε, δ) of noise on sums over clients that were drawn at random: dp-accounting's accountants.

Poisson sampling: every client is in a round with probability q, by itself, and the sum of clipped
updates gets noise of σ clips; adjacency adds or removes a client, so the sensitivity is one clip. By
privacy loss distributions (PLD, nearly exact); Rényi (RDP) is a second accountant beside it.

Cohorts of a fixed size are not Poisson samples. There one client's data is replaced, and only Rényi has
a bound (`fixed_size_epsilon`).
"""

from __future__ import annotations

import importlib
import importlib.util
import logging
import math
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
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


@lru_cache(maxsize=256)
def poisson_epsilon(noise: float, rate: float, rounds: int, delta: float) -> Accounted:
    """Of so many rounds, each client in each of them with probability `rate`."""
    nearly_exact = _losses(noise, rate, rounds).get_epsilon(delta)
    return Accounted(float(nearly_exact), _renyi(noise, rate, rounds, delta))


@lru_cache(maxsize=4096)
def fixed_size_epsilon(noise: float, cohort: int, population: int, rounds: int, delta: float) -> float:
    """Of rounds with exactly `cohort` of `population` clients, one client's data replaced.

    noise: in units of what replacing one client may move the sum by.
    """
    dp = _library("")
    accountant = _library(".rdp").RdpAccountant(neighboring_relation=dp.NeighboringRelation.REPLACE_ONE)
    event = dp.GaussianDpEvent(noise)
    if cohort < population:
        event = dp.SampledWithoutReplacementDpEvent(population, cohort, event)
    with _quiet():
        return float(accountant.compose(event, rounds).get_epsilon(delta))


def there() -> bool:
    """Whether the library is installed."""
    return importlib.util.find_spec("dp_accounting") is not None


@lru_cache(maxsize=32)
def _losses(noise: float, rate: float, rounds: int) -> Any:
    """What so many rounds compose to; asked at one δ after another."""
    return _library(".pld").PLDAccountant().compose(_event(noise, rate), rounds)


def _renyi(noise: float, rate: float, rounds: int, delta: float) -> float:
    accountant = _library(".rdp").RdpAccountant()
    with _quiet():
        return float(accountant.compose(_event(noise, rate), rounds).get_epsilon(delta))


@contextmanager
def _quiet() -> Iterator[None]:
    """Without warnings of orders that it leaves out: they make ε no smaller than it is."""
    log = logging.getLogger("absl")
    before = log.level
    log.setLevel(logging.ERROR)
    try:
        yield
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
