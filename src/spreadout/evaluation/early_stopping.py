"""Which of a run's evaluations was the best, and whether it is time to stop (`[eval]`)."""

from __future__ import annotations

from collections.abc import Sequence

from spreadout.core.types import Record
from spreadout.evaluation.config import EvalConfig
from spreadout.evaluation.metrics import LOWER_IS_BETTER


def best_of(config: EvalConfig, history: Sequence[Record]) -> int:
    """The place of the best evaluation so far, the first of equals."""
    names = config.best_by or config.metrics[:1]
    sign = -1 if names[0] in LOWER_IS_BETTER else 1

    def goodness(place: int) -> float:
        return sign * sum(float(history[place][name]) for name in names) / len(names)

    return max(range(len(history)), key=goodness)


def out_of_patience(config: EvalConfig, history: Sequence[Record]) -> bool:
    """Whether the last evaluations, as many as patience lasts, were no better than one before."""
    if config.patience is None:
        return False
    return len(history) - 1 - best_of(config, history) >= config.patience
