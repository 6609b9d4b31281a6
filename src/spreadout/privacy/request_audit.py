"""What a server learns about a client's classes from the rows it requests (FedSS).

A client requests S_k = P_k ∪ N_k: its own classes among negatives. An observer keeps, for each client,
the classes that were in all its requests so far: its own are among them. How likely each candidate is to
be the client's follows from how popular the class is (who holds many clients' class is more likely
theirs) and from how likely it would have been drawn so often by chance. He is assumed to know the
popularity of classes and how many each client has, so as not to be a weak observer; he looks at requests
only. How rows have moved is in `update_audit.py`.

Drawn without replacement, classes are not independent. They are taken to be, given how many are drawn:
as if each rang after a time of its own, at the rate of its popularity, and those were drawn that ring
before a common time t. Beliefs are Bayes' rule under that approximation; with one own class among
uniform negatives they are exact. Of cover sets (`cover.py`) no draw is left: beliefs follow from the
popularity of classes alone, and from each block's holding one of the client's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial

import numpy as np
from numpy.typing import NDArray

from spreadout.privacy.counted_events import exactly, in_blocks

Classes = NDArray[np.int64]
Weights = NDArray[np.float64]


@dataclass(frozen=True)
class Look:
    """What an observer knows after so many requests of each client, in the mean over clients."""

    requests: int
    clients: int  # that were seen so often
    candidates: float  # classes that may still be a client's
    confidence: float  # probability he gives to a class that is
    found: float  # share of a client's classes among his best guesses, as many as it has
    exposed: float  # share of clients whose classes he can name without doubt


def posterior(
    candidates: Classes,
    own: int,
    requests: int,
    requested: int,
    popularity: Weights,
    *,
    by_popularity: bool = False,
    blocks: Classes | None = None,
    clock: Callable[[int], float] | None = None,
) -> Weights:
    """For each candidate, the probability that it is one of the client's `own` classes.

    requested: how many rows it requests; popularity: (C,) shares; by_popularity: negatives are drawn by
    them, else uniformly; blocks: (C,) of cover sets, where requests are whole ones; clock: `ringing` of
    this popularity, if it is at hand.
    """
    if own == 0:
        return np.zeros(len(candidates))
    if own >= len(candidates):
        return np.ones(len(candidates))
    until = clock or partial(ringing, popularity)
    rate = np.maximum(popularity[candidates], 1e-12)
    odds = np.log(rate) if own == 1 else np.log(np.expm1(rate * until(own)))
    if blocks is not None and len(np.unique(blocks[candidates])) <= own:  # else it is no cover set
        return in_blocks(odds, blocks[candidates], own)
    if not by_popularity or requested <= own:  # drawn by chance, all are alike
        return exactly(odds, own)
    belief = exactly(odds - requests * np.log(-np.expm1(-rate * until(requested))), own)
    strange = np.ones(len(popularity))  # the others are drawn among those that are not its own
    strange[candidates] -= belief
    drawn = ringing(popularity, requested - own, strange)
    return exactly(odds - requests * np.log(-np.expm1(-rate * drawn)), own)


def ringing(popularity: Weights, count: int, present: Weights | None = None) -> float:
    """The time t until which `count` of the classes ring in the mean: Σ (1 − e^(−w t)) = count.

    present: how likely each is to be among them at all.
    """
    rate = np.maximum(popularity, 1e-12)
    there = np.ones(len(rate)) if present is None else present
    if count >= there.sum() - 1e-9:
        return float("inf")
    low, high = 0.0, 1.0
    while (there * -np.expm1(-rate * high)).sum() < count:
        low, high = high, 2 * high
    for _ in range(50):
        middle = (low + high) / 2
        few = (there * -np.expm1(-rate * middle)).sum() < count
        low, high = (middle, high) if few else (low, middle)
    return high


def watch(
    requests: Iterable[tuple[int, Sequence[int]]],
    own: Mapping[int, Classes],
    popularity: Weights,
    *,
    by_popularity: bool = False,
    fixed: bool = False,
    blocks: Classes | None = None,
) -> Iterator[tuple[int, int, Classes, Weights]]:
    """After every request: whose it was, which of its requests, the candidates left, his belief in them.

    requests: (client, rows) in the order they came; fixed: the client requests the same
    rows every time, so that seeing them again is no evidence; blocks: as in `posterior`. Clients
    without classes are passed over.
    """
    seen: dict[int, tuple[int, Classes]] = {}
    clock = cache(partial(ringing, popularity))
    for client, rows in requests:
        mine = own[client]
        if not len(mine):
            continue
        requested = np.unique(np.asarray(rows, dtype=np.int64))
        turn, before = seen.get(client, (0, requested))
        candidates = np.intersect1d(before, requested, assume_unique=True)
        seen[client] = turn + 1, candidates
        times = 1 if fixed else turn + 1
        known = candidates, len(mine), times, len(requested), popularity
        belief = posterior(*known, by_popularity=by_popularity, blocks=blocks, clock=clock)
        yield client, turn + 1, candidates, belief


def audit(
    requests: Iterable[tuple[int, Sequence[int]]],
    own: Mapping[int, Classes],
    popularity: Weights,
    *,
    by_popularity: bool = False,
    fixed: bool = False,
    blocks: Classes | None = None,
) -> list[Look]:
    """What `watch` sees, in the mean over clients: one look for every number of requests."""
    found: dict[int, list[tuple[float, float, float, float]]] = {}
    how = {"by_popularity": by_popularity, "fixed": fixed}
    watched = watch(requests, own, popularity, blocks=blocks, **how)
    for client, turn, candidates, belief in watched:
        mine = own[client]
        right = np.isin(candidates, mine)
        level = np.sort(belief)[::-1][: len(mine)].min(initial=1.0)
        sure, equal = belief > level + 1e-12, np.abs(belief - level) <= 1e-12
        left = len(mine) - int(sure.sum())
        # Among equals his guess is a draw: what he finds in the mean.
        hits = right[sure].sum() + left * (right[equal].mean() if equal.any() else 0.0)
        exposed = float(len(candidates) == len(mine))
        confidence = float(belief[right].mean()) if right.any() else 0.0
        found.setdefault(turn, []).append(
            (float(len(candidates)), confidence, float(hits / len(mine)), exposed)
        )
    return [
        Look(turn, len(each), *(float(np.mean(column)) for column in zip(*each, strict=True)))
        for turn, each in sorted(found.items())
    ]
