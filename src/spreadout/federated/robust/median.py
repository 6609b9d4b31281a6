"""The coordinate-wise median (Yin et al., ICML 2018), weighted.

In every coordinate the value with half of the weight on either side; where exactly half lies below, the
middle between two values, so that equal weights give the usual median.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from spreadout.federated.robust.base import register_robust_rule
from spreadout.federated.robust.groups import Groups, Ordered
from spreadout.federated.robust.odd_one_out import OddOneOut

TIE = 1e-9  # shares of weight that differ by less are the same


@register_robust_rule
class Median(OddOneOut):
    """Half of the clients must be hostile to move it anywhere."""

    name: Literal["median"] = "median"

    def centre(self, groups: Groups) -> Tensor:
        return torch.cat([_medians(columns) for columns in groups.ordered()], 1)


def _medians(columns: Ordered) -> Tensor:
    """(g, c)"""
    reached, groups = columns.reached(), columns.groups

    def at(below: Tensor) -> Tensor:
        """The first value of each group that is not below: (g, c)."""
        passed = groups.sums(below.double()).long()  # entries before it
        place = groups.first[:, None] + passed.minimum(groups.lengths[:, None] - 1)
        return columns.values.gather(0, place)

    return (at(reached < 0.5 - TIE) + at(reached <= 0.5 + TIE)) / 2
