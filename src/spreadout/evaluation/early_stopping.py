"""Which of a run's evaluations was the best, and whether it is time to stop (`[eval]`)."""

from __future__ import annotations

import math
from collections.abc import Sequence

from spreadout.core.types import Record
from spreadout.evaluation.config import EvalConfig
from spreadout.evaluation.metrics import find_metric


def best_of(config: EvalConfig, history: Sequence[Record]) -> int:
    """The place of the best evaluation so far, the first of equals."""
    names = config.best_by or config.metrics[:1]
    sign = find_metric(names[0]).sign

    def goodness(place: int) -> float:
        values = [history[place][name] for name in names]
        if any(value is None or not math.isfinite(value) for value in values):
            return -math.inf  # a metric that has no value, as read back from a file, is never the best
        return sign * sum(map(float, values)) / len(names)

    return max(range(len(history)), key=goodness)


def out_of_patience(config: EvalConfig, history: Sequence[Record]) -> bool:
    """Whether the last evaluations, as many as patience lasts, were no better than one before."""
    if config.patience is None:
        return False
    return len(history) - 1 - best_of(config, history) >= config.patience
