"""Classes that fall onto each other: how that is said, and what usually helps."""

from __future__ import annotations

from typing import Protocol

LOWER_RATES = "lower clients.lr and clients.row_lr tenfold, or the server's rate"


class ClassSpread(Protocol):
    """What a method's advice needs to know of the class table; a `Geometry` has it."""

    @property
    def max_cosine(self) -> float: ...
    @property
    def mean_cosine(self) -> float: ...
    @property
    def effective_rank(self) -> float: ...


def collapse_of(spread: ClassSpread) -> str:
    """That classes fall onto each other, and how near they are."""
    return (
        f"classes are collapsing: the nearest two have cosine {spread.max_cosine:.3f}, "
        f"the mean over all pairs is {spread.mean_cosine:.3f}"
    )
