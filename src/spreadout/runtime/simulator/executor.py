"""The fast executor: one-client code for a whole cohort at once.

Clients are sorted by how much they do and cut into chunks that fit a memory budget. With several
local steps a chunk trains on stacked copies of the dense part and of each client's own rows. With one
linear step no copies are needed: `mean_i(θ − η∇_i) = θ − η·mean_i ∇_i`, one batched gradient. A
first layer on sparse features needs none either (`implicit_first_layer.py`), nor does a lookup with one
step (`pooled_lookup.py`, `fused.py`). Encoders of images see the examples of all clients as one batch
(`shared_encoder.py`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor

from spreadout.core.errors import UserError
from spreadout.core.rows import nbytes
from spreadout.core.state import ServerState
from spreadout.core.types import Params, RowInfo
from spreadout.data.columns import Sparse
from spreadout.federated import checks
from spreadout.federated.aggregate import Aggregate, refused
from spreadout.federated.central import repeats
from spreadout.federated.cohort import Cohort, draw_cohort
from spreadout.federated.drift.control import offsets, sent_control
from spreadout.federated.example_noise import example_noise
from spreadout.federated.executor import Executor, ExecutorOptions, register_executor
from spreadout.federated.federation import Federation
from spreadout.federated.in_one_place import Memory, keep_, remembered, stacked
from spreadout.federated.local import Objective, local_update
from spreadout.runtime.simulator.chunk_sums import accepted_sum, traffic_of
from spreadout.runtime.simulator.fused import fused_step
from spreadout.runtime.simulator.fused_graph import FusedGraph
from spreadout.runtime.simulator.graphs import GraphCache
from spreadout.runtime.simulator.implicit_first_layer import ImplicitLayers
from spreadout.runtime.simulator.prefetch import Prefetcher
from spreadout.runtime.simulator.side_stream import side_stream
from spreadout.runtime.simulator.staging import (
    Chunk,
    StagedRound,
    is_fusable,
    prefetch_key,
    stage_chunk,
    stage_in_advance,
    stage_round,
)

PREFETCHED_ROUNDS = 2  # two at once keep up even where staging takes longer than training


@register_executor("simulator")
@dataclass(frozen=True)
class Simulator(Executor):
    """Trains many clients side by side within `memory` bytes."""

    memory: int = 1 << 30
    graphs: GraphCache | None = None  # of local steps on a CUDA device
    fused: FusedGraph | None = None  # of a fused step on images on a CUDA device
    implicit: ImplicitLayers | None = None  # for first layers on sparse features
    prefetch: Prefetcher[StagedRound] | None = None  # stages the next rounds meanwhile

    @classmethod
    def from_options(cls, options: ExecutorOptions) -> Simulator:
        cuda = options.device.type == "cuda"
        return cls(
            options.memory,
            GraphCache() if cuda and options.graphs else None,
            FusedGraph() if cuda and options.graphs else None,
            ImplicitLayers(options.memory // 4),
            Prefetcher(PREFETCHED_ROUNDS) if cuda and options.prefetch else None,
        )

    def keeps_sparse(self, federation: Federation) -> bool:
        return self.implicit is not None and self.implicit.layer_of(federation) is not None

    def cohort(self, federation: Federation, state: ServerState) -> Cohort:
        """The round's cohort, which may have been drawn already."""
        staged = self._prefetched(federation, state.round)
        if staged is not None:
            return staged.cohort
        return draw_cohort(federation, state.round, repeats(state))

    def train(self, federation: Federation, state: ServerState, cohort: Cohort) -> Iterator[Aggregate]:
        staged = self._prefetched(federation, cohort.round)
        if staged is None or staged.cohort is not cohort:
            staged = stage_round(federation, state, cohort, self.memory, fuses=True)
        if len(staged.idle):  # selected, but without examples
            silent = refused(checks.NO_EXAMPLES, len(staged.idle))
            silent.traffic = traffic_of(state, cohort.select(staged.idle), federation)
            yield silent
        if len(staged.chunks) > 1 and federation.model.cohort_statistics:
            raise UserError(
                f'model.norm = "batch": a round of {len(cohort.clients)} clients does not fit '
                f"run.memory_gb = {self.memory / 2**30:g} as one batch; raise it, or lower clients.batch"
            )
        for place, planned in enumerate(staged.chunks):
            early = staged.first if place == 0 else None
            chunk = early or stage_chunk(federation, planned, fuses=True)
            # While the device trains the first chunk, the host stages later rounds.
            meanwhile = partial(self._begin_next, federation, state) if place == 0 else lambda: None
            if is_fusable(federation, len(chunk.active)):
                part = fused_step(chunk, state, meanwhile, self.fused)
                if part is None and federation.model.cohort_statistics:
                    broken = refused(checks.NOT_FINITE, len(planned.clients))  # nobody trains apart
                    broken.traffic = traffic_of(state, planned, federation)
                    yield broken
                    continue
                if part is None:
                    yield from self._apart(federation, state, planned)
                    continue
            else:
                part = _implicit(chunk, state, self.implicit)
            if part is None:
                trained = _stacked(chunk, state, self.graphs)
                part = accepted_sum(chunk, state, *trained, meanwhile=meanwhile)
            yield part

    def _apart(self, federation: Federation, state: ServerState, cohort: Cohort) -> Iterator[Aggregate]:
        """Clients of one step, each with its own change, to find the one whose change is not finite."""
        staged = stage_round(federation, state, cohort, self.memory)
        for planned in staged.chunks:
            chunk = stage_chunk(federation, planned)
            yield accepted_sum(chunk, state, *_stacked(chunk, state))

    def _prefetched(self, federation: Federation, round: int) -> StagedRound | None:
        return None if self.prefetch is None else self.prefetch.get(prefetch_key(federation, round))

    def _begin_next(self, federation: Federation, state: ServerState) -> None:
        """Stage later rounds in the background, each in its own thread."""
        if self.prefetch is None:
            return
        last = min(state.round + PREFETCHED_ROUNDS, federation.rounds - 1)
        trains, again = None, repeats(state)
        if federation.device.type == "cuda":
            trains = torch.cuda.current_stream(federation.device)

        def make(round: int) -> StagedRound:
            with side_stream(federation.device):
                cohort = draw_cohort(federation, round, again)
                staged = stage_round(federation, state, cohort, self.memory, fuses=True)
                if trains is None:
                    return staged
                return stage_in_advance(federation, staged, self.memory, trains)

        rounds = range(state.round + 1, last + 1)
        self.prefetch.begin({prefetch_key(federation, round): partial(make, round) for round in rounds})


