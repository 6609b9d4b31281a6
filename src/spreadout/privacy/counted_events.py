"""Chances of independent events, given how many of them happen; and given that some do in every block.

With o_j the odds of an event and E_p the elementary symmetric polynomials of all odds (the sum over p
events of the product of their odds), the chance of event j among exactly p is
o_j E_{p−1}(all but j) / E_p(all). Everything is in logarithms.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Weights = NDArray[np.float64]


def exactly(odds: Weights, count: int) -> Weights:
    """Chances of events given that exactly so many happen. odds: (n,) logarithms → (n,)"""
    return in_blocks(odds, np.zeros(len(odds), np.int64), count)


def in_blocks(odds: Weights, block: NDArray[np.int64], count: int) -> Weights:
    """The same, given also that one at least happens in every block. block: (n,) of each event.

    What all blocks may do together is the coefficient of x^count in Π_b Σ_{j≥1} E_j(block b) x^j.
    """
    members = [np.flatnonzero(block == name) for name in np.unique(block).tolist()]
    before = [_polynomials(odds[at], count) for at in members]  # of those before each event …
    after = [_polynomials(odds[at][::-1], count)[::-1] for at in members]  # … and after it
    some = [np.concatenate([[-np.inf], whole[-1, 1:]]) for whole in before]
    nothing = np.concatenate([[0.0], np.full(count, -np.inf)])
    left, right = [nothing], [nothing]  # of the blocks before each, and after it
    for one in some:
        left.append(_product(left[-1], one[None])[0])
    for one in reversed(some):
        right.append(_product(right[-1], one[None])[0])
    found = np.empty(len(odds))
    for i, at in enumerate(members):
        others = _product(left[i], right[len(members) - 1 - i][None])[0]
        beside = _product(others, after[i][1:])[:, count - 1 :: -1]  # (m, count): what is left to them
        rest = np.logaddexp.reduce(before[i][:-1, :count] + beside, axis=1)
        found[at] = odds[at] + rest - left[-1][count]
    return np.asarray(np.exp(np.minimum(found, 0.0)))


def _polynomials(odds: Weights, count: int) -> Weights:
    """log E_0 … log E_count of the first 0, 1, … of the odds: (n + 1, count + 1)."""
    found = np.full((len(odds) + 1, count + 1), -np.inf)
    found[0, 0] = 0.0
    for i, one in enumerate(odds):
        found[i + 1] = found[i]
        found[i + 1, 1:] = np.logaddexp(found[i, 1:], found[i, :-1] + one)
    return found


def _product(one: Weights, several: Weights) -> Weights:
    """A polynomial times each of several, cut to its length: (c,), (m, c) → (m, c)."""
    terms = [np.logaddexp.reduce(one[: n + 1] + several[:, n::-1], axis=1) for n in range(len(one))]
    return np.stack(terms, axis=1)
