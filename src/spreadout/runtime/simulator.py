"""The fast executor: one-client code for a whole cohort at once.

Clients are sorted by how much they do and cut into chunks that fit a memory budget. With several
local steps a chunk trains on stacked copies of the dense part and of each client's own rows. With one
linear step no copies are needed: `mean_i(θ − η∇_i) = θ − η·mean_i ∇_i`, one batched gradient. Nor does
a first layer on sparse features need any (`in_span.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from spreadout.data.columns import Sparse
from spreadout.federated import checks, merge
from spreadout.federated.batches import positives_of
from spreadout.federated.local import Objective, Params, local_update
from spreadout.federated.merge import Aggregate, RowSum
from spreadout.federated.round import Cohort, Federation, cohort_of
from spreadout.federated.rows import Tensors, along_sphere, nbytes, project_to_sphere, sum_by_id
from spreadout.federated.server import ServerState
from spreadout.federated.traffic import Traffic
from spreadout.privacy.mechanism import add_noise_, clip_norm
from spreadout.runtime.ahead import Ahead
from spreadout.runtime.graphs import GraphCache
from spreadout.runtime.in_span import Spans, first_layer
from spreadout.runtime.ready import (
    Chunk,
    ReadyRound,
    is_fusable,
    key_of,
    laid_out_ahead,
    lay_out,
    make_ready,
    some_of,
)


@dataclass(frozen=True)
class Simulator:
    """An executor that trains many clients side by side within `memory` bytes."""

    memory: int = 1 << 30
    graphs: GraphCache | None = None  # of local steps on a CUDA device
    spans: Spans | None = None  # for first layers on sparse features
    ahead: Ahead[ReadyRound] | None = None  # makes the next round ready meanwhile

    def cohort(self, federation: Federation, state: ServerState) -> Cohort:
        """The round's cohort, which may have been drawn already."""
        ready = None if self.ahead is None else self.ahead.get(key_of(federation, state.round))
        return cohort_of(federation, state.round) if ready is None else ready.cohort

    def __call__(
        self, federation: Federation, state: ServerState, cohort: Cohort
    ) -> Iterator[Aggregate]:
        ready = None if self.ahead is None else self.ahead.get(key_of(federation, state.round))
        if ready is None or ready.cohort is not cohort:
            ready = make_ready(federation, state, cohort, state.round, self.memory)
        if len(ready.idle):  # they were asked, and had nothing to say
            silent = merge.refused(checks.NO_EXAMPLES, len(ready.idle))
            silent.traffic = traffic_of(state, some_of(cohort, ready.idle), federation)
            yield silent
        for place, host in enumerate(ready.chunks):
            early = ready.first if place == 0 else None
            work = _Work(federation, state, early or lay_out(federation, host, state.round))
            one_step = is_fusable(federation, len(work.chunk.active))
            part = _fused(work) if one_step else _in_span(work, self.spans)
            if part is None:
                change, loss = _stacked(work, self.graphs)
            if place == 0:  # the device has enough to do for a while: the host looks ahead
                self._begin_next(federation, state)
            yield part if part is not None else _accepted(work, change, loss)

    def _begin_next(self, federation: Federation, state: ServerState) -> None:
        if self.ahead is None or state.round + 1 >= federation.rounds:
            return
        round = state.round + 1

        trains = None
        if federation.device.type == "cuda":
            trains = torch.cuda.current_stream(federation.device)

        def make() -> ReadyRound:
            ready = make_ready(federation, state, cohort_of(federation, round), round, self.memory)
            return ready if trains is None else laid_out_ahead(federation, ready, round, trains)

        self.ahead.start(key_of(federation, round), make)


