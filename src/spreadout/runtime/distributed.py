"""Several processes, one run: each trains a part of every cohort, all take the same server step.

    torchrun --nproc-per-node 2 -m spreadout run CONFIG

Every rank holds the whole server state, except for a large class table: there each holds a run of rows.
In a round they exchange the requested rows, and sums: one all-reduce of the dense part, and the rows
that some rank's clients changed. All ranks then have the same sums, bit for bit, and so they keep the
same state. The first rank writes the run folder and the terminal output.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor

from spreadout.core.client_state import PerClient
from spreadout.core.merging import RowSum
from spreadout.core.randomness import Ints
from spreadout.core.state import ServerState
from spreadout.core.tables import Sharded, Tables, fetched
from spreadout.core.types import Tensors
from spreadout.federated.aggregate import Aggregate, total
from spreadout.federated.cohort import Cohort
from spreadout.federated.executor import Executor
from spreadout.federated.federation import Federation


@contextmanager
def joined(device: str) -> Iterator[None]:
    """Within it, this process is one of those that torchrun started; alone, nothing happens."""
    if int(os.environ.get("WORLD_SIZE", "1")) == 1:
        yield
        return
    on_gpu = device.startswith("cuda") or (device == "auto" and torch.cuda.is_available())
    if on_gpu:
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
    dist.init_process_group("nccl" if on_gpu else "gloo")
    try:
        yield
    finally:
        dist.destroy_process_group()


def size() -> int:
    return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1


def is_first() -> bool:
    """Whether this is the process that writes the run folder and the terminal output."""
    return size() == 1 or dist.get_rank() == 0


def any_of(flag: bool) -> bool:
    """Whether the flag is set in any process: all of them stop after the same round, or none."""
    if size() == 1:
        return flag
    flags: list[bool] = [False] * size()
    dist.all_gather_object(flags, flag)
    return any(flags)


@dataclass(frozen=True)
class Distributed(Executor):
    """An executor that trains its own part of a cohort and adds up what all ranks' parts came to."""

    inner: Executor

    def cohort(self, federation: Federation, state: ServerState) -> Cohort:
        return self.inner.cohort(federation, state)

    def keeps_sparse(self, federation: Federation) -> bool:
        return self.inner.keeps_sparse(federation)

    def train(self, federation: Federation, state: ServerState, cohort: Cohort) -> Iterator[Aggregate]:
        f = federation
        steps = f.clients.schedule.steps_per_client(f.data.sizes[cohort.clients.numpy()])
        mine = cohort.select(part_of(steps, dist.get_rank(), size()))
        yield summed(total(self.inner.train(f, _with_rows_of(mine, state), mine)), state.dense)


def _with_rows_of(cohort: Cohort, state: ServerState) -> ServerState:
    """The state with the requested rows, fetched before training from the ranks that have them."""
    tables: Tables = {
        name: fetched(table, cohort.requests[name].values) if isinstance(table, Sharded) else table
        for name, table in state.tables.items()
    }
    return replace(state, tables=tables)


def sharded(federation: Federation, megabytes: float) -> frozenset[str]:
    """The tables of which each rank holds its own rows: a large class table, if the method can do so."""
    model, method = federation.model, federation.method
    table = model.tables.get("classes")
    if size() == 1 or table is None or table.count < size() or model.first_class or not method.can_shard:
        return frozenset()
    if federation.noises_sums:  # what every row is owed is counted in one place
        return frozenset()
    large = 4 * table.count * table.dim > megabytes * 2**20
    return frozenset({"classes"}) if large else frozenset()


def part_of(work: Ints, rank: int, ranks: int) -> Ints:
    """The places of a rank's clients. Ranks take turns (0, 1, …, 1, 0, …), the busiest clients first."""
    order = (-work).argsort(kind="stable")
    turn = 2 * ranks
    place = np.arange(len(order)) % turn
    return np.sort(order[(place == rank) | (place == turn - 1 - rank)])


def summed(part: Aggregate, like: Tensors) -> Aggregate:
    """The sum of every rank's part, the same on all of them."""
    device = next(iter(like.values())).device
    mine = [part.dense.get(name, torch.zeros_like(value)) for name, value in like.items()]
    flat = torch.cat([value.reshape(-1) for value in mine])
    dist.all_reduce(flat)
    parts: list[Aggregate] = [Aggregate()] * size()
    sent = _moved(part, torch.device("cpu"))
    dist.all_gather_object(parts, replace(sent, dense={}, loss_sum=float(part.loss_sum)))
    every = total([_moved(one, device) for one in parts])
    if every.clients:
        pieces = torch.split(flat, [value.numel() for value in mine])
        shapes = zip(like.items(), pieces, strict=True)
        every.dense = {name: piece.view(value.shape) for (name, value), piece in shapes}
    return every


def _moved(part: Aggregate, device: torch.device) -> Aggregate:
    """The same with its rows, and what belongs to drift corrections, on a device."""

    def to(value: Tensor) -> Tensor:
        return value.to(device)

    rows = {
        n: RowSum(to(r.ids), to(r.total), to(r.holders), to(r.examples)) for n, r in part.rows.items()
    }
    control = {name: to(value) for name, value in part.control.items()}
    states = {n: PerClient(to(s.clients), to(s.values)) for n, s in part.client_states.items()}
    lengths = {name: to(value) for name, value in part.lengths.items()}
    updates = [some.to(device) for some in part.updates]
    return replace(
        part, rows=rows, control=control, client_states=states, lengths=lengths, updates=updates
    )
