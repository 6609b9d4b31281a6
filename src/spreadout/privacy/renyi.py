"""(ε, δ) of Poisson-sampled Gaussian rounds by Rényi differential privacy, at whole orders.

For whole α, sampling rate q and noise σ (Mironov, Talwar & Zhang 2019, §3.3):
    (α − 1) · RDP(α) = log Σ_k C(α, k) (1 − q)^(α−k) q^k exp((k² − k) / 2σ²),
added up over rounds, and turned into ε at δ by Canonne, Kamath & Steinke (2020), Prop. 12. It is an
upper bound in a millisecond; the accountants of `sampled.py` come closer.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln, logsumexp

ORDERS = np.array([*range(2, 64), *range(64, 256, 8), *range(256, 2049, 128)])


def renyi_epsilon(noise: float, rate: float, rounds: int, delta: float) -> float:
    """An ε that holds after so many rounds, each client in each with probability `rate`."""
    if not rounds:
        return 0.0
    if not noise:
        return float("inf")
    a = ORDERS.astype(np.float64)
    found = rounds * _of_one(noise, rate) + np.log1p(-1 / a) - (np.log(delta) + np.log(a)) / (a - 1)
    return max(0.0, float(found.min()))


@lru_cache(maxsize=64)
def _of_one(noise: float, rate: float) -> NDArray[np.float64]:
    """RDP of one round at every order."""
    if rate >= 1:
        return ORDERS / (2 * noise**2)
    found = []
    for order in ORDERS.tolist():
        k = np.arange(order + 1)
        ways = gammaln(order + 1) - gammaln(k + 1) - gammaln(order - k + 1)
        weight = (order - k) * np.log1p(-rate) + k * np.log(rate)
        found.append(logsumexp(ways + weight + (k * k - k) / (2 * noise**2)) / (order - 1))
    return np.array(found)