def _implicit(chunk: Chunk, state: ServerState, implicit: ImplicitLayers | None) -> Aggregate | None:
    """Several steps without copies of a first layer on sparse features; None where that cannot be."""
    f = chunk.federation
    layer = None if implicit is None else implicit.layer_of(f)
    if implicit is None or layer is None:
        return None
    start = state.dense[layer.weight]
    outputs = implicit.of(f, chunk.cohort.clients, chunk.batches["x"], start, chunk.training.dense.lr)
    if outputs is None:
        return None
    k = len(chunk.examples)
    rest = {name: value for name, value in state.dense.items() if name != layer.weight}
    dense = {name: value.expand(k, *value.shape) for name, value in rest.items()}
    objective = torch.vmap(replace(f, model=layer.after).objective())
    batches = {**chunk.batches, "x": outputs}
    change, loss = local_update(
        objective,
        chunk.training,
        Params(dense, chunk.rows(state.tables)),
        batches,  # type: ignore[arg-type]
        chunk.info,
        active=chunk.active,
    )
    return accepted_sum(
        chunk, state, change, loss, lambda weight: {layer.weight: outputs.weighted_sum(weight)}
    )


def _stacked(
    chunk: Chunk, state: ServerState, graphs: GraphCache | None = None
) -> tuple[Params, Tensor]:
    """Several steps, or checks that need every client's own change: stacked copies.

    Returns how far each client moved, and its loss; the device may still be computing them.
    """
    f = chunk.federation
    k = len(chunk.examples)
    dense = {name: value.expand(k, *value.shape) for name, value in state.dense.items()}
    start, objective = Params(dense, chunk.rows(state.tables)), torch.vmap(f.objective())
    offset = offsets(f, start, chunk.numbers, state.clients, sent_control(f, state))
    replayed, private = None, example_noise(f, chunk.numbers, chunk.cohort.round)
    ids = {name: rows[0] for name, rows in chunk.ids.items()}
    memory = remembered(f, state, ids)
    tensors = private is None and all(isinstance(column, Tensor) for column in chunk.batches.values())
    trained = nbytes([*dense.values(), *start.rows.values()])
    padded = f.method.loss_reads_params  # a graph has room for more rows than there are
    warm = f.row_factor(chunk.cohort.round) == 1  # its gate slows everything down alike
    fits = tensors and warm and not padded
    if graphs is not None and fits and graphs.takes(len(chunk.active), trained):
        replayed = _replayed(chunk, objective, start, offset, graphs, stacked(memory))
    done = replayed or local_update(
        objective,
        chunk.training,
        start,
        chunk.batches,
        chunk.info,
        active=chunk.active,
        offset=offset,
        examples=private,
        memory=stacked(memory),
    )
    keep_(state, ids, memory)
    return done


