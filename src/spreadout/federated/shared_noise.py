"""The noise that the nodes of a secure sum add together, simulated: no guarantee.

Every node adds its part to the whole vector, to rows that only others hold too (`sum_layout.py`). So a
row that one client of the round holds has the noise of all of them, and it is drawn once for the sum.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from spreadout.core import randomness
from spreadout.federated.aggregate import Aggregate
from spreadout.federated.federation import Federation
from spreadout.privacy.thresholds import LEAST_NODES, least, noisy


def noised_sum(f: Federation, round: int, summed: Aggregate) -> Aggregate:
    """A sum with the noise of its clients, each a node of its own, from (seed, round).

    Real nodes unmask no sum of fewer than the threshold; here it has the noise of as many.
    """
    mechanism = f.clients.privacy
    assert mechanism is not None
    nodes = max(f.server.per_round, LEAST_NODES)
    enough = noisy(nodes, mechanism.share, mechanism.colluding)
    parts = max(summed.clients, least(nodes, mechanism.share))
    deviation = mechanism.noise * mechanism.clip * math.sqrt(parts / enough)
    draw = randomness.generator(f.seed, "shared noise", round)

    def noised(value: Tensor) -> Tensor:
        noise = draw.standard_normal(tuple(value.shape), dtype=np.float32)
        return value + deviation * torch.from_numpy(noise).to(value)

    dense = {name: noised(value) for name, value in summed.dense.items()}
    rows = {name: replace(some, total=noised(some.total)) for name, some in summed.rows.items()}
    return replace(summed, dense=dense, rows=rows)
