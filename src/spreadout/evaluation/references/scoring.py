"""From a reference's scores to metrics, in blocks of bounded memory and within a bound of time."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from spreadout.core.ragged import Ragged
from spreadout.evaluation.frequencies import Frequencies
from spreadout.evaluation.metric import Metric, MetricInputs
from spreadout.evaluation.metrics import find_metric
from spreadout.evaluation.pooled import Pool
from spreadout.evaluation.standings import trained_labels

Scorer = Callable[[Tensor], Tensor]
"""Scores of every class for the examples at some places: (n,) → (n, C) double, no two of a row equal.

(1, C) where they are the same for all.
"""

AT_ONCE = 1 << 23  # scores in memory at once
COMPUTABLE = frozenset({"ranking", "rank", "frequencies"})  # a reference has no embeddings
TIE = 1e-9  # how much of the class's prior is added to scores that may be equal


class OutOfTime(Exception):
    """A reference took longer than it may."""


@dataclass(frozen=True)
class Clock:
    """A bound of time; what runs long looks at it now and then."""

    limit: float  # seconds
    started: float = field(default_factory=time.perf_counter)

    @property
    def seconds(self) -> float:
        return time.perf_counter() - self.started

    def check(self) -> None:
        if self.seconds > self.limit:
            raise OutOfTime


def computable(names: Sequence[str]) -> list[Metric]:
    """The metrics that rankings alone are enough for."""
    return [metric for metric in map(find_metric, names) if metric.needs <= COMPUTABLE]


def blocks(count: int, classes: int) -> list[Tensor]:
    """Places in runs whose scores fit into memory."""
    return list(torch.split(torch.arange(count), max(1, AT_ONCE // max(classes, 1))))


def metrics_of(
    scorer: Scorer,
    labels: Ragged,
    pool: Pool,
    metrics: Sequence[Metric],
    seen: Frequencies | None,
    clock: Clock,
) -> dict[str, float]:
    """Each metric of the scores of all examples that these label sets belong to."""
    needs = {need for metric in metrics for need in metric.needs}
    depth = min(max([1, *(metric.looks_at or 1 for metric in metrics)]), pool.classes)
    ranking, ranks = [], []
    for some in blocks(len(labels), pool.classes):
        clock.check()
        scores = scorer(some)
        if "ranking" in needs:
            ranking.append(scores.topk(depth, 1).indices.cpu().expand(len(some), -1))
        if "rank" in needs:
            ranks.append(_rank_of_right(scores, labels.select(some)).cpu())
    inputs = MetricInputs.of(
        labels,
        ranking=torch.cat(ranking) if ranking else None,
        rank=torch.cat(ranks) if ranks else None,
        frequencies=seen,
    )
    return {metric.name: metric.value(inputs) for metric in metrics}


def _rank_of_right(scores: Tensor, labels: Ragged) -> Tensor:
    """Where each labelled example's best-placed right class stands, from 1; ∞ if none was trained."""
    owner, label = trained_labels(labels, scores.shape[1], scores.device)
    best = torch.full((len(labels),), -torch.inf, dtype=scores.dtype, device=scores.device)
    if len(scores) == 1:
        best = best.scatter_reduce(0, owner, scores[0, label], "amax")
        above = len(scores[0]) - torch.searchsorted(scores[0].sort().values, best, right=True)
    else:
        best = best.scatter_reduce(0, owner, scores[owner, label], "amax")
        above = (scores > best[:, None]).sum(1)
    rank = 1 + above.double()
    rank = torch.where(best > -torch.inf, rank, torch.inf)
    return rank[(labels.lengths > 0).to(rank.device)]
