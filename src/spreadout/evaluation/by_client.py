"""What a run was like for its clients: how much each holds, moves, and gets of the model."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from spreadout.core.traffic import Traffic
from spreadout.data.columns import Lists
from spreadout.data.dataset import FederatedDataset
from spreadout.federated.cohort import draw_clients, request_rows
from spreadout.federated.federation import Federation

MOST_CLIENTS = 2000  # that are written down, evenly over their sizes
MOST_ROUNDS = 5000  # whose cohorts are drawn again
MOST_ASKED = 20_000  # clients whose requests are made again
MOST_HELD = 50_000  # classes in the lists of what clients hold


def by_client(f: Federation, traffic: Traffic, rounds: int, share: Tensor) -> dict[str, Any] | None:
    """share: of each class's held-out examples, those for which it was found (C,).

    A client's score is that share in the mean over its own labels: what the model is worth to it. Its
    part of the measured bytes is that of its visits; rows are apportioned by how many it requests.
    None where clients are elsewhere, all data is in one place, or clients or rounds are too many.
    """
    data = f.data
    if f.method.is_centralized or f.executor.clients_elsewhere or data.clients > MOST_ASKED:
        return None
    if not 0 < rounds <= MOST_ROUNDS:
        return None
    visits = torch.zeros(data.clients, dtype=torch.int64)
    for round in range(rounds):
        visits += torch.bincount(draw_clients(f, round), minlength=data.clients)
    order = torch.from_numpy(np.argsort(data.sizes, kind="stable"))
    some = order[:: max(1, -(-data.clients // MOST_CLIENTS))].sort().values
    dense, rows = _apportioned(f, traffic, visits, rounds)
    held = data.rows_of(some)["classes"] if "classes" in data.row_columns.values() else None
    scores = _scores(data, share)
    lists: list[list[int] | None] = []
    room = MOST_HELD
    for i in range(len(some)):
        own = [] if held is None else held[i].tolist()
        room -= len(own)
        lists.append(own if held is not None and room >= 0 else None)
    return {
        "of": data.clients,
        "number": data.number_of(some).tolist(),
        "examples": data.sizes[some.numpy()].tolist(),
        "visits": visits[some].tolist(),
        "down": [int(v) for v in dense[0][some] + rows[0][some]],
        "up": [int(v) for v in dense[1][some] + rows[1][some]],
        "score": [round_or_none(float(scores[i])) for i in some.tolist()],
        "holds": lists,
    }


def round_or_none(value: float) -> float | None:
    return None if np.isnan(value) else round(value, 4)


def _apportioned(
    f: Federation, traffic: Traffic, visits: Tensor, rounds: int
) -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]:
    """Bytes of dense parts and of rows, down and up, of each client (clients,)."""
    every = torch.arange(f.data.clients)
    requested = request_rows(f, every, rounds - 1).requests  # as in the last round
    wide = torch.zeros(f.data.clients, dtype=torch.float64)
    for name, ids in requested.items():
        wide += ids.lengths.double() * f.model.tables[name].dim
    weight, often = visits * wide, visits.double()
    weight = weight / weight.sum() if weight.sum() > 0 else weight
    often = often / often.sum() if often.sum() > 0 else often
    dense = often * traffic.dense_down, often * traffic.dense_up
    return dense, (weight * traffic.rows_down, weight * (traffic.rows_up + traffic.requests_up))


def _scores(data: FederatedDataset, share: Tensor) -> Tensor:
    """(clients,) the mean of `share` over each client's labels that were tested; NaN without any."""
    y, every = data.columns["y"], torch.arange(data.examples)
    owner = torch.repeat_interleave(torch.arange(data.clients), data.offsets.diff())
    if isinstance(y, Lists):
        sets = y.ragged()
        owner, label = torch.repeat_interleave(owner, sets.lengths.cpu()), sets.values.cpu()
    else:
        label = y.take(every).cpu()
    known = ~share[label].isnan()
    total = torch.zeros(data.clients, dtype=torch.float64)
    total.index_add_(0, owner[known], share[label[known]])
    return total / torch.bincount(owner[known], minlength=data.clients).double()
