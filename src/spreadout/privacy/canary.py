"""How much an attack on the mechanism itself shows, beside what is claimed for it.

A canary client sends one of two updates that lie as far apart as any two can. Whoever sees the release
guesses which. An (ε, δ) that holds bounds how often he is right against how often he is wrong: true
positives ≤ e^ε · false positives + δ. So the rates of an attack, with confidence bounds around them,
show a least ε. If that is above the claim, the noise is not what it is said to be. (If it is below,
nothing is proven: another attack might show more.) The threshold is chosen on one half of the trials,
the rates are those of the other (Jagielski, Ullman & Oprea 2020).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.stats import beta

from spreadout.core.types import Params
from spreadout.privacy.accounting import epsilon_of
from spreadout.privacy.mechanism import GaussianMechanism

CONFIDENCE = 0.999  # that a sound mechanism is not accused, for each bound
THRESHOLDS = 200
Scores = NDArray[np.float64]
Releases = Callable[[Params], Params]  # what leaves a client of a change


@dataclass(frozen=True)
class Shown:
    """What an attack shows of one release, and what is claimed of it."""

    trials: int
    shown: float  # ε is at least this
    claimed: float | None  # None: nothing is
    delta: float

    @property
    def refutes(self) -> bool:
        return self.claimed is not None and self.shown > self.claimed


def attack(mechanism: GaussianMechanism, release: Releases, trials: int) -> Shown:
    """Releases of two opposite updates, `trials` of each, told apart by their direction."""
    far = 100.0 * mechanism.clip * torch.tensor([3.0, -4.0, 12.0, 0.0])  # clipping is part of the claim
    scores: list[Scores] = []
    for sign in (1.0, -1.0):
        each = []
        for _ in range(trials):
            change = Params({"w": sign * far[:2]}, {"classes": sign * far[None, 2:]})
            sent = release(change)
            flat = torch.cat([sent.dense["w"], sent.rows["classes"][0]]).double()
            each.append(float(flat @ far.double()))
        scores.append(np.array(each))
    claimed = epsilon_of(mechanism.noise, 1, mechanism.delta)
    shown = least_epsilon(scores[0], scores[1], mechanism.delta)
    return Shown(trials, shown, claimed if math.isfinite(claimed) else None, mechanism.delta)


def least_epsilon(one: Scores, other: Scores, delta: float) -> float:
    """The largest ε that the attack refutes anything below of, with confidence; scores of two worlds."""
    half = min(len(one), len(other)) // 2
    both = np.quantile(np.concatenate([one[:half], other[:half]]), np.linspace(0, 1, THRESHOLDS))
    choices = [(float(t), sign) for t in both for sign in (1, -1)]
    at, sign = max(choices, key=lambda some: _bound(one[:half], other[:half], some[0], some[1], delta))
    return max(0.0, _bound(one[half:], other[half:], at, sign, delta))


def _bound(one: Scores, other: Scores, threshold: float, sign: int, delta: float) -> float:
    """log((TPR − δ) / FPR), of bounds on both (Clopper & Pearson 1934)."""
    hits, misses = (int((sign * world >= sign * threshold).sum()) for world in (one, other))
    doubt = 1 - CONFIDENCE
    low = float(beta.ppf(doubt, hits, len(one) - hits + 1)) if hits else 0.0
    high = float(beta.ppf(1 - doubt, misses + 1, len(other) - misses)) if misses < len(other) else 1.0
    return math.log((low - delta) / high) if low > delta else -math.inf
