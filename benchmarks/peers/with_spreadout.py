"""spreadout's simulator on the same work. `python -m benchmarks.peers.with_spreadout A|B ROUNDS THREADS`

The workload's own start, clients in its own order: a federation whose executor is told the cohorts.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from torch import Tensor
from torch.nn import functional as F

import spreadout as so
from benchmarks.peers.work import Data, finish
from spreadout.core.ragged import Ragged, offsets_from_lengths
from spreadout.core.state import ServerState
from spreadout.core.tables import local_of
from spreadout.core.types import Batch, Params, RowInfo
from spreadout.data.columns import Dense, Lists, Sparse
from spreadout.data.dataset import FederatedDataset
from spreadout.data.held_out import Examples
from spreadout.data.splits import Splits
from spreadout.federated.aggregate import Aggregate
from spreadout.federated.cohort import Cohort, request_rows
from spreadout.federated.executor import Executor
from spreadout.federated.federation import Federation
from spreadout.federated.round import run_round
from spreadout.methods.base import reads_params_via_model
from spreadout.methods.positive_only import PositiveOnly
from spreadout.models.embedding import EmbeddingModel
from spreadout.objectives import losses
from spreadout.runs.build import build_federation


class FreeRow(PositiveOnly):
    """The positive loss with rows normalised in it, not kept on the sphere: what the others train."""

    name: Literal["free-row"] = "free-row"

    @reads_params_via_model
    def loss(self, model: EmbeddingModel, params: Params, batch: Batch, info: RowInfo) -> Tensor:
        own = F.normalize(params.rows["classes"], dim=-1)[batch["y"]]
        s = (model.embed(params, batch) * own).sum(-1)
        return losses.masked_mean(losses.positive_hinge(s, 0.9), batch["mask"])


@dataclass(frozen=True)
class InOrder(Executor):
    """An executor for the clients that every contender trains."""

    inner: Executor
    cohorts: list[list[int]]

    def cohort(self, federation: Federation, state: ServerState) -> Cohort:
        return request_rows(federation, torch.tensor(self.cohorts[state.round]), state.round)

    def train(self, federation: Federation, state: ServerState, cohort: Cohort) -> Iterable[Aggregate]:
        return self.inner.train(federation, state, cohort)


def movies(data: Data) -> Splits:
    """Workload A as spreadout holds it: every window with its item, and rows they both name."""
    histories = Ragged.from_lists([row[row > 0] for row in data.history])
    columns = {"history": Lists.of(histories, pad=0, width=10), "y": Dense(data.item)}
    row_columns = {"history": "classes", "y": "classes"}
    held = FederatedDataset(columns, torch.tensor(data.offsets), 3953, row_columns)
    return Splits("A", held, _nothing({"history": columns["history"]}))


def papers(data: Data) -> Splits:
    """Workload B: the 160 examples of each label, stored once each, and sparsely."""
    row, feature = data.x.nonzero().unbind(1)
    offsets = offsets_from_lengths(torch.bincount(row, minlength=len(data.x)))
    x = Sparse(feature, torch.ones(len(feature)), offsets, 1836, index=data.held.flatten())
    label = torch.arange(len(data.held)).repeat_interleave(data.held.shape[1])
    ends = torch.arange(len(data.held) + 1) * data.held.shape[1]
    held = FederatedDataset({"x": x, "y": Dense(label)}, ends, len(data.held))
    return Splits("B", held, _nothing({"x": x}))


def _nothing(inputs: dict[str, Any]) -> Examples:
    """No held-out part: nothing is evaluated here."""
    empty = {name: column.select(torch.arange(0)) for name, column in inputs.items()}
    return Examples(empty, Ragged.from_lists([]))


def federation_of(data: Data) -> tuple[Federation, ServerState]:
    clients: dict[str, Any] = {"per_round": 100, "shuffle": False, "local_epochs": 1}
    server = {"optimizer": "sgd", "lr": 1.0}
    cpu = torch.device("cpu")
    if data.work == "A":
        config = {
            "model": {"encoder": "mean", "output": "relu", "dim": 16},
            "method": {"name": "dual_encoder", "loss_form": "batch_softmax", "merge": "sum"},
            "clients": {**clients, "batch": 16, "drop_remainder": True, "lr": 1.0},
            "server": server,
        }
        f = build_federation(so.Experiment.of(config), movies(data), cpu)
        weight, bias = data.start["context.weight"], data.start["context.bias"]
        dense = {"context.layers.0.weight": weight.clone(), "context.layers.0.bias": bias.clone()}
        return f, ServerState(0, dense, {"classes": data.start["items.weight"].clone()})
    config = {
        "model": {"hidden": [256], "dim": 128},
        "method": {"name": "baseline-1"},
        "clients": {**clients, "batch": 32, "lr": 0.1},
        "server": server,
    }
    f = build_federation(so.Experiment.of(config), papers(data), cpu, method=FreeRow())
    free = {"classes": replace(f.model.tables["classes"], sphere=False)}
    f = replace(
        f,
        model=replace(f.model, tables=free),
        clients=replace(f.clients, training=replace(f.clients.training, sphere=frozenset())),
    )
    names = {"1.weight": "first.weight", "1.bias": "first.bias", "3.weight": "second.weight"}
    names["3.bias"] = "second.bias"
    dense = {ours: data.start[theirs].clone() for ours, theirs in names.items()}
    return f, ServerState(0, dense, {"classes": data.start["rows"].clone()})


def params_of(data: Data, state: ServerState) -> dict[str, Tensor]:
    if data.work == "A":
        weight, bias = state.dense.values()
        return {
            "items.weight": local_of(state.tables["classes"]),
            "context.weight": weight,
            "context.bias": bias,
        }
    theirs = ("first.weight", "first.bias", "second.weight", "second.bias")
    ours = ("1.weight", "1.bias", "3.weight", "3.bias")
    dense = {name: state.dense[mine] for name, mine in zip(theirs, ours, strict=True)}
    return {**dense, "rows": local_of(state.tables["classes"])}


def main() -> None:
    work, rounds, threads = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    torch.set_num_threads(threads)
    data = Data(work)
    f, state = federation_of(data)
    f = replace(f, executor=InOrder(f.executor, data.cohorts), rounds=rounds)
    seconds = []
    for _ in range(rounds):
        begin = time.perf_counter()
        run_round(f, state)
        seconds.append(time.perf_counter() - begin)
    finish(f"spreadout-{threads}", work, seconds, params_of(data, state))


if __name__ == "__main__":
    main()
