"""What a node does for the clients it hosts: make their requests, and train them side by side.

The engine is the simulator's: the same plan, the same batches, the same `local_update` on a stack of
clients. What differs is that each client's change is handed back as an update of its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from spreadout.core.client_state import ClientStates
from spreadout.core.ragged import Ragged
from spreadout.core.rows import Rows, SubModel, Update
from spreadout.core.state import ServerState
from spreadout.core.tables import Tables
from spreadout.core.types import Params
from spreadout.federated.batches import positives_of
from spreadout.federated.cohort import request_rows
from spreadout.federated.drift.control import new_states, offsets, state_changes
from spreadout.federated.federation import Federation
from spreadout.federated.local import local_update
from spreadout.federated.round import repeatable
from spreadout.privacy.keystream import KeyStream
from spreadout.privacy.mechanism import clip_norm, without_non_finite
from spreadout.privacy.release import released
from spreadout.runtime.simulator.staging import Chunk, stage_chunk, stage_round


class MissingRows(Exception):
    """The node needs rows that it has neither been sent nor kept."""


def places_of(federation: Federation, numbers: Sequence[int]) -> Tensor:
    """Where the clients with these numbers stand in the node's own data."""
    data = federation.data
    at = {number: i for i, number in enumerate(data.number_of(torch.arange(data.clients)).tolist())}
    return torch.tensor([at[number] for number in numbers], dtype=torch.int64)


def requests(federation: Federation, numbers: Sequence[int], round: int) -> dict[str, Ragged]:
    """The rows these clients need in a round."""
    requested = request_rows(federation, places_of(federation, numbers), round).requests
    return {table: rows.on_host() for table, rows in requested.items()}


def without(requested: Ragged, kept: Tensor) -> Ragged:
    """Lists of rows without those the node has."""
    return Ragged.from_lists(
        [requested[i][~torch.isin(requested[i], kept)] for i in range(len(requested))]
    )


def together(kept: Rows, fresh: Rows) -> Rows:
    """All rows of a table that never changes, ascending."""
    ids, place = torch.unique(torch.cat([kept.ids, fresh.ids]), return_inverse=True)
    values = kept.values.new_empty(len(ids), *kept.values.shape[1:])
    values[place] = torch.cat([kept.values, fresh.values])
    return Rows(ids, values)


def train(
    federation: Federation,
    numbers: Sequence[int],
    sent: SubModel,
    states: ClientStates,
    memory: int,
) -> Iterator[tuple[Update, ClientStates]]:
    """Train these clients from what the node holds of the model, within `memory` bytes a chunk.

    With each update comes what stays with its client until the next round; states: what stayed from
    earlier ones.
    """
    f, round = federation, sent.round
    there = _on(sent, f.device)
    cohort = request_rows(f, places_of(f, numbers), round)
    tables: Tables = {name: some.values for name, some in there.tables.items()}
    shapes = ServerState(round, there.dense, tables)
    with repeatable(f.device):
        staged = stage_round(f, shapes, cohort, memory)
        for place in staged.idle.tolist():  # it says so, and the server refuses it by name
            yield Update(numbers[place], round, 0, {}, {}, 0.0), {}
        for planned in staged.chunks:
            yield from _updates(f, stage_chunk(f, planned), there, states)


def _updates(
    f: Federation, chunk: Chunk, sent: SubModel, states: ClientStates
) -> Iterator[tuple[Update, ClientStates]]:
    """The updates of clients that are trained as one stack."""
    k, round, privacy = len(chunk.examples), sent.round, f.clients.privacy
    stacked = {name: value.expand(k, *value.shape) for name, value in sent.dense.items()}
    start = Params(stacked, {name: _gather(sent.tables[name], ids) for name, ids in chunk.ids.items()})
    numbers = torch.from_numpy(f.data.number_of(chunk.cohort.clients))
    change, loss = local_update(
        torch.vmap(f.objective()),
        f.training_at(round),
        start,
        chunk.batches,
        chunk.info,
        active=chunk.active,
        offset=offsets(f, start, numbers, states, sent.control),
    )
    change = Params(change.dense, chunk.sent_back(change.rows))
    steps = f.clients.schedule.steps_of(chunk.counts)
    moved = state_changes(f, change, steps, sent.control, round)
    counted = [name for name in change.rows if name in f.rules.counted]
    about = f.data, chunk.cohort.clients
    positives = {name: positives_of(*about, chunk.back[name], chunk.counts) for name in counted}
    for i, number in enumerate(numbers.tolist()):
        real = {name: ids[i] >= 0 for name, ids in chunk.back.items()}
        one = Params(
            {name: value[i] for name, value in change.dense.items()},
            {name: value[i][real[name]] for name, value in change.rows.items()},
        )
        if privacy is not None and privacy.on_the_server:
            one = without_non_finite(one)  # the server clips it, and would trust nobody else to
        elif privacy is not None:
            noisy = privacy.noise > 0 and not privacy.needs_others  # to a sum it is added later
            one = released(one, privacy, KeyStream()) if noisy else clip_norm(one, privacy.clip)
        tables = {name: Rows(chunk.back[name][i][real[name]], value) for name, value in one.rows.items()}
        counts = {name: every[i][real[name]] for name, every in positives.items()}
        examples = 1 if f.hides_sizes else int(chunk.examples[i])
        said = float("nan") if privacy is not None else float(loss[i])
        update = Update(number, round, examples, one.dense, tables, said, counts)
        its = {part: value[i : i + 1] for part, value in moved.items()}
        yield update, new_states(states, numbers[i : i + 1], its)


def _on(sent: SubModel, device: torch.device) -> SubModel:
    """The same on the node's device."""
    tables = {
        name: Rows(some.ids.to(device), some.values.to(device)) for name, some in sent.tables.items()
    }
    dense = {name: value.to(device) for name, value in sent.dense.items()}
    control = {name: value.to(device) for name, value in sent.control.items()}
    return SubModel(sent.round, dense, tables, control)


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
