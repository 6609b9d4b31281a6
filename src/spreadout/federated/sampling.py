"""Which clients take part in a round."""

from __future__ import annotations

from typing import Literal

import numpy as np
import torch
from torch import Tensor

from spreadout.core import randomness
from spreadout.core.randomness import Ints
from spreadout.privacy.discrete_gaussian import Words, uniform

Selection = Literal["uniform", "poisson", "nonempty", "weighted", "by_size", "fixed", "full"]
"""`uniform`: without replacement, all equally likely; `poisson`: each by itself, so that their number
varies and may be 0, as noise on the server needs it; `nonempty`: uniform among those that have examples;
`weighted`: without replacement, in proportion to their examples; `by_size`: the same so that each is in
with a probability of exactly min(1, n_i / T), T as `certain_from` says; `fixed`: the same uniform draw
every round; `full`: everyone, every round."""


def sample_clients(
    selection: Selection,
    sizes: Ints,
    per_round: int,
    *,
    seed: int,
    round: int,
    threshold: float | None = None,
) -> Tensor:
    """The round's cohort: distinct client numbers, ascending: (per_round,), by `poisson` about as many.

    sizes: how many examples each client trains on; threshold: `certain_from` of them, where it is known.
    """
    clients = len(sizes)
    if selection == "full":
        return torch.arange(clients)
    if selection == "nonempty":
        busy = np.flatnonzero(sizes)
        drawn = sample_clients("uniform", sizes[busy], min(per_round, len(busy)), seed=seed, round=round)
        return torch.from_numpy(busy)[drawn]
    drawn_in = 0 if selection == "fixed" else round
    generator = randomness.generator(seed, "cohort", drawn_in)
    if selection == "poisson":
        return torch.from_numpy(np.flatnonzero(generator.random(clients) < per_round / clients))
    if selection == "by_size":
        return torch.from_numpy(_by_size(sizes, per_round, generator, threshold))
    chance = None
    if selection == "weighted":
        chance = sizes / sizes.sum()
        per_round = min(per_round, int((sizes > 0).sum()))  # an empty client has no chance at all
    cohort = generator.choice(clients, size=per_round, replace=False, p=chance, shuffle=False)
    return torch.from_numpy(np.sort(cohort).astype(np.int64))


def certain_from(sizes: Ints, per_round: int) -> float:
    """T: how many examples make it certain that a client is drawn `by_size`; 0 where all are.

    The others are in with probability n_i / T each, so many in the mean as there are places left: T is
    what they have together, divided by those places. Weights max(n_i, T) make the mean over a cohort an
    unbiased estimate of the mean over all clients by n_i/n (Horvitz and Thompson 1952), and they add up
    to the same in every cohort.

    >>> import numpy as np
    >>> certain_from(np.array([6, 1, 1, 2]), per_round=2)  # the first is, one of the others too
    4.0
    """
    falling = np.sort(sizes[sizes > 0])[::-1]
    if per_round >= len(falling):
        return 0.0
    rest = falling[::-1].cumsum()[::-1]  # (clients,) examples from here on
    left = per_round - np.arange(len(falling))  # places when all before are certain
    first = int(np.argmax(left * falling < rest))  # of those that are not certain
    return float(rest[first] / left[first])


def _by_size(
    sizes: Ints, per_round: int, generator: np.random.Generator, threshold: float | None
) -> Ints:
    """Systematic sampling (Madow 1949) over the clients in a random order."""
    threshold = certain_from(sizes, per_round) if threshold is None else threshold
    certain = np.flatnonzero((sizes >= threshold) & (sizes > 0))
    others = np.flatnonzero((sizes < threshold) & (sizes > 0))
    places = per_round - len(certain)
    if not len(others) or places <= 0:
        return certain
    others = generator.permutation(others)
    ends = np.cumsum(sizes[others], dtype=np.float64)
    marks = (generator.random() + np.arange(places)) * ends[-1] / places  # a mark every T examples
    drawn = others[np.searchsorted(ends, marks, side="right").clip(max=len(others) - 1)]
    return np.sort(np.concatenate([certain, drawn]))


def sample_in_secret(selection: Selection, clients: int, per_round: int, words: Words) -> Tensor:
    """The same for noise on a real server, which counts on nobody knowing who was drawn.

    words: of the operating system's entropy, for this draw alone. By `poisson` each client is in with
    probability per_round / clients exactly.
    """
    if selection == "full":
        return torch.arange(clients)
    if selection == "poisson":
        return torch.from_numpy(np.flatnonzero(uniform(clients, max(clients, 1), words) < per_round))
    if selection == "uniform":  # those with the smallest words; that two are equal never happens
        return torch.from_numpy(np.sort(np.argsort(words(clients), kind="stable")[:per_round]))
    raise ValueError(f"selection = {selection!r}: cannot be drawn in secret")
