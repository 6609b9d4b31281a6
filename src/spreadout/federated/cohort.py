"""The clients of one round, and the rows each of them requests."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from spreadout.core.ragged import Ragged
from spreadout.core.randomness import Ints
from spreadout.federated.federation import Federation
from spreadout.federated.sampling import sample_clients
from spreadout.federated.schedule import Plan


@dataclass(frozen=True)
class Cohort:
    """Who takes part in a round."""

    round: int
    clients: Tensor  # (k,) int64
    requests: dict[str, Ragged]  # k lists of row ids per table
    plan: Plan | None = None  # of their steps, where the requests follow from it

    def select(self, members: Ints) -> Cohort:
        """The clients at these places, with their requests."""
        if np.array_equal(members, np.arange(len(self.clients))):
            return self
        at = torch.from_numpy(members)
        requests = {name: rows.select(at) for name, rows in self.requests.items()}
        return replace(
            self,
            clients=self.clients[at],
            requests=requests,
            plan=self.plan and self.plan.select(at),
        )


def draw_clients(federation: Federation, round: int) -> Tensor:
    """Who takes part in a round: a function of (seed, round) alone, or of the number of the draw."""
    f, s = federation, federation.server
    threshold = f.certain_from if s.selection == "by_size" else None
    return sample_clients(
        s.selection, f.drawn_sizes, s.per_round, seed=f.seed, round=round, threshold=threshold
    )


def draw_cohort(federation: Federation, round: int, repeats: int = 0) -> Cohort:
    """Who takes part in a round, and the rows they request.

    repeats: rounds before it that were done twice (`central.repeats`): others are drawn then.
    """
    return request_rows(federation, draw_clients(federation, round + repeats), round)


def request_rows(federation: Federation, clients: Tensor, round: int) -> Cohort:
    """These clients, and the rows they request in a round."""
    f = federation
    if not (f.clients.requests_seen and f.data.features):
        return Cohort(round, clients, f.method.request(f.data, clients, seed=f.seed, round=round))
    requests = f.method.request(f.data.without_features, clients, seed=f.seed, round=round)
    steps = f.plan(clients, round)
    owner = steps.mask.nonzero()[:, 0]
    seen = f.data.offsets[clients][owner] + steps.index[steps.mask > 0]
    if steps.mask.shape[1] > 1:  # over several epochs an example is seen more than once
        once = Ragged.from_pairs(owner, seen, len(clients))
        owner, seen = torch.repeat_interleave(torch.arange(len(clients)), once.lengths), once.values
    tables = set(f.data.features.values())
    seen_rows = {t: f.data.rows_at(t, seen, owner, len(clients)) for t in tables}
    return Cohort(round, clients, requests | seen_rows, steps)
