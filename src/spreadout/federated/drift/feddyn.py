"""FedDyn (Acar et al., ICLR 2021): a dynamic regulariser whose local optima agree with the global one.

Algorithm 1                                           here
    θ_k = argmin L_k(θ) − ⟨∇L_k(θ_kᵗ⁻¹), θ⟩ + α/2 ‖θ − θᵗ⁻¹‖²    offset and pull
    ∇L_k(θ_kᵗ) = ∇L_k(θ_kᵗ⁻¹) − α (θ_kᵗ − θᵗ⁻¹)                   state_change
    hᵗ = hᵗ⁻¹ − α/m Σ_{k ∈ P_t} (θ_kᵗ − θᵗ⁻¹)                      the mean of all clients' states
    θᵗ = mean of θ_kᵗ − hᵗ/α                                       shift

The argmin is as many local steps as the clients take.
"""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field
from torch import Tensor

from spreadout.core.optimizers import Optimizer
from spreadout.federated.drift.base import DriftCorrection, register_drift_correction


@register_drift_correction
class FedDyn(DriftCorrection):
    """A client's state is its last local gradient; nothing more than FedAvg's messages travels."""

    keeps_state: ClassVar[bool] = True

    name: Literal["feddyn"] = "feddyn"
    alpha: float = Field(0.1, gt=0)  # α

    @property
    def pull(self) -> float:
        return self.alpha

    def offset(self, state: Tensor, control: Tensor) -> Tensor:
        return -state

    def state_change(self, control: Tensor, change: Tensor, travelled: Tensor) -> Tensor:
        return -self.alpha * change

    def shift(self, value: Tensor, control: Tensor) -> Tensor:
        return value - control / self.alpha

    def validate_optimizers(self, clients: Optimizer, server: Optimizer) -> str | None:
        if server.is_plain and server.lr == 1:
            return None
        return (
            "clients.drift = 'feddyn': sets the server's model itself; take server.optimizer = \"sgd\" "
            "with lr = 1 and no momentum"
        )
