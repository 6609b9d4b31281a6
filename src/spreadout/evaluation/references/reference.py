"""What is kept of a reference, and which of several is the best."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from spreadout.evaluation.metric import Metric
from spreadout.evaluation.metrics import described
from spreadout.evaluation.references.features import Form

POPULARITY = "popularity"  # what next items are compared with in place of the most frequent labels


@dataclass(frozen=True)
class Reference:
    """A prediction without a federation: how good it is, and what is to be known of it.

    >>> import spreadout as so
    >>> so.run(so.Experiment(rounds=1)).references["most frequent"].is_trivial
    True
    """

    name: str
    metrics: dict[str, float] = field(default_factory=dict)  # none where it was left out
    seconds: float = 0.0
    note: str = ""  # what was chosen or cut short, or why it was left out
    is_trivial: bool = False  # looks at no input: any model should be better
    # In which form of features it does best (`features.py`), where it has any; not kept in a summary.
    form: Form | None = field(default=None, compare=False)


def mean_goodness(found: Mapping[str, float], among: Sequence[Metric]) -> float:
    """The mean of the metrics that are like the first, the higher the better; −∞ if one is missing.

    >>> from spreadout.evaluation.metrics import find_metric
    >>> mean_goodness({"P@1": 60.0, "P@3": 40.0}, [find_metric("P@1"), find_metric("P@3")])
    50.0
    """
    first, *_ = among
    alike = [metric for metric in among if (metric.unit, metric.better) == (first.unit, first.better)]
    values = [found.get(metric.name, math.nan) for metric in alike]
    return first.sign * sum(values) / len(values) if all(map(math.isfinite, values)) else -math.inf


def best_central(
    references: Mapping[str, Reference],
    centralized: Mapping[str, float] | None = None,
    by: Sequence[str] = ("P@1",),
) -> Reference | None:
    """The best that is known with all data in one place: the oracle of a comparison.

    centralized: metrics of a run of `centralized`, one more candidate; by: the metrics whose mean
    decides. None where nothing has these metrics.

    >>> import spreadout as so
    >>> ridge = so.Reference("ridge", {"P@1": 64.5})
    >>> so.best_central({"ridge": ridge}, {"P@1": 61.6}).name
    'ridge'
    >>> so.best_central({"ridge": ridge}, {"P@1": 66.0}).metrics["P@1"]
    66.0
    """
    metrics = [described(name) for name in by]
    candidates = list(references.values())
    if centralized is not None:
        candidates.insert(0, Reference("centralized", dict(centralized)))
    known = [one for one in candidates if mean_goodness(one.metrics, metrics) > -math.inf]
    return max(known, key=lambda one: mean_goodness(one.metrics, metrics), default=None)