def _replayed(
    chunk: Chunk,
    objective: Objective,
    start: Params,
    offset: Params | None,
    graphs: GraphCache,
    memory: Memory | None,
) -> tuple[Params, Tensor] | None:
    """The same as a CUDA graph, in shapes that stay the same from round to round."""
    f = chunk.federation
    places = graphs.places(chunk.active)
    # Steps nobody takes repeat the last step's examples: an encoder may not accept zeros.
    batches = {name: _repeated(column, len(places)) for name, column in chunk.batches.items()}
    mask = _padded(chunk.batches["mask"], 1, len(places))
    empty = mask.sum(-1) == 0  # (k, S) steps that a client does not take
    gate = (~empty).float() * f.rate_factor(chunk.cohort.round)
    # Their batches have one example all the same: a loss may divide by how many there are.
    batches["mask"] = torch.cat([mask[..., :1].masked_fill(empty[..., None], 1.0), mask[..., 1:]], -1)
    rows, info = dict(start.rows), RowInfo(*map(dict, chunk.info))
    for table, values in start.rows.items():
        shared = chunk.cohort.requests[table].shared is not None  # their number is always the same
        wide = graphs.room(table, values.shape[1], round_to=1 if shared else 32)
        rows[table] = _padded(values, 1, wide)
        # Feature vectors are as wide as the client's rows.
        for name, named in f.data.row_columns.items():
            if named == table and isinstance(f.data.columns[name], Sparse):
                batches[name] = _padded(batches[name], 3, wide)
        for part in (info.present, info.own, info.share, info.examples):
            if table in part:
                part[table] = _padded(part[table], 1, wide)
    inputs = {
        "dense": start.dense,
        "rows": rows,
        "batches": batches,
        **info._asdict(),
        "gate": {"gate": gate},
    }
    if offset is not None:
        inputs |= {"offset_dense": offset.dense, "offset_rows": offset.rows}
    if memory is not None:
        padding = bool(empty.any()) or any(rows[name].shape != start.rows[name].shape for name in rows)
        if padding:  # steps and rows that are not there would be remembered too
            return None
        inputs["memory"] = {
            f"{name}|{slot}": value for name, slots in memory.items() for slot, value in slots.items()
        }
    done = graphs.run(objective, f.clients.training, inputs, places, f.objective_key)
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
