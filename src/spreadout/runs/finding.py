"""What a finding is, and what all of them are told by: scores, how far they can go, and chance."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeGuard

from spreadout.core.types import Record
from spreadout.evaluation.config import EvalConfig
from spreadout.evaluation.early_stopping import chance, goodness, judged_by
from spreadout.evaluation.metrics import described
from spreadout.evaluation.references import Reference

SHARE = re.compile(r"P@1$|(retrieval )?R@\d+$")  # metrics by which an example is right or wrong
NO_CHANCE = 8  # examples that scores differ by: twice the deviation, if as many again went both ways
FEWEST = 5  # evaluations that trends can be seen in


@dataclass(frozen=True)
class Finding:
    """A fault, by name, the sign it was told by, and what to try."""

    name: str
    sign: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.name}: {self.sign}; {self.remedy}"


def scores_of(config: EvalConfig, history: Sequence[Record]) -> list[float]:
    """How good each evaluation is, the higher the better."""
    return [goodness(config, record) for record in history]


def quarter_of(history: Sequence[Record]) -> int:
    """Evaluations in a quarter of a run."""
    return max(1, (len(history) - 1) // 4)


def grown(history: Sequence[Record]) -> float:
    """By how much the norm of the encoder's weights grew; 1 where it is not known."""
    norms = [float(r["weights_norm"]) for r in history if is_known(r.get("weights_norm"))]
    return norms[-1] / norms[0] if norms and norms[0] else 1.0


def room_above(config: EvalConfig, score: float) -> float:
    """How far the score is from the best there can be."""
    metric = described(judged_by(config)[0])
    low, high = metric.range
    best = high if metric.better == "higher" else low
    return math.inf if best is None else metric.sign * best - score


def differ(config: EvalConfig, difference: float, score: float, examples: int) -> bool:
    """Whether two scores of the same examples differ by more than chance explains.

    By a standard error of a score, as both are of the same examples, and by NO_CHANCE of these. A metric
    that is no share of examples, and an unknown number of them, leave nothing to chance.
    """
    if not examples or not SHARE.match(judged_by(config)[0]):
        return difference > 0
    return difference >= max(chance(config, score, examples), 100 * NO_CHANCE / examples)


def central(config: EvalConfig, references: Mapping[str, Reference]) -> list[tuple[float, str]]:
    """How good models in one place are that look at inputs, and what they are called."""
    return _scored(config, (one for one in references.values() if not one.is_trivial))


def trivial(config: EvalConfig, references: Mapping[str, Reference]) -> list[tuple[float, str]]:
    """The same of predictions that look at no input."""
    return _scored(config, (one for one in references.values() if one.is_trivial))


def _scored(config: EvalConfig, references: Iterable[Reference]) -> list[tuple[float, str]]:
    names = judged_by(config)
    return [
        (goodness(config, one.metrics), one.name)
        for one in references
        if all(is_known(one.metrics.get(name)) for name in names)
    ]


def judged(config: EvalConfig) -> str:
    """What a run is judged by, in words."""
    names = judged_by(config)
    return names[0] if len(names) == 1 else f"the mean of {', '.join(names)}"


def is_known(value: object) -> TypeGuard[float]:
    return isinstance(value, int | float) and math.isfinite(value)
