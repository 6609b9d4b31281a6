"""(ε, δ) of repeated Gaussian releases, exactly, by Gaussian differential privacy.

T releases with noise multiplier z and sensitivity Δ (in units of the clip) compose to one Gaussian
mechanism with μ = Δ·√T / z (Dong, Roth & Su 2022, Cor. 3.3), whose privacy curve has a closed form
(Balle & Wang 2018, Thm. 8):  δ(ε) = Φ(−ε/μ + μ/2) − e^ε Φ(−ε/μ − μ/2).
"""

from __future__ import annotations

import math

from scipy.optimize import brentq
from scipy.special import log_ndtr

# Replacing all of a client's data can move its clipped update from one end of the ball to the other.
REPLACE_ONE_CLIENT = 2.0

NO_PROMISE = 1e4  # μ from which on ε is above ten million, and nothing is promised


def delta_of(epsilon: float, mu: float) -> float:
    """δ(ε) of a Gaussian mechanism with parameter μ."""
    first = float(log_ndtr(-epsilon / mu + mu / 2))
    second = epsilon + float(log_ndtr(-epsilon / mu - mu / 2))
    return max(0.0, math.exp(first) - math.exp(second)) if second < 700 else 0.0


def epsilon_of(
    noise: float, releases: int, delta: float, sensitivity: float = REPLACE_ONE_CLIENT
) -> float:
    """The smallest ε that holds at this δ after so many noisy releases by one client."""
    if releases == 0:
        return 0.0
    return epsilon_of_mu(sensitivity * math.sqrt(releases) / noise if noise else math.inf, delta)


def epsilon_of_mu(mu: float, delta: float) -> float:
    """The same for a Gaussian mechanism with parameter μ; several compose by the sum of their μ²."""
    if mu == 0:
        return 0.0
    if mu > NO_PROMISE:
        return math.inf
    if delta_of(0.0, mu) <= delta:
        return 0.0
    high = 1.0
    while delta_of(high, mu) > delta:
        high *= 2
    return float(brentq(lambda e: delta_of(e, mu) - delta, 0.0, high, xtol=1e-9, maxiter=1000))


def least_noise(
    epsilon: float, releases: int, delta: float, sensitivity: float = REPLACE_ONE_CLIENT
) -> float:
    """The smallest noise multiplier with which so many releases stay within ε at δ."""
    if releases == 0 or epsilon_of_mu(NO_PROMISE, delta) <= epsilon:
        return 0.0
    low, high = 1e-9, 1.0  # of μ
    while epsilon_of_mu(high, delta) < epsilon:
        high *= 2
    mu = brentq(lambda m: epsilon_of_mu(m, delta) - epsilon, low, min(high, NO_PROMISE), xtol=1e-12)
    return float(sensitivity * math.sqrt(releases) / mu) * (1 + 1e-9)
