"""What a server learns of a client's classes from the rows it asks for (FedSS).

A client asks for S_k = P_k ∪ N_k: its own classes among negatives. An observer keeps, for each client,
the classes that were in all its requests so far: its own are among them. With uniform negatives these
candidates are alike to him, so each is one of the client's with probability |P_k| / |candidates|; with
negatives by popularity, a popular class has more often been drawn by chance. He is assumed to know how
many classes a client has: what is reported is what such an observer can know at most.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq

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
    candidates: Classes, own: int, requests: int, asked: int, popularity: Weights | None = None
) -> Weights:
    """For each candidate, the probability that it is one of the client's `own` classes.

    asked: how many rows it asks for; popularity: (C,) by which its negatives are drawn, None: uniformly.
    """
    if own >= len(candidates):
        return np.ones(len(candidates))
    if popularity is None:
        return np.full(len(candidates), own / len(candidates))
    rare = 1 - np.clip(popularity[candidates], 1e-12, 1 - 1e-12)
    prior, chance = 1 - rare ** max(own, 1), 1 - rare ** max(asked - own, 1)
    # A class is a client's as often as it is popular, and is drawn by chance so often too.
    odds = np.log(prior) - np.log1p(-prior) - requests * np.log(chance)

    def total(shift: float) -> float:
        return float((1 / (1 + np.exp(-np.clip(odds + shift, -500, 500)))).sum()) - own

    shift = brentq(total, -float(odds.max()) - 500, -float(odds.min()) + 500)
    return np.asarray(1 / (1 + np.exp(-np.clip(odds + shift, -500, 500))))


def audit(
    requests: Iterable[tuple[int, Sequence[int]]],
    own: dict[int, Classes],
    *,
    popularity: Weights | None = None,
    fixed: bool = False,
) -> list[Look]:
    """One look for every number of requests. requests: (client, rows) in the order they came.

    fixed: the client says that it asks for the same rows every time, so that seeing them again is no
    evidence.
    """
    seen: dict[int, tuple[int, Classes]] = {}
    found: dict[int, list[tuple[float, float, float, float]]] = {}
    for client, rows in requests:
        asked = np.unique(np.asarray(rows, dtype=np.int64))
        turn, before = seen.get(client, (0, asked))
        candidates = np.intersect1d(before, asked, assume_unique=True)
        seen[client] = turn + 1, candidates
        mine = own[client]
        evidence = 1 if fixed else turn + 1
        belief = posterior(candidates, len(mine), evidence, len(asked), popularity)
        right = np.isin(candidates, mine)
        guess = np.argsort(-belief, kind="stable")[: len(mine)]
        # Among equals his guess is a draw: what he finds in the mean.
        level = belief[guess].min(initial=1.0)
        sure, equal = belief > level, belief == level
        left = len(mine) - int(sure.sum())
        hits = right[sure].sum() + left * (right[equal].mean() if equal.any() else 0.0)
        exposed = float(len(candidates) == len(mine))
        confidence = float(belief[right].mean()) if right.any() else 1.0
        share = float(hits / len(mine)) if len(mine) else 1.0
        found.setdefault(turn + 1, []).append((float(len(candidates)), confidence, share, exposed))
    return [
        Look(turn, len(each), *(float(np.mean(column)) for column in zip(*each, strict=True)))
        for turn, each in sorted(found.items())
    ]
