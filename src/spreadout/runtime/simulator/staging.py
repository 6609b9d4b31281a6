"""What a round needs that does not depend on the model: who, which rows, which examples, in what chunks.

All of it follows from (seed, round), so the next round can be planned, and its first chunk laid out on
the device, while the device works on the present one.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass, fields, replace
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from spreadout.core.ragged import Ragged
from spreadout.core.randomness import Ints
from spreadout.core.rows import nbytes
from spreadout.core.state import ServerState
from spreadout.core.tables import Table, Tables, row_bytes
from spreadout.core.types import RowInfo, Tensors
from spreadout.data.columns import Lists, Sparse
from spreadout.federated.batches import cohort_batches, found_in, row_ids, row_info, sent
from spreadout.federated.cohort import Cohort
from spreadout.federated.federation import Federation
from spreadout.federated.local import LocalTraining
from spreadout.federated.schedule import Plan
from spreadout.models.lookup import LookupModel
from spreadout.models.nn.gather import FEW
from spreadout.runtime.simulator.pooled_lookup import PooledFeatures
from spreadout.runtime.simulator.segment_sum import RowSlots, SegmentSum
from spreadout.runtime.simulator.shared_encoder import can_share

SHARE_STAGED_IN_ADVANCE = 8  # a later round may take one part in eight of the memory
NARROW = 64  # batches up to this width are always padded to one width


@dataclass(frozen=True)
class Chunk:
    """Some clients of a cohort, stacked on the device: k of them, with m row slots each per table."""

    federation: Federation
    cohort: Cohort
    batches: Tensors  # (k, S, B, …)
    ids: Tensors  # per table (k, m), −1 for padding
    info: RowInfo  # which of them are real, and what else clients know of them
    examples: Tensor  # (k,) int64
    counts: Tensor  # (k,) the same on the host
    sums: dict[str, RowSlots]  # per table, how row slots add up by row
    active: list[int]  # clients still at work in each step
    features: PooledFeatures | None = None  # instead of x and of the rows it names
    own: Tensor | None = None  # (k, n) class rows of its own, −1 for padding, where no others come back

    @cached_property
    def training(self) -> LocalTraining:
        """How the clients train in this round."""
        return self.federation.training_at(self.cohort.round)

    @property
    def numbers(self) -> Tensor:
        """Who the clients are in the whole federation: (k,)."""
        return torch.from_numpy(self.federation.data.number_of(self.cohort.clients))

    @property
    def back(self) -> Tensors:
        """The rows that each client sends back: per table (k, n), −1 for padding."""
        return self.ids if self.own is None else {**self.ids, "classes": self.own}

    def comes_from_all(self, table: str) -> bool:
        """Whether all clients send back the same rows of a table."""
        return self.cohort.requests[table].shared is not None and self.back[table] is self.ids[table]

    def sent_back(self, change: Tensors) -> Tensors:
        """How far these have moved, out of changes of all rows: per table (k, m, d) → (k, n, d)."""
        if self.own is None or "classes" not in change:
            return change
        moved, (place, _) = change["classes"], found_in(self.ids["classes"], self.own)
        kept = moved.gather(1, place[..., None].expand(-1, -1, moved.shape[-1]))
        return {**change, "classes": kept.masked_fill(self.own[..., None] < 0, 0.0)}

    def rows(self, tables: Tables) -> Tensors:
        """Each client's rows, gathered: (k, m, d) per table, zeros in the padding."""
        return {name: self._rows_of(tables[name], name, ids) for name, ids in self.ids.items()}

    def _rows_of(self, table: Table, name: str, ids: Tensor) -> Tensor:
        if self.cohort.requests[name].shared is not None:  # all clients hold the same: one copy
            return table[ids[0]].expand(len(ids), -1, -1)
        return table[ids.clamp_min(0)] * (ids >= 0)[..., None]


@dataclass(frozen=True)
class StagedRound:
    """The chunks of a round, most steps first."""

    cohort: Cohort
    idle: Ints  # places in the cohort of clients that have nothing to train on
    chunks: list[Cohort]  # with the plans of their steps
    first: Chunk | None = None  # the first of them, where it has been laid out already


def stage_round(
    federation: Federation,
    state: ServerState,
    cohort: Cohort,
    memory: int,
    *,
    fuses: bool = False,
) -> StagedRound:
    """Cut a cohort into chunks that fit `memory` and plan their steps; the state gives shapes only.

    fuses: whether one step of many clients may be computed as one gradient.
    """
    f = federation
    sizes = f.data.sizes[cohort.clients.numpy()]
    idle = f.clients.schedule.usable(sizes) == 0
    chunks = []
    for members in _chunks(f, state, cohort, sizes, idle, memory, fuses):
        part = cohort.select(members)
        chunks.append(replace(part, plan=part.plan or f.plan(part.clients, part.round)))
    return StagedRound(cohort, np.flatnonzero(idle), chunks)


