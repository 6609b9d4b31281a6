"""What a chunk of trained clients comes to: checked, made private, summed, its bytes counted."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from spreadout.core.client_state import ClientStates
from spreadout.core.merging import RowSum
from spreadout.core.rows import nbytes, sum_by_id
from spreadout.core.state import ServerState
from spreadout.core.tables import row_bytes
from spreadout.core.traffic import Traffic
from spreadout.core.types import Params, Tensors
from spreadout.federated import central, checks
from spreadout.federated.aggregate import Aggregate
from spreadout.federated.batches import positives_of
from spreadout.federated.cohort import Cohort
from spreadout.federated.drift.control import new_states, sent_control, state_changes
from spreadout.federated.federation import Federation
from spreadout.federated.robust import merging as robust
from spreadout.federated.robust.updates import Updates
from spreadout.privacy.mechanism import clip_norm, simulate_noise_, without_non_finite
from spreadout.runtime.simulator.staging import Chunk

MANY = 8  # from this many clients on, the sums are small compared with what is summed


def accepted_sum(
    chunk: Chunk,
    state: ServerState,
    change: Params,
    loss: Tensor,
    also: Callable[[Tensor], Tensors] = lambda weight: {},
    meanwhile: Callable[[], None] = lambda: None,
) -> Aggregate:
    """The sum of the changes that pass the server's checks.

    also: sums of dense parts that no client's change was made of, from the clients' weights.
    meanwhile: work for the host, just before it waits for the device.
    """
    f = chunk.federation
    with torch.no_grad():
        change = Params(change.dense, chunk.sent_back(change.rows))
        moved = _state_changes(chunk, state, change)
        lengths: Tensors = {}
        if f.noises_sums:
            change, lengths = central.clipped_stack(f, state, change)
        elif f.noises_examples:
            change = without_non_finite(change)
        elif f.clients.privacy is not None:
            change = _privatised(chunk, change)
        if f.clients.privacy is not None:
            loss = torch.zeros_like(loss)  # it is not told
        bad = checks.invalid_clients(change.dense, change.rows, loss, chunk.examples, f.clients.max_norm)
        accepted = ~torch.stack(list(bad.values())).any(0)  # (k,)
        if f.server.robust is not None:
            change, lengths = robust.looked_at(f, state, change, chunk.back)
        updates = _held(chunk, change, accepted)
        weight = f.rules.client_weight(chunk.examples)
        if len(loss) >= MANY:
            # A client is rarely refused: the device starts the sums before the host knows.
            sums = {name: _weighted_sum(weight, value) for name, value in change.dense.items()}
            part = aggregate(chunk, state, sums | also(weight), change.rows, loss)
            part.control = {name: _weighted_sum(weight, value) for name, value in moved.items()}
            part.client_states = new_states(state.clients, chunk.numbers, moved)
            part.lengths, part.updates = lengths, updates
            everyone = accepted.all()
            meanwhile()
            if bool(everyone):
                return part
        else:
            meanwhile()
        # Each tensor is freed as soon as it is summed: memory may not hold all of both.
        kept = None if bool(accepted.all()) else accepted
        names = list(change.dense)
        sums = {name: _weighted_sum(weight, change.dense.pop(name), kept) for name in names}
        sums |= also(weight * accepted)
        part = aggregate(chunk, state, sums, change.rows, loss, kept)
        part.control = {name: _weighted_sum(weight, value, kept) for name, value in moved.items()}
        part.client_states = _states_of(chunk, state, moved, kept)
        part.lengths = {name: value[accepted] for name, value in lengths.items()}
        part.updates = updates
    for reason, refused in bad.items():
        part.refused[reason] += int(refused.sum())
    part.refused = +part.refused  # drop reasons nobody was refused for
    return part


def _held(chunk: Chunk, change: Params, accepted: Tensor) -> list[Updates]:
    """Each client's own change, where a robust rule looks at them side by side."""
    f = chunk.federation
    if f.server.robust is None or not f.server.robust.holds_updates:
        return []
    counted = f.rules.counted & change.rows.keys()
    about = f.data, chunk.cohort.clients
    positives = {name: positives_of(*about, chunk.back[name], chunk.counts) for name in counted}
    return robust.held(f, change, chunk.back, chunk.numbers, chunk.examples, positives, accepted)


def _state_changes(chunk: Chunk, state: ServerState, change: Params) -> Tensors:
    """How far what stays with the clients moves, by part: (k, …)."""
    f = chunk.federation
    if not f.clients.keeps_state:
        return {}
    steps = f.clients.schedule.steps_of(chunk.counts)
    return state_changes(f, change, steps, sent_control(f, state), chunk.cohort.round)


def _states_of(chunk: Chunk, state: ServerState, moved: Tensors, kept: Tensor | None) -> ClientStates:
    """What stays with the kept clients; a refused update has changed nothing."""
    if kept is None:
        return new_states(state.clients, chunk.numbers, moved)
    some = {name: value[kept] for name, value in moved.items()}
    return new_states(state.clients, chunk.numbers[kept.cpu()], some)


def _weighted_sum(weight: Tensor, value: Tensor, kept: Tensor | None = None) -> Tensor:
    """Σ ω_i Δ_i over the kept clients; a refused one may hold NaN, so it is left out, not zeroed."""
    if kept is not None:
        weight, value = weight[kept], value[kept]
    return torch.einsum("k,k...->...", weight, value)


