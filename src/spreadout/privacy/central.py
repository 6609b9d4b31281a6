"""What rounds of noise on the server's sum cost, by how their clients are drawn.

- Poisson: each client by itself, with probability q. One client's contribution is replaced by nothing
  (their number is public, and sets q and the divisor): the sum moves by one clip. PLD, with Rényi beside
  it (`sampled.py`); without that library Rényi alone (`renyi.py`).
- everyone: the same with q = 1, where the Gaussian curve is exact.
- a fixed number without replacement: one client's data is replaced, as the number of clients does not
  change; the sum moves by two clips (Wang, Balle & Kasiviswanathan 2019, by dp-accounting's Rényi).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from spreadout.privacy import sampled
from spreadout.privacy.accounting import REPLACE_ONE_CLIENT, epsilon_of
from spreadout.privacy.renyi import renyi_epsilon
from spreadout.privacy.sampled import Accounted

Drawn = Literal["poisson", "everyone", "fixed-size"]
ADD_OR_REMOVE = (
    "one client's contribution, with all of its data, is replaced by nothing; the number of clients is "
    "public"
)
REPLACE = "one client's data is replaced by any other"


@dataclass(frozen=True)
class Rounds:
    """How the clients of every round are drawn."""

    drawn: Drawn
    cohort: int  # clients in a round, expected or exactly
    population: int

    @property
    def rate(self) -> float:
        return min(1.0, self.cohort / max(self.population, 1))

    @property
    def adjacency(self) -> str:
        return REPLACE if self.drawn == "fixed-size" else ADD_OR_REMOVE

    @property
    def accountant(self) -> str:
        if self.drawn == "fixed-size":
            return "Rényi (dp-accounting), a fixed number drawn without replacement"
        if self.rate >= 1:
            return "Gaussian differential privacy, exact"
        return "privacy loss distributions and Rényi (dp-accounting)" if sampled.there() else "Rényi"

    def spent(self, noise: float, rounds: int, delta: float) -> Accounted:
        """ε after so many rounds, as close as can be computed; seconds where clients are sampled."""
        if not rounds:
            return Accounted(0.0, 0.0)
        if not noise:
            return Accounted(math.inf, math.inf)
        if self.drawn == "fixed-size":
            at_most = self.at_most(noise, rounds, delta)
            return Accounted(at_most, at_most)
        if self.rate >= 1:
            return Accounted(epsilon_of(noise, rounds, delta, 1.0), self.at_most(noise, rounds, delta))
        if not sampled.there():
            at_most = self.at_most(noise, rounds, delta)
            return Accounted(at_most, at_most)
        return sampled.poisson_epsilon(noise, self.rate, rounds, delta)

    def at_most(self, noise: float, rounds: int, delta: float) -> float:
        """An upper bound, at once; of everyone, and of fixed sizes, as close as can be."""
        if not rounds:
            return 0.0
        if not noise:
            return math.inf
        if self.drawn == "fixed-size":
            each = noise / REPLACE_ONE_CLIENT
            return sampled.fixed_size_epsilon(each, self.cohort, self.population, rounds, delta)
        if self.rate >= 1:
            return epsilon_of(noise, rounds, delta, 1.0)
        return renyi_epsilon(noise, self.rate, rounds, delta)

    def allowed(self, noise: float, epsilon: float, delta: float, rounds: int) -> int:
        """How many of so many rounds stay within ε."""
        return _allowed(self, noise, epsilon, delta, rounds)


@lru_cache(maxsize=64)
def _allowed(drawn: Rounds, noise: float, epsilon: float, delta: float, rounds: int) -> int:
    if drawn.at_most(noise, rounds, delta) <= epsilon:
        return rounds
    if drawn.spent(noise, rounds, delta).epsilon <= epsilon:
        return rounds
    low, high = 0, rounds  # ε is within the budget at one, and above it at the other
    while high - low > 1:
        middle = (low + high) // 2
        if (
            drawn.at_most(noise, middle, delta) <= epsilon
            or drawn.spent(noise, middle, delta).epsilon <= epsilon
        ):
            low = middle
        else:
            high = middle
    return low