def stage_chunk(federation: Federation, cohort: Cohort, *, fuses: bool = False) -> Chunk:
    """Gather what some clients train on, and put it where it will be trained.

    fuses: whether they are trained where their rows are summed too, so that these sums are prepared, and
    whether one step of them all may be computed as one gradient.
    """
    f, steps = federation, cohort.plan
    assert steps is not None
    sizes = f.data.sizes[cohort.clients.numpy()]
    counts = torch.from_numpy(f.clients.schedule.usable(sizes))
    examples = sent(counts, f.device)
    requests, features = cohort.requests, None
    if fuses and can_pool(f, steps.mask.shape[1]):
        features = _pooled(f, cohort, steps, f.rules.counted_examples(examples))
        f = replace(f, data=f.data.without_features)
        requests = {
            table: rows for table, rows in requests.items() if table in f.data.row_columns.values()
        }
    ids = row_ids(requests, f.device)
    corrupt = f.corruption(cohort.clients, cohort.round)
    batches = cohort_batches(f.data, cohort.clients, steps, ids, f.device, corrupt)
    active = [int((steps.steps > s).sum()) for s in range(steps.mask.shape[1])]
    info = row_info(
        f.data,
        cohort.clients,
        ids,
        own=f.method.needs_own,
        popularity=f.method.needs_popularity,
        counts=f.method.needs_counts,
    )
    # Rows that everybody holds, and those counted row by row, are summed otherwise.
    otherwise = f.rules.counted | f.clients.training.fixed
    counted = f.rules.counted_examples(examples)
    own = None
    if f.method.returns_own_rows:
        own = sent(f.data.rows_of(cohort.clients)["classes"].padded(-1), f.device)
    chunk = Chunk(federation, cohort, batches, ids, info, examples, counts, {}, active, features, own)
    apart = [t for t in ids if fuses and not chunk.comes_from_all(t) and t not in otherwise]
    sums = {table: RowSlots.of(chunk.back[table], counted) for table in apart}
    return replace(chunk, sums=sums)


def _pooled(federation: Federation, cohort: Cohort, steps: Plan, examples: Tensor) -> PooledFeatures:
    f, model = federation, federation.model
    assert isinstance(model, LookupModel)
    ((name, table),) = model.row_columns.items()
    column = f.data.columns[name]
    assert isinstance(column, Sparse)
    at = f.data.offsets[cohort.clients][:, None] + steps.index[:, 0]
    requested = None if f.clients.requests_seen else cohort.requests[table]
    return PooledFeatures.of(column, at, steps.mask[:, 0], requested, examples, model.pooling)


def stage_in_advance(
    federation: Federation, staged: StagedRound, memory: int, trains: torch.cuda.Stream
) -> StagedRound:
    """The same with its chunk copied to the device, while the device still trains another round.

    Only where the round is one small chunk: several chunks fill the memory each. trains: the stream that
    will read it, and the requests that lie on the device.
    """
    if (
        len(staged.chunks) == 1
        and SHARE_STAGED_IN_ADVANCE * _staged_bytes(federation, staged.chunks[0]) <= memory
    ):
        staged = replace(staged, first=stage_chunk(federation, staged.chunks[0], fuses=True))
    torch.cuda.current_stream(federation.device).synchronize()
    for tensor in _tensors_in(staged):
        tensor.record_stream(trains)  # its memory is not free before that stream is done
    return staged


def _staged_bytes(federation: Federation, cohort: Cohort) -> int:
    """About what a chunk takes on the device before anything is trained."""
    columns = federation.data.columns.values()
    example = sum(column.example_bytes for column in columns if not isinstance(column, Sparse))
    rows = sum(requested.values.numel() for requested in cohort.requests.values())
    assert cohort.plan is not None
    return cohort.plan.index.numel() * (example + 12) + 64 * rows


def _tensors_in(part: object) -> Iterator[Tensor]:
    """Everything on a device that a round is made of."""
    if isinstance(part, Tensor):
        yield from [part] if part.is_cuda else []
    elif isinstance(part, Mapping | tuple | list):
        for value in part.values() if isinstance(part, Mapping) else part:
            yield from _tensors_in(value)
    elif isinstance(
        part, PooledFeatures | RowSlots | SegmentSum | Ragged | Cohort | Chunk | StagedRound
    ):
        yield from _tensors_in({one.name: getattr(part, one.name) for one in fields(part)})


def prefetch_key(federation: Federation, round: int) -> Hashable:
    """Everything a staged round depends on."""
    f = federation
    s, c = f.server, f.clients
    drawn = f.seed, s.selection, s.per_round, s.claim_cap, round
    apart = f.looks_at_each_update, c.keeps_state, c.training.averages_gradients, c.requests_seen
    return id(f.data), f.objective_key, c.schedule, c.augment, f.device, *apart, *drawn


