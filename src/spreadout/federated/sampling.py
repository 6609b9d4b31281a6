"""Which clients take part in a round."""

from __future__ import annotations

from typing import Literal

import numpy as np
import torch
from torch import Tensor

from spreadout.core import randomness
from spreadout.core.randomness import Ints
from spreadout.privacy.discrete_gaussian import Words, uniform

Selection = Literal["uniform", "poisson", "nonempty", "weighted", "fixed", "full"]
"""`uniform`: without replacement, all equally likely; `poisson`: each by itself, so that their number
varies and may be 0, as noise on the server needs it; `nonempty`: uniform among those that have examples;
`weighted`: without replacement, in proportion to their examples; `fixed`: the same uniform draw every
round; `full`: everyone, every round."""


def sample_clients(
    selection: Selection, sizes: Ints, per_round: int, *, seed: int, round: int
) -> Tensor:
    """The round's cohort: distinct client numbers, ascending: (per_round,), by `poisson` about as many.

    sizes: how many examples each client trains on.
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
    chance = None
    if selection == "weighted":
        chance = sizes / sizes.sum()
        per_round = min(per_round, int((sizes > 0).sum()))  # an empty client has no chance at all
    cohort = generator.choice(clients, size=per_round, replace=False, p=chance, shuffle=False)
    return torch.from_numpy(np.sort(cohort).astype(np.int64))


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