@dataclass(frozen=True)
class _Work:
    """A chunk of clients about to train from the present model."""

    federation: Federation
    state: ServerState
    chunk: Chunk

    def rows(self) -> Tensors:
        """Each client's rows, gathered: (k, m, d) per table, zeros in the padding."""
        return {name: self._rows_of(name, ids) for name, ids in self.chunk.ids.items()}

    def _rows_of(self, name: str, ids: Tensor) -> Tensor:
        table = self.state.tables[name]
        if self.chunk.cohort.requests[name].shared is not None:  # all clients hold the same: one copy
            return table[ids[0]].expand(len(ids), -1, -1)
        return table[ids.clamp_min(0)] * (ids >= 0)[..., None]


def _fused(work: _Work) -> Aggregate | None:
    """One step of every client as one gradient; None if a client broke it and must be found."""
    f, chunk, training = work.federation, work.chunk, work.federation.present_training
    weight = f.rules.client_weight(chunk.examples)  # (k,) ω_i
    rows = work.rows()
    trained = [name for name in rows if name not in training.fixed]
    dense = {name: value.detach().requires_grad_() for name, value in work.state.dense.items()}
    for name in trained:
        rows[name].requires_grad_()
    batch = {name: column[:, 0] for name, column in chunk.batches.items()}
    objective = torch.vmap(f.objective(), in_dims=(Params(None, 0), 0, 0))  # type: ignore[arg-type]
    loss = objective(Params(dense, rows), batch, chunk.held)  # (k,)
    leaves = [*dense.values(), *(rows[name] for name in trained)]
    found = torch.autograd.grad((weight * loss).sum(), leaves, allow_unused=True)
    gradients = [torch.zeros_like(x) if g is None else g for x, g in zip(leaves, found, strict=True)]
    if not bool(torch.stack([loss.detach().sum(), *(g.sum() for g in gradients)]).isfinite().all()):
        return None
    with torch.no_grad():
        change = dict(zip(dense, (g * -training.dense.lr for g in gradients), strict=False))
        moved = {}
        for name, gradient in zip(trained, gradients[len(dense) :], strict=True):
            start, slope = rows[name].detach(), gradient / weight[:, None, None]
            rate = training.rows[name].lr
            if name in training.sphere:
                moved[name] = project_to_sphere(start - rate * along_sphere(slope, start)) - start
            else:
                moved[name] = -rate * slope
        everyone = torch.ones_like(chunk.examples, dtype=torch.bool)
        return _aggregate(work, change, moved, loss.detach(), everyone)


def _in_span(work: _Work, spans: Spans | None) -> Aggregate | None:
    """Several steps without copies of a first layer on sparse features; None where that cannot be."""
    f, chunk = work.federation, work.chunk
    layer = first_layer(f) if spans is not None and spans.take(f) else None
    if spans is None or layer is None:
        return None
    start = work.state.dense[layer.weight]
    outputs = spans.of(f, chunk.cohort.clients, chunk.batches["x"], start)
    if outputs is None:
        return None
    k = len(chunk.examples)
    rest = {name: value for name, value in work.state.dense.items() if name != layer.weight}
    dense = {name: value.expand(k, *value.shape) for name, value in rest.items()}
    objective = torch.vmap(replace(f, model=layer.after).objective())
    batches = {**chunk.batches, "x": outputs}
    change, loss = local_update(
        objective,
        f.present_training,
        Params(dense, work.rows()),
        batches,  # type: ignore[arg-type]
        chunk.held,
        active=chunk.active,
    )
    return _accepted(work, change, loss, lambda weight: {layer.weight: outputs.weighted_sum(weight)})


def _stacked(work: _Work, graphs: GraphCache | None = None) -> tuple[Params, Tensor]:
    """Several steps, or checks that need every client's own change: stacked copies.

    How far each client moved and its loss; a device may still be at work on them.
    """
    f, chunk = work.federation, work.chunk
    k = len(chunk.examples)
    dense = {name: value.expand(k, *value.shape) for name, value in work.state.dense.items()}
    start, objective = Params(dense, work.rows()), torch.vmap(f.objective())
    replayed = None
    tensors = all(isinstance(column, Tensor) for column in chunk.batches.values())
    if graphs is not None and tensors and graphs.takes(len(chunk.active)):
        replayed = _replayed(work, objective, start, graphs)
    return replayed or local_update(
        objective, f.present_training, start, chunk.batches, chunk.held, active=chunk.active
    )


