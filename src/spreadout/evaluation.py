"""Scoring a model on held-out examples, against every class, in blocks of bounded memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from spreadout import metrics
from spreadout.data.federated import Examples
from spreadout.federated.local import Params
from spreadout.federated.server import ServerState
from spreadout.gauges import Gauges, class_gauges
from spreadout.mining import nearest
from spreadout.models.embedding import EmbeddingModel

INPUT_BYTES = 1 << 28  # of gathered inputs held at once


@dataclass(frozen=True)
class Evaluation:
    """Metrics in percent, and the gauges of collapse."""

    metrics: dict[str, float]
    gauges: Gauges


@torch.no_grad()
def evaluate(
    model: EmbeddingModel,
    state: ServerState,
    examples: Examples,
    names: Sequence[str],
    *,
    block: int | None = None,
) -> Evaluation:
    """Rank all classes for every example and score the ranking."""
    table = state.tables["classes"]
    deepest = min(max((metrics.parse(name)[1] for name in names), default=1), len(table))
    ranked, away = [], []
    widest = max((column.example_bytes for column in examples.inputs.values()), default=1)
    block = block or max(1, min(4096, INPUT_BYTES // widest))
    for start in range(0, len(examples), block):
        some = torch.arange(start, min(start + block, len(examples)))
        embedded = embed(model, state, examples, some)
        ranked.append(nearest(embedded, table, deepest).ids)
        away.append(_distance_to_own(embedded, table, examples, some))
    ranking = torch.cat(ranked)
    scores = {name: metrics.compute(name, ranking, examples.labels) for name in names}
    own = torch.cat(away)
    epsilon = float(own.mean()) if own.numel() else float("nan")
    return Evaluation(scores, class_gauges(table, epsilon))


@torch.no_grad()
def embed(model: EmbeddingModel, state: ServerState, examples: Examples, at: Tensor) -> Tensor:
    """Unit embeddings of some held-out examples: (len(at), d)."""
    table = state.tables["classes"]
    batch = {name: column.take(at).to(table.device) for name, column in examples.inputs.items()}
    return model.embed(Params(state.dense, state.tables), batch)


def _distance_to_own(embedded: Tensor, table: Tensor, examples: Examples, at: Tensor) -> Tensor:
    """Euclidean distance of each example to each of its own classes."""
    labels = examples.labels.select(at)
    owner = torch.repeat_interleave(torch.arange(len(at)), labels.lengths)
    trained = labels.values < len(table)  # others have no row to be away from
    owner, own = owner[trained].to(table.device), labels.values[trained].to(table.device)
    s = (embedded[owner] * table[own]).sum(-1)
    return (2 - 2 * s).clamp_min(0).sqrt()