def aggregate(
    chunk: Chunk,
    state: ServerState,
    dense: Tensors,
    rows: Tensors,
    loss: Tensor,
    kept: Tensor | None = None,
) -> Aggregate:
    """Sums over the clients of a chunk, or the kept (k,) of them: from dense sums and row changes.

    The loss stays on the device, so that nobody waits for it here.
    """
    rules = chunk.federation.rules
    summed = {}
    for name, change in rows.items():
        if chunk.comes_from_all(name) and name not in rules.counted:
            summed[name] = _whole_sum(chunk, name, change, kept)
        elif kept is None and name in chunk.sums:
            summed[name] = chunk.sums[name].sum(change, rules.row_weight(name, chunk.examples))
        else:
            summed[name] = _row_sum(chunk, name, change, kept)
    counts = chunk.counts if kept is None else chunk.counts[kept.cpu()]
    part = Aggregate(
        dense,
        float(rules.client_weight(counts).sum()),
        summed,
        len(counts),
        int(counts.sum()),
        _told_loss(chunk, loss if kept is None else loss[kept]),
    )
    if not len(counts):  # nothing was accepted: an empty sum, not a sum of zeros
        part.dense, part.rows = {}, {}
    part.traffic = traffic_of(state, chunk.cohort, chunk.federation)
    return part


def _told_loss(chunk: Chunk, loss: Tensor) -> Tensor:
    """The sum of what clients say: unknown in a private run."""
    return loss.sum() if chunk.federation.clients.privacy is None else loss.new_tensor(float("nan"))


def _row_sum(chunk: Chunk, name: str, change: Tensor, kept: Tensor | None) -> RowSum:
    """Row sums worked out on the spot: over the kept clients, or with a weight for every row."""
    rules = chunk.federation.rules
    real = chunk.back[name] >= 0  # (k, m)
    real = real if kept is None else real & kept[:, None]
    owner = real.nonzero()[:, 0]  # (rows,)
    if name in rules.counted:
        clients, data = chunk.cohort.clients, chunk.federation.data
        positives = positives_of(data, clients, chunk.back[name], chunk.counts)  # (k, m)
        weight = examples = rules.counted_examples(positives[real])
    else:
        examples = rules.counted_examples(chunk.examples[owner])
        weight = rules.row_weight(name, chunk.examples)[owner]
    columns = chunk.back[name][real], change[real] * weight[:, None], torch.ones_like(examples), examples
    return RowSum(*sum_by_id(*columns))


def _whole_sum(chunk: Chunk, name: str, change: Tensor, kept: Tensor | None) -> RowSum:
    """Row sums where every client holds the same rows: no ids to sort."""
    rules = chunk.federation.rules
    examples = rules.counted_examples(chunk.examples if kept is None else chunk.examples[kept])
    weight = rules.row_weight(name, chunk.examples)
    total = _weighted_sum(weight, change, kept)  # (m, d)
    each = torch.ones(len(total), device=total.device)
    return RowSum(chunk.back[name][0], total, each * len(examples), each * examples.sum())


def _privatised(chunk: Chunk, change: Params) -> Params:
    """Clip each client's change and add its noise, as the client itself would."""
    f = chunk.federation
    assert f.clients.privacy is not None
    bound = f.clients.privacy.clip
    clip: Callable[[Params], Params] = torch.vmap(lambda one: clip_norm(one, bound))
    change = clip(change)
    for i, client in enumerate(f.data.number_of(chunk.cohort.clients).tolist()):
        real = {name: int((ids[i] >= 0).sum()) for name, ids in chunk.back.items()}
        simulate_noise_(
            {name: value[i] for name, value in change.dense.items()},
            {name: value[i, : real[name]] for name, value in change.rows.items()},
            f.clients.privacy,
            seed=f.seed,
            round=chunk.cohort.round,
            client=client,
        )
    return change


def traffic_of(state: ServerState, cohort: Cohort, federation: Federation) -> Traffic:
    """The bytes of the whole cohort's round trips, from the tensors its members share.

    Clients without examples say so instead of sending an update.
    """
    clients = len(cohort.clients)
    sizes = federation.data.sizes[cohort.clients.numpy()]
    busy = np.flatnonzero(federation.clients.schedule.usable(sizes))
    dense = nbytes(state.dense.values())
    own = None
    if federation.method.returns_own_rows:
        own = federation.data.rows_of(cohort.clients)["classes"]
    down, up, up_requests = 0, 0, 0
    for name, every in cohort.requests.items():
        fixed, requests = name in federation.clients.training.fixed, every
        if fixed:
            requests = every.select(state.records.lacks_fixed_rows(cohort.clients).nonzero()[:, 0])
        ids = nbytes([requests.values])
        row = row_bytes(state.tables[name])
        down += ids + row * requests.values.numel()
        up_requests += ids
        if not fixed:
            changed = own if name == "classes" and own is not None else requests
            changed = changed if len(busy) == clients else changed.select(torch.from_numpy(busy))
            ids = nbytes([changed.values])
            up += ids + row * changed.values.numel()
            up += ids if name in federation.rules.counted else 0
    control = nbytes(sent_control(federation, state).values())
    # A norm over the cohort is made of two sums of each channel, and two on the way back: a client sends
    # its own and gets those of all.
    sums = 2 * nbytes(state.dense[name] for name in federation.model.cohort_statistics)
    down_dense = (dense + control) * clients + sums * len(busy)
    return Traffic(down_dense, down, up_requests, (dense + sums) * len(busy), up, clients)
