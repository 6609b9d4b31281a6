"""FedProx (Li et al., MLSys 2020): a proximal term keeps local training near the server's model.

Algorithm 2, line 5: client k minimises h_k(w; wᵗ) = F_k(w) + μ/2 ‖w − wᵗ‖².
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from spreadout.federated.drift.base import DriftCorrection, register_drift_correction


@register_drift_correction
class FedProx(DriftCorrection):
    """Nothing is kept and nothing more is sent."""

    name: Literal["fedprox"] = "fedprox"
    mu: float = Field(0.01, gt=0)  # μ

    @property
    def pull(self) -> float:
        return self.mu
