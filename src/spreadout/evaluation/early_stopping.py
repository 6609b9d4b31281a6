"""Which of a run's evaluations was the best, and whether it is time to stop (`[eval]`)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from spreadout.core.types import Record
from spreadout.evaluation.config import EvalConfig
from spreadout.evaluation.metrics import find_metric


def judged_by(config: EvalConfig) -> list[str]:
    """The metrics whose mean says how good an evaluation is."""
    return list(config.best_by or config.metrics[:1])


VALIDATION = "validation "  # before the name of a metric that was taken of the validation part
CHANCE = "validation chance"  # how far a score on the validation part is from the truth by chance alone


def chance(config: EvalConfig, score: float, examples: int) -> float:
    """The standard error of a share of examples, in percent; 0 of metrics that are no shares."""
    if find_metric(judged_by(config)[0]).range != (0, 100) or not examples:
        return 0.0
    share = min(max(score / 100, 0.0), 1.0)
    return 100 * math.sqrt(share * (1 - share) / examples)


def goodness(config: EvalConfig, record: Mapping[str, Any], of: str = "") -> float:
    """How good an evaluation is, the higher the better; −∞ where a metric has no value.

    of: VALIDATION for the scores of that part, where the run is judged by another one.
    """
    names = judged_by(config)
    values = [record[of + name] for name in names]
    if any(value is None or not math.isfinite(value) for value in values):
        return -math.inf  # as read back from a file, it is never the best
    return find_metric(names[0]).sign * sum(map(float, values)) / len(names)


def best_of(config: EvalConfig, history: Sequence[Record]) -> int:
    """The place of the best evaluation so far by the validation part, the first of equals.

    The last one where that part was not scored: to choose by test examples would be to tune on them.
    """
    scores = _validated(config, history)
    return max(scores, key=scores.__getitem__, default=len(history) - 1)


def shown_of(config: EvalConfig, history: Sequence[Record]) -> int:
    """The place of the model that a run leaves: the last, unless an earlier one was truly better.

    That is the last one whose score is within a standard error of the best: of few validation examples
    the highest score is luck.
    """
    scores = _validated(config, history)
    if config.keep == "last" or not scores:
        return len(history) - 1
    best = best_of(config, history)
    least = scores[best] - float(history[best].get(CHANCE) or 0.0)
    return max(place for place, score in scores.items() if score >= least)


def _validated(config: EvalConfig, history: Sequence[Record]) -> dict[int, float]:
    """How good validation examples found a model, by place; not those that they were not asked about."""
    names, scored = [VALIDATION + name for name in judged_by(config)], config.split == "validation"
    of = {at: VALIDATION if all(name in one for name in names) else "" for at, one in enumerate(history)}
    return {at: goodness(config, history[at], part) for at, part in of.items() if part or scored}


def out_of_patience(config: EvalConfig, history: Sequence[Record]) -> bool:
    """Whether the last evaluations, as many as patience lasts, were no better than one before."""
    if config.patience is None:
        return False
    return len(history) - 1 - best_of(config, history) >= config.patience