def _accepted(
    work: _Work, change: Params, loss: Tensor, also: Callable[[Tensor], Tensors] = lambda weight: {}
) -> Aggregate:
    """The sum of the changes that pass the server's checks.

    also: sums of dense parts that no client's change was made of, from the clients' weights.
    """
    f, chunk = work.federation, work.chunk
    with torch.no_grad():
        if f.privacy is not None:
            change = _privatised(work, change)
        bad = checks.bad_clients(change.dense, change.rows, loss, chunk.examples, f.max_norm)
        accepted = ~torch.stack(list(bad.values())).any(0)  # (k,)
        weight = f.rules.client_weight(chunk.examples)
        # One tensor after another leaves for its sum: both at once may be too much.
        names = list(change.dense)
        sums = {name: _weighted_sum(weight, accepted, change.dense.pop(name)) for name in names}
        sums |= also(weight * accepted)
        part = _aggregate(work, sums, change.rows, loss, accepted)
    for reason, refused in bad.items():
        part.refused[reason] += int(refused.sum())
    part.refused = +part.refused  # drop reasons nobody was refused for
    return part


def _replayed(
    work: _Work, objective: Objective, start: Params, graphs: GraphCache
) -> tuple[Params, Tensor] | None:
    """The same as a CUDA graph, in shapes that stay the same from round to round."""
    f, chunk = work.federation, work.chunk
    places = graphs.places(chunk.active)
    # Steps nobody takes see the last one's examples again: zeros may be no input for an encoder.
    batches = {name: _repeated(column, len(places)) for name, column in chunk.batches.items()}
    batches["mask"] = _padded(chunk.batches["mask"], 1, len(places))
    gate = (batches["mask"].sum(-1) > 0).float() * f.factor  # (k, S)
    rows, held = dict(start.rows), dict(chunk.held)
    for table, values in start.rows.items():
        shared = chunk.cohort.requests[table].shared is not None  # their number is always the same
        wide = graphs.room(table, values.shape[1], round_to=1 if shared else 32)
        rows[table] = _padded(values, 1, wide)
        for name, named in f.data.refers.items():  # feature vectors are as wide as the rows held
            if named == table and isinstance(f.data.columns[name], Sparse):
                batches[name] = _padded(batches[name], 3, wide)
        for name in (table, f"{table}.own", f"{table}.share"):
            if name in held:
                held[name] = _padded(held[name], 1, wide)
    inputs = {
        "dense": start.dense,
        "rows": rows,
        "batches": batches,
        "held": held,
        "gate": {"gate": gate},
    }
    about = f.method, id(f.model), f.bf16
    done = graphs.run(objective, f.training, inputs, places, about)
    if done is None:
        return None
    change, loss = done
    cut = {name: value[:, : start.rows[name].shape[1]] for name, value in change.rows.items()}
    return Params(dict(change.dense), cut), loss  # the graph keeps its own


def _repeated(value: Tensor, steps: int) -> Tensor:
    """Batches (k, S, …) with the last step again and again after the end."""
    missing = steps - value.shape[1]
    return torch.cat([value, *[value[:, -1:]] * missing], 1) if missing else value


def _padded(value: Tensor, dim: int, length: int) -> Tensor:
    """Zeros after the end of one dimension."""
    missing = length - value.shape[dim]
    if not missing:
        return value
    shape = list(value.shape)
    shape[dim] = missing
    return torch.cat([value, value.new_zeros(shape)], dim)


def _weighted_sum(weight: Tensor, accepted: Tensor, value: Tensor) -> Tensor:
    """Σ ω_i Δ_i over the accepted clients; a refused one may hold NaN, so it is left out, not zeroed."""
    kept = value if bool(accepted.all()) else value[accepted]
    return torch.einsum("k,k...->...", weight[accepted], kept)


