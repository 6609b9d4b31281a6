"""Scoring a model on held-out examples, against every class, in blocks of bounded memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch import Tensor

from spreadout.core.ragged import Ragged
from spreadout.core.rows import project_to_sphere
from spreadout.core.state import ServerState
from spreadout.core.tables import Table, each_row, whole_of
from spreadout.data.dataset import FederatedDataset
from spreadout.data.held_out import Examples
from spreadout.evaluation.config import EvalConfig
from spreadout.evaluation.embed import blocks, class_vectors, embed
from spreadout.evaluation.frequencies import PROPENSITY, Frequencies
from spreadout.evaluation.geometry import Geometry, class_geometry
from spreadout.evaluation.known import KnownExamples
from spreadout.evaluation.metric import PARTS, Metric, MetricInputs
from spreadout.evaluation.metrics import find_metric
from spreadout.evaluation.own_vote import without_own_votes
from spreadout.evaluation.pooled import pool_of
from spreadout.evaluation.scoring import with_one, with_prior
from spreadout.evaluation.standings import batch_rivals, distance_to_own, neighbours_of, rank_of_right
from spreadout.models.embedding import EmbeddingModel
from spreadout.objectives.neighbours import Nearest


@dataclass(frozen=True)
class Evaluation:
    """Metrics, and the geometry of collapse."""

    metrics: dict[str, float]
    geometry: Geometry | None  # None where there is no table of classes


@torch.no_grad()
def evaluate(
    model: EmbeddingModel,
    state: ServerState,
    examples: Examples,
    names: Sequence[str],
    *,
    seen: Frequencies | None = None,
    known: KnownExamples | None = None,
    votes: Tensor | None = None,
) -> Evaluation:
    """Compute metrics, and only those inputs that they need.

    seen: how often training has each label, for metrics that need `frequencies`. known: whose votes
    rank the classes; None: their vectors do. votes: (C,) what a label of these examples has added to its
    class's prior, where it was counted there: it is not scored by itself.
    """
    metrics = [find_metric(name) for name in names]
    classes = class_vectors(model, state) if model.has_class_table else None  # (C, dim)
    inputs, own = _inputs(model, state, examples, metrics, classes, seen, known, votes)
    scores = {metric.name: metric.value(inputs) for metric in metrics}
    if classes is None:
        return Evaluation(scores, None)
    epsilon = float(own.mean()) if own.numel() else float("nan")
    rows = model.ranked_rows(classes)
    unit = rows if model.tables["classes"].sphere else each_row(rows, project_to_sphere)
    return Evaluation(scores, class_geometry(unit, epsilon))


def _inputs(
    model: EmbeddingModel,
    state: ServerState,
    examples: Examples,
    metrics: Sequence[Metric],
    classes: Table | None,
    seen: Frequencies | None,
    known: KnownExamples | None,
    votes: Tensor | None,
) -> tuple[MetricInputs, Tensor]:
    """What the metrics are computed from, and how far examples are from their own classes.

    One pass over the examples: a block's embeddings are kept only if a metric needs them all.
    """
    needs = {need for metric in metrics for need in metric.needs}
    deepest = max([1, *(metric.looks_at or 1 for metric in metrics if "ranking" in metric.needs)])
    depth = min(deepest, model.class_count)
    keeps = not needs.isdisjoint({"scores", "embeddings", "neighbours"})

    @cache
    def every_class() -> Tensor:
        assert classes is not None  # or `needs_embeddings` is refused before
        return whole_of(classes)

    prior = state.scoring.get("prior")
    ranked = classes if classes is None or prior is None else with_prior(classes, prior)

    @cache
    def every_ranked() -> Tensor:
        return every_class() if ranked is None or prior is None else whole_of(ranked)

    ranking: list[Tensor] = []
    ranks: list[Tensor] = []
    kept: list[Tensor] = []
    away: list[Tensor] = [torch.empty(0)] if classes is None else []
    for some in blocks(examples, model.outputs):
        embedded, labels = embed(model, state, examples, some), examples.labels.select(some)
        scored = embedded if prior is None else with_one(embedded)
        if keeps:
            kept.append(embedded)
        if "ranking" in needs:
            best = _best(model, scored, ranked, depth, labels, votes)
            ranking.append((best if known is None else known.best(scored, every_ranked(), best)).ids)
        if "rank" in needs:
            first = model.first_class
            ranks.append(rank_of_right(scored, every_ranked()[first:], labels, first, votes))
        if classes is not None:
            away.append(distance_to_own(embedded, classes, labels))
    near = [metric.looks_at for metric in metrics if "neighbours" in metric.needs]
    makers: dict[str, Callable[[], Any]] = {
        "ranking": lambda: torch.cat(ranking),
        "rank": lambda: torch.cat(ranks),
        "embeddings": lambda: torch.cat(kept),
        "class_vectors": every_class,
        "neighbours": lambda: neighbours_of(torch.cat(kept), examples.labels, near),
        "batch_rivals": lambda: batch_rivals(model, state, examples, every_class()),
        "frequencies": lambda: seen,
    }
    parts = {part for need in needs for part in PARTS[need]}
    if seen is None:
        parts.discard("frequencies")
    found = MetricInputs(examples.labels, {part: makers[part] for part in parts}, model.first_class)
    return found, torch.cat(away)


def _best(
    model: EmbeddingModel,
    scored: Tensor,
    ranked: Table | None,
    depth: int,
    labels: Ragged,
    votes: Tensor | None,
) -> Nearest:
    """The best classes of a block of examples; without their own votes, where they have any."""
    if votes is None or not len(labels.values):
        return model.best_classes(scored, ranked, depth)
    wide = min(depth + int(labels.lengths.max()), model.class_count)
    return without_own_votes(model.best_classes(scored, ranked, wide), labels, votes, depth)


def needed_frequencies(train: FederatedDataset, config: EvalConfig) -> Frequencies | None:
    """How many training instances have each class; None if no metric needs it."""
    if not any("frequencies" in find_metric(name).needs for name in config.metrics):
        return None
    return frequencies(train, config.frequent, config.propensity)


def frequencies(
    train: FederatedDataset, frequent: int, propensity: tuple[float, float] = PROPENSITY
) -> Frequencies:
    """How many training instances have each class."""
    pool = pool_of(train)
    return Frequencies(pool.counts, len(pool), frequent, propensity)
