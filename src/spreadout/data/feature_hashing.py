"""Feature hashing (Weinberger et al. 2009): many sparse features in a few, by one hash function."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from spreadout.core.hashing import PRIME, HashFamily, signs
from spreadout.data.columns import Sparse


def hashed(column: Sparse, width: int, *, signed: bool) -> Sparse:
    """The same vectors over `width` features; what falls together adds up.

    signed: every feature is added with a sign of its own, so that sums are right in the mean.
    """
    weights = column.weights
    if signed:
        weights = weights * signs(_side(), column.ids)[0]
    return replace(column, ids=_place(width)(column.ids)[0], weights=weights, width=width)


def rule(width: int, *, signed: bool) -> dict[str, Any]:
    """All that another program needs to hash feature x, counted from 0, in the same way."""
    return {
        "form": "((a x + b) mod prime) mod buckets",
        "prime": PRIME,
        "bucket": _numbers(_place(width)),
        "sign": _numbers(_side()) if signed else None,  # 0: −1, 1: 1
    }


def rule_in_words(width: int, *, signed: bool) -> str:
    """The same for a person."""
    place, side = _numbers(_place(width)), _numbers(_side())
    said = f"Feature x, counted from 0, goes to {_formula(place)}; what falls together is added up"
    return f"{said}, each times 2 ({_formula(side)}) − 1" if signed else said


def _place(width: int) -> HashFamily:
    return HashFamily.drawn(1, width, seed=0, use="features")


def _side() -> HashFamily:
    return HashFamily.drawn(1, 2, seed=0, use="feature signs")


def _numbers(family: HashFamily) -> dict[str, int]:
    return {"a": int(family.a[0]), "b": int(family.b[0]), "buckets": family.buckets}


def _formula(one: Mapping[str, int]) -> str:
    return f"(({one['a']} x + {one['b']}) mod {PRIME}) mod {one['buckets']}"