def _aggregate(work: _Work, dense: Tensors, rows: Tensors, loss: Tensor, accepted: Tensor) -> Aggregate:
    """Sums over the accepted clients of a chunk, from dense sums and per-client row changes."""
    chunk, rules = work.chunk, work.federation.rules
    summed = {}
    for name, change in rows.items():
        counted = name in rules.counted
        if chunk.cohort.requests[name].shared is not None and not counted:
            summed[name] = _whole_sum(work, name, change, accepted)
            continue
        real = (chunk.ids[name] >= 0) & accepted[:, None]  # (k, m)
        owner = real.nonzero()[:, 0]  # (rows,)
        if counted:
            told = work.federation.data, chunk.cohort.clients, chunk.ids[name], chunk.examples.cpu()
            examples = positives_of(*told)[real].float()
            weight = examples
        else:
            examples = chunk.examples[owner].float()
            weight = rules.row_weight(name, chunk.examples)[owner]
        each = torch.ones_like(examples)
        columns = chunk.ids[name][real], change[real] * weight[:, None], each, examples
        summed[name] = RowSum(*sum_by_id(*columns))
    kept = chunk.examples[accepted]
    part = Aggregate(
        dense,
        float(rules.client_weight(kept).sum()),
        summed,
        len(kept),
        int(kept.sum()),
        float(loss[accepted].sum()),
    )
    if not len(kept):  # nothing was accepted: an empty sum, not a sum of zeros
        part.dense, part.rows = {}, {}
    part.traffic = traffic_of(work.state, chunk.cohort, work.federation)
    return part


def _whole_sum(work: _Work, name: str, change: Tensor, accepted: Tensor) -> RowSum:
    """Row sums where every client holds the same rows: no ids to sort."""
    chunk = work.chunk
    examples = chunk.examples[accepted].float()
    weight = work.federation.rules.row_weight(name, chunk.examples)
    total = _weighted_sum(weight, accepted, change)  # (m, d)
    each = torch.ones(len(total), device=total.device)
    return RowSum(chunk.ids[name][0], total, each * len(examples), each * examples.sum())


def _privatised(work: _Work, change: Params) -> Params:
    """Clip each client's change and add its noise, as the client itself would."""
    f, chunk = work.federation, work.chunk
    assert f.privacy is not None
    bound = f.privacy.clip
    clip: Callable[[Params], Params] = torch.vmap(lambda one: clip_norm(one, bound))
    change = clip(change)
    for i, client in enumerate(f.data.number_of(chunk.cohort.clients).tolist()):
        real = {name: int((ids[i] >= 0).sum()) for name, ids in chunk.ids.items()}
        add_noise_(
            {name: value[i] for name, value in change.dense.items()},
            {name: value[i, : real[name]] for name, value in change.rows.items()},
            f.privacy,
            seed=f.seed,
            round=work.state.round,
            client=client,
        )
    return change


def traffic_of(state: ServerState, cohort: Cohort, federation: Federation) -> Traffic:
    """The bytes of the whole cohort's round trips, from the tensors its members share."""
    clients = len(cohort.clients)
    dense = nbytes(state.dense.values())
    down, up, asked = 0, 0, 0
    new = torch.arange(clients)
    if "keeps_fixed" in state.memory:  # the others have their fixed rows already
        new = (~state.memory["keeps_fixed"][cohort.clients]).nonzero()[:, 0].cpu()
    for name, every in cohort.requests.items():
        requests = every.select(new) if name in federation.training.fixed else every
        ids = nbytes([requests.values])
        row = nbytes([state.tables[name][:1]])
        down += ids + row * requests.values.numel()
        asked += ids
        if name not in federation.training.fixed:
            up += ids + row * requests.values.numel()
            up += ids if name in federation.rules.counted else 0
    return Traffic(dense * clients, down, asked, dense * clients, up, clients)
