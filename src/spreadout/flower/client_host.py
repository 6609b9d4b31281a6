"""What a node does for the clients it hosts: make their requests, and train them side by side.

The engine is the simulator's: the same plan, the same batches, the same `local_update` on a stack of
clients. What differs is that each client's change is handed back as an update of its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from spreadout.core.ragged import Ragged
from spreadout.core.rows import Rows, Update
from spreadout.core.state import ServerState
from spreadout.core.types import Params, Tensors
from spreadout.federated.batches import positives_of
from spreadout.federated.local import local_update
from spreadout.federated.round import Federation, repeatable, request_rows
from spreadout.federated.schedule import rate_factor
from spreadout.privacy.mechanism import add_noise_, clip_norm
from spreadout.runtime.simulator.staging import StagedChunk, stage_chunk, stage_round


class MissingRows(Exception):
    """The node needs rows that it has neither been sent nor kept."""


def places_of(federation: Federation, numbers: Sequence[int]) -> Tensor:
    """Where the clients with these numbers stand in the node's own data."""
    data = federation.data
    at = {number: i for i, number in enumerate(data.number_of(torch.arange(data.clients)).tolist())}
    return torch.tensor([at[number] for number in numbers], dtype=torch.int64)


def requests(federation: Federation, numbers: Sequence[int], round: int) -> dict[str, Ragged]:
    """The rows these clients need in a round."""
    return request_rows(federation, places_of(federation, numbers), round).requests


def without(asked: Ragged, kept: Tensor) -> Ragged:
    """Lists of rows without those the node has."""
    return Ragged.from_lists([asked[i][~torch.isin(asked[i], kept)] for i in range(len(asked))])


def train(
    federation: Federation,
    numbers: Sequence[int],
    round: int,
    dense: Tensors,
    rows: Mapping[str, Rows],
    memory: int,
    noise_seed: int,
) -> Iterator[Update]:
    """Train these clients from what the node holds of the model, within `memory` bytes a chunk.

    noise_seed: of the noise on what they send; another one for every model, or two answers in one round
    would differ by what the models differ by, and not by noise.
    """
    f = replace(federation, factor=rate_factor(federation.decay, round, federation.rounds))
    start = {name: value.to(f.device) for name, value in dense.items()}
    held = {name: Rows(some.ids.to(f.device), some.values.to(f.device)) for name, some in rows.items()}
    cohort = request_rows(f, places_of(f, numbers), round)
    shapes = ServerState(round, start, {name: some.values for name, some in held.items()})
    with repeatable(f.device):
        ready = stage_round(f, shapes, cohort, round, memory)
        for place in ready.idle.tolist():  # it says so, and the server refuses it by name
            yield Update(numbers[place], round, 0, {}, {}, 0.0)
        for host in ready.chunks:
            chunk = stage_chunk(f, host, round)
            yield from _updates(f, chunk, round, start, held, noise_seed)


def _updates(
    f: Federation,
    chunk: StagedChunk,
    round: int,
    dense: Tensors,
    rows: Mapping[str, Rows],
    noise_seed: int,
) -> Iterator[Update]:
    """The updates of clients that are trained as one stack."""
    k = len(chunk.examples)
    stacked = {name: value.expand(k, *value.shape) for name, value in dense.items()}
    start = Params(stacked, {name: _gather(rows[name], ids) for name, ids in chunk.ids.items()})
    objective = torch.vmap(f.objective())
    change, loss = local_update(
        objective, f.present_training, start, chunk.batches, chunk.info, active=chunk.active
    )
    counted = [name for name in change.rows if name in f.rules.counted]
    about = f.data, chunk.cohort.clients
    positives = {name: positives_of(*about, chunk.ids[name], chunk.examples.cpu()) for name in counted}
    for i, number in enumerate(f.data.number_of(chunk.cohort.clients).tolist()):
        real = {name: ids[i] >= 0 for name, ids in chunk.ids.items()}
        one = Params(
            {name: value[i] for name, value in change.dense.items()},
            {name: value[i][real[name]] for name, value in change.rows.items()},
        )
        if f.privacy is not None:
            one = clip_norm(one, f.privacy.clip)
            add_noise_(one.dense, one.rows, f.privacy, seed=noise_seed, round=round, client=number)
        tables = {name: Rows(chunk.ids[name][i][real[name]], value) for name, value in one.rows.items()}
        counts = {name: every[i][real[name]] for name, every in positives.items()}
        yield Update(number, round, int(chunk.examples[i]), one.dense, tables, float(loss[i]), counts)


def _gather(rows: Rows, ids: Tensor) -> Tensor:
    """The values of these rows out of those the node holds: (k, m, d), zeros in the padding."""
    real = ids >= 0
    if not len(rows):
        if bool(real.any()):
            raise MissingRows
        return rows.values.new_zeros(*ids.shape, *rows.values.shape[1:])
    place = torch.searchsorted(rows.ids, ids.clamp_min(0).contiguous()).clamp_max(len(rows) - 1)
    if not bool((rows.ids[place] == ids)[real].all()):
        raise MissingRows
    return rows.values[place] * real[..., None]