def is_fusable(federation: Federation, steps: int) -> bool:
    """Whether clients that take so many steps can share one gradient of the dense part."""
    clients = federation.clients
    apart = federation.looks_at_each_update or clients.keeps_state  # of each client's own change
    apart = apart or federation.keeps_optimizers
    return steps == 1 and not apart and clients.training.averages_gradients


def can_pool(federation: Federation, steps: int) -> bool:
    """Whether clients that take so many steps can share one lookup of their features."""
    f = federation
    if type(f.model) is not LookupModel or f.clients.augment or not is_fusable(f, steps):
        return False
    if f.method.loss_reads_params:  # it would miss those rows among its parameters
        return False
    tables = frozenset(f.model.row_columns.values())
    return not tables & (f.clients.training.sphere | f.clients.training.fixed | f.rules.counted)


def _chunks(
    federation: Federation,
    state: ServerState,
    cohort: Cohort,
    sizes: Ints,
    idle: Ints,
    memory: int,
    fuses: bool,
) -> Iterator[Ints]:
    """Busy clients, most steps first, in runs whose padded tensors stay within the budget.

    Batches of one run are padded to the widest of them, so a run of wide ones ends where they become
    half as wide. Rows are padded too; where the loss looks at them itself, all have equally many.
    """
    steps = federation.clients.schedule.steps_per_client(sizes)
    widths = federation.clients.schedule.batch_widths(sizes)
    lengths_of = {table: requested.lengths.numpy() for table, requested in cohort.requests.items()}
    rows = np.sum([*lengths_of.values(), np.zeros_like(steps)], axis=0)
    order = np.lexsort((-rows, -widths, -steps))
    order = order[~idle[order]]
    start = 0
    while start < len(order):
        rest = order[start:]
        # The first client has the most steps; batches and rows are as wide as any that may follow.
        most = {table: int(lengths[rest].max()) for table, lengths in lengths_of.items()}
        widest = int(widths[rest].max())
        each = bytes_per_client(federation, state, int(steps[rest[0]]), widest, most, fuses)
        run = rest[: max(1, memory // each)]
        if widest > NARROW:
            narrow = np.flatnonzero(2 * widths[run] <= widths[run[0]])
            run = run[: narrow[0]] if len(narrow) else run
        if federation.method.loss_reads_params:  # it must not see padding among its rows
            counts = np.stack([*lengths_of.values(), np.zeros_like(steps)])[:, run]  # (tables, run)
            other = np.flatnonzero((counts != counts[:, :1]).any(0))
            run = run[: other[0]] if len(other) else run
        yield np.sort(run) if steps[run[0]] == 1 else run  # of one step, all may stay where they are
        start += len(run)


def bytes_per_client(
    federation: Federation,
    state: ServerState,
    steps: int,
    width: int,
    row_counts: Mapping[str, int],
    fuses: bool,
) -> int:
    """A generous estimate of what one client of a chunk takes, padding included.

    row_counts: rows of each table that it holds.
    """
    copies = 6  # start, present, gradient, step, change, and one optimiser slot
    if federation.clients.keeps_state:
        copies += 3  # its offset, its state, and how far that moves
    fused = fuses and is_fusable(federation, steps)
    pooling = fuses and can_pool(federation, steps)
    shared = set(federation.model.row_columns.values()) if pooling else set()
    parameters = 0 if fused else nbytes(state.dense.values())
    pooled = 0
    for table, count in row_counts.items():
        row = row_bytes(state.tables[table])
        if table in shared:  # its row and the row's change; what is pooled, and its gradient
            pooled += count * 2 * row + 4 * width * row
        else:
            parameters += count * (row + 8)
    if federation.noises_examples:  # a copy of everything for each example, and its gradient
        parameters *= 1 + 2 * width
    data, example, at_once = federation.data, 0, 0
    for name, column in data.columns.items():
        if not isinstance(column, Sparse):
            example += column.example_bytes
        elif name in data.row_columns and data.row_columns[name] in shared:
            named = -(-len(column.ids) // max(column.count, 1))  # features an example has, about
            pooled += width * named * 64  # sorted by example and by feature
        elif name in data.row_columns:
            example += (
                4 * row_counts[data.row_columns[name]]
            )  # over the client's rows, not over all features
        elif federation.clients.augment:
            example += column.example_bytes
        else:
            at_once += column.example_bytes  # one step after another
    # Outputs of all layers and, of a few at a time, their gradients; `vmap` makes copies besides.
    kept = 4 if fused and can_share(federation) else 8
    activations = kept * width * federation.activations * 4
    # Scores of a batch against the client's class rows, and their gradients.
    activations += 6 * width * row_counts.get("classes", 0) * 4
    for name, table in data.row_columns.items():
        column = data.columns[name]
        if isinstance(column, Lists) and federation.device.type == "cuda":  # see models/nn/gather.py
            activations += width * (column.width or column.longest) * min(row_counts[table], FEW) * 4
    batches = steps * width * (example + 16) + 2 * width * at_once
    return max(1, copies * parameters + pooled + batches + activations)
