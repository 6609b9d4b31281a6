"""Two workloads that every contender does alike: data, models, who trains when, and what counts as done.

A: MovieLens-1M next movie, two towers over one table of 16 dimensions, batch softmax over batches of 16,
   one epoch of plain SGD over at most 300 examples, 100 of 4,832 clients a round, weighted by examples.
B: Bibtex, a client per label, features 1836 → 256 → 128 and the label's own row, squared hinge 0.9, five
   SGD steps of 32 examples, 100 of 159 clients a round, weighted alike.

Needs torch and numpy only: it is imported in the peers' own environments. `compare.py` writes what it
reads.
"""

from __future__ import annotations

import json
import os
import resource
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

WORK = Path(os.environ.get("PEERS_WORK", "peers-work"))
CLIENTS = 100  # a round
LABELS = 159
RIGHT = torch.arange(16)  # of a batch's items, each is its own context's


class TwoTowers(nn.Module):
    """Workload A."""

    rate, batch = 1.0, 16

    def __init__(self) -> None:
        super().__init__()
        self.items = nn.Embedding(3953, 16)
        self.context = nn.Linear(16, 16)

    def loss(self, history: Tensor, item: Tensor) -> Tensor:
        """history: (16, 10), 0 where shorter; item: (16,)"""
        table = self.items.weight
        mean = F.embedding_bag(history, table, mode="mean", padding_idx=0)
        context = F.normalize(F.relu(self.context(mean)), dim=1)
        scores = context @ F.normalize(F.embedding(item, table), dim=1).T
        return F.cross_entropy(scores, RIGHT)


class OneLabel(nn.Module):
    """Workload B: the encoder, and the row of whichever label's client trains."""

    rate, batch = 0.1, 32

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(1836, 256)
        self.second = nn.Linear(256, 128)
        self.row = nn.Parameter(torch.zeros(128))

    def loss(self, x: Tensor, row: Tensor | None = None) -> Tensor:
        row = self.row if row is None else row
        embedded = F.normalize(self.second(F.relu(self.first(x))), dim=1)
        return (0.9 - embedded @ F.normalize(row, dim=0)).clamp_min(0).square().mean()


def model_of(work: str) -> TwoTowers | OneLabel:
    return TwoTowers() if work == "A" else OneLabel()


class Data:
    """What clients hold: the batches of client c, in the order they are trained on."""

    def __init__(self, work: str) -> None:
        found = np.load(WORK / f"{work}.npz")
        self.work = work
        self.cohorts: list[list[int]] = found["cohorts"].tolist()
        self.start = {
            name.removeprefix("start/"): torch.from_numpy(found[name])
            for name in found.files
            if name.startswith("start/")
        }
        if work == "A":
            self.history, self.item = (torch.from_numpy(found[name]) for name in ("history", "item"))
            self.offsets: list[int] = found["offsets"].tolist()
        else:
            self.x = torch.zeros(int(found["rows"]), 1836)
            self.x[torch.from_numpy(found["row"]), torch.from_numpy(found["feature"])] = 1.0
            self.held = torch.from_numpy(found["held"])  # (159, 160)

    @property
    def clients(self) -> int:
        return len(self.offsets) - 1 if self.work == "A" else LABELS

    def examples(self, client: int) -> int:
        return self.offsets[client + 1] - self.offsets[client] if self.work == "A" else 160

    def tensors(self, client: int) -> tuple[Tensor, ...]:
        if self.work == "A":
            mine = slice(self.offsets[client], self.offsets[client + 1])
            return self.history[mine], self.item[mine]
        return (self.x[self.held[client]],)

    def batches(self, client: int) -> Sequence[tuple[Tensor, ...]]:
        size = 16 if self.work == "A" else 32
        return list(zip(*(torch.split(part, size) for part in self.tensors(client)), strict=True))


def reached(data: Data, params: Mapping[str, Tensor]) -> float:
    """The mean over clients of the loss on their first batch (A) or on all they hold (B)."""
    model = model_of(data.work)
    rows = params.get("rows")
    state = {name: value for name, value in params.items() if name != "rows"}
    if rows is not None:
        state["row"] = rows[0]
    model.load_state_dict(state)
    with torch.no_grad():
        if isinstance(model, TwoTowers):
            losses = [model.loss(*data.batches(c)[0]) for c in range(data.clients)]
        else:
            losses = [model.loss(data.tensors(c)[0], row) for c, row in enumerate(params["rows"])]
    return float(torch.stack(losses).mean())


def finish(name: str, work: str, seconds: Sequence[float], params: Mapping[str, Any]) -> None:
    """Leave the seconds of every round, and the model they led to, for `compare.py`."""
    out = WORK / "out"
    out.mkdir(parents=True, exist_ok=True)
    torch.save(
        {k: torch.as_tensor(v).detach().clone() for k, v in params.items()}, out / f"{name}-{work}.pt"
    )
    own, children = (
        resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    )
    made = {
        "seconds": list(seconds),
        "peak_kib": own,
        "peak_child_kib": children,
        "torch": torch.__version__,
    }
    (out / f"{name}-{work}.json").write_text(json.dumps(made), encoding="utf-8")
