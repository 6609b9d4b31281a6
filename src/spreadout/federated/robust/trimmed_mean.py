"""The coordinate-wise trimmed mean (Yin et al., ICML 2018), weighted.

In every coordinate the lowest and the highest `trim` of the weight are left out; of a value on the
edge, as much as lies beyond it. With k equal weights and trim = b/k, the b lowest and the b highest.
"""

from __future__ import annotations

from typing import Literal

import torch
from pydantic import Field
from torch import Tensor

from spreadout.federated.robust.base import register_robust_rule
from spreadout.federated.robust.groups import Groups, Ordered
from spreadout.federated.robust.odd_one_out import OddOneOut


@register_robust_rule
class TrimmedMean(OddOneOut):
    """`trim` must be at least the share of hostile clients."""

    name: Literal["trimmed_mean"] = "trimmed_mean"
    trim: float = Field(0.2, gt=0, lt=0.5)

    def centre(self, groups: Groups) -> Tensor:
        return torch.cat([self._mean(columns) for columns in groups.ordered()], 1)

    def _mean(self, columns: Ordered) -> Tensor:
        groups, high = columns.groups, columns.reached()
        share = groups.sums(columns.weight).clamp_min(1e-300)[groups.group]
        low = high - columns.weight / share
        kept = (high.clamp_max(1 - self.trim) - low.clamp_min(self.trim)).clamp_min(0)  # (n, c)
        total = groups.sums(kept).clamp_min(1e-300)
        return (groups.sums(kept * columns.values) / total).to(columns.values.dtype)
