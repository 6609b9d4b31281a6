"""The clients of one round, and the rows each of them requests."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from spreadout.core.ragged import Ragged
from spreadout.core.randomness import Ints
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
