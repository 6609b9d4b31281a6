"""The geometric median by smoothed Weiszfeld steps (RFA: Pillutla, Kakade and Harchaoui, 2022).

Algorithm 2: v minimises Σ ω_i ‖v − x_i‖. Step by step, with ν against division by zero,

    β_i = ω_i / max(ν, ‖v − x_i‖)        v ← Σ β_i x_i / Σ β_i

It starts at 0, the model that was sent: from there a client pulls with its weight, however far it is.
The whole dense part is one vector, and so is each row.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field
from torch import Tensor

from spreadout.federated.robust.base import register_robust_rule
from spreadout.federated.robust.groups import Groups
from spreadout.federated.robust.odd_one_out import OddOneOut


@register_robust_rule
class GeometricMedian(OddOneOut):
    """Half of the clients must be hostile to move it anywhere."""

    name: Literal["geometric_median"] = "geometric_median"
    iterations: int = Field(8, ge=1)
    smoothing: float = Field(1e-6, gt=0)  # ν

    def centre(self, groups: Groups) -> Tensor:
        centre = groups.values.new_zeros(len(groups.lengths), groups.values.shape[1])
        for _ in range(self.iterations):
            centre = groups.mean(groups.weight / groups.distances(centre).clamp_min(self.smoothing))
        return centre
