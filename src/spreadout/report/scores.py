"""How scores are drawn: the part of its range that a metric's axis shows."""

from __future__ import annotations

import math
from collections.abc import Iterable

from spreadout.evaluation.metrics import Metric

MARGIN = 0.05  # of the distance from the least to the largest value, added on both sides


def axis_range(metric: Metric, values: Iterable[float]) -> tuple[float, float]:
    """From where to where an axis goes, so that all values lie inside it.

    An end of the metric's own range is shown where the values come near it: percentages start at 0 and
    end at 100 if any is above 50; ranks from 400 to 500 are shown by themselves.
    """
    finite = [value for value in values if math.isfinite(value)]
    low, high = metric.range
    if not finite:
        start = 0.0 if low is None else low
        return start, start + 1 if high is None else high
    least, most = min(finite), max(finite)
    pad = MARGIN * (most - least) or MARGIN * abs(most) or 1.0
    bottom, top = least - pad, most + pad
    if low is not None and high is not None:  # a share of something: seen from where nothing is
        far = most > (low + high) / 2
        bottom, top = low, high if far else low + (most - low) * (1 + MARGIN) + 1e-9
    elif low is not None:
        bottom = low if least - low <= (most - low) / 2 else max(bottom, low)
    elif high is not None:
        top = high if high - most <= (high - least) / 2 else min(top, high)
    # A metric may leave the range it was said to have; what it measured is drawn all the same.
    return min(bottom, least), max(top, most)
