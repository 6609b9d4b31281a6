"""A shared secret out of its shares: Lagrange interpolation at 0 over GF(2^128), as PyCryptodome has it.

    p(0) = Σ_j y_j λ_j,   λ_j = Π_{m≠j} x_m / (x_j + x_m)

The weights λ depend only on who has answered. A server puts one secret together for every node of a
round, mostly from the same nodes' shares, so the weights are computed once for each set of nodes.
`Shamir.combine` computes them for every secret anew; it is the slow twin in the tests.

How long a product takes depends on the weight, which is public, and not on the share.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

BITS = 128
BELOW = (1 << BITS) - 1
GAP = 2 * BITS  # room for the product of one number, so that two can be multiplied at once


def combined(shares: Sequence[tuple[int, int, int]]) -> tuple[int, int]:
    """Two secrets out of shares (x, y of the first, y of the second), each with its own x above 0."""
    total = 0
    for weight, (_, first, second) in zip(weights(tuple(x for x, _, _ in shares)), shares, strict=True):
        total ^= _unreduced(first << GAP | second, weight)
    return _reduced(total >> GAP), _reduced(total & ((1 << GAP) - 1))


@lru_cache(maxsize=16)
def weights(places: tuple[int, ...]) -> tuple[int, ...]:
    """λ of every place; ValueError if one is 0 or comes twice."""
    if 0 in places or len(set(places)) < len(places):
        raise ValueError("places of shares are above 0, and each is there once")
    everyone = 1
    for x in places:
        everyone = times(everyone, x)
    below = []  # x_j Π_{m≠j} (x_j + x_m), as the product of all x_m has x_j too
    for x in places:
        product = x
        for other in places:
            product = product if other == x else times(product, x ^ other)
        below.append(product)
    return tuple(times(everyone, inverse) for inverse in _inverses(below))


def times(one: int, other: int) -> int:
    """The product of two numbers of the field."""
    return _reduced(_unreduced(one, other))


def _unreduced(value: int, weight: int) -> int:
    """The product of polynomials over GF(2): the value, shifted by every bit of the weight, summed."""
    found = 0
    while weight:
        lowest = weight & -weight
        found ^= value * lowest
        weight ^= lowest
    return found


def _reduced(product: int) -> int:
    """Modulo x^128 + x^7 + x^2 + x + 1."""
    while above := product >> BITS:
        product = (product & BELOW) ^ above ^ above << 1 ^ above << 2 ^ above << 7
    return product


def _inverses(values: Sequence[int]) -> list[int]:
    """1/v of each, by one inversion of the product of all."""
    before = [1]
    for value in values:
        before.append(times(before[-1], value))
    rest = _inverse(before[-1])
    found = []
    for i in range(len(values) - 1, -1, -1):
        found.append(times(rest, before[i]))
        rest = times(rest, values[i])
    return found[::-1]


def _inverse(value: int) -> int:
    """v^(2^128 − 2), as v^(2^128 − 1) = 1."""
    power, found = value, 1
    for _ in range(BITS - 1):
        power = times(power, power)
        found = times(found, power)
    return found
