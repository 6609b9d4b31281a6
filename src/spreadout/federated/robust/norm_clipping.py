"""Norm clipping: no update is longer than most updates are (Sun et al. 2019, with a running limit).

The dense part, the rows of each table together, and every single row are scaled down to their limits
(limits.py). An update that is scaled still counts. So a hostile client does what an honest one could
do, in another direction, and no more. Each update is limited by itself: nothing is held.
"""

from __future__ import annotations

from typing import ClassVar, Literal

from spreadout.federated.robust.base import RobustRule, register_robust_rule


@register_robust_rule
class NormClipping(RobustRule):
    """The default of deployments."""

    holds_updates: ClassVar[bool] = False
    limits_updates: ClassVar[bool] = True

    name: Literal["norm_clipping"] = "norm_clipping"
