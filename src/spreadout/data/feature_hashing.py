"""Feature hashing (Weinberger et al. 2009): many sparse features in a few, by one hash function."""

from __future__ import annotations

from dataclasses import replace

from spreadout.core.hashing import HashFamily, signs
from spreadout.data.columns import Sparse


def hashed(column: Sparse, width: int, *, signed: bool) -> Sparse:
    """The same vectors over `width` features; what falls together adds up.

    signed: every feature is added with a sign of its own, so that sums are right in the mean.
    """
    place = HashFamily.drawn(1, width, seed=0, use="features")
    weights = column.weights
    if signed:
        side = HashFamily.drawn(1, 2, seed=0, use="feature signs")
        weights = weights * signs(side, column.ids)[0]
    return replace(column, ids=place(column.ids)[0], weights=weights, width=width)
