"""SCAFFOLD (Karimireddy et al., ICML 2020): control variates take clients' differences out of a step.

Algorithm 1                                           here
7   send x, c                                         sends_control
10  y_i ← y_i − η (g_i(y_i) − c_i + c)                offset
12  c_i⁺ ← c_i − c + (x − y_i)/(Kη)   (option II)     state_change
16  x ← x + η_g · mean of y_i − x                     the merge and [server]
17  c ← c + |S|/N · mean of c_i⁺ − c_i                the control is the mean of all clients' states

The paper sends c_i⁺ − c_i up as well. With option II it is a function of the update, which the server
has, so here it does not travel.
"""

from __future__ import annotations

from typing import ClassVar, Literal

from torch import Tensor

from spreadout.core.optimizers import Optimizer
from spreadout.federated.drift.base import DriftCorrection, register_drift_correction


@register_drift_correction
class Scaffold(DriftCorrection):
    """A client's state is its control variate c_i, the server's control is c."""

    keeps_state: ClassVar[bool] = True
    sends_control: ClassVar[bool] = True

    name: Literal["scaffold"] = "scaffold"

    def offset(self, state: Tensor, control: Tensor) -> Tensor:
        return control - state

    def state_change(self, control: Tensor, change: Tensor, travelled: Tensor) -> Tensor:
        return -control - change / travelled

    def validate_optimizers(self, clients: Optimizer, server: Optimizer) -> str | None:
        if clients.is_plain:
            return None
        return (
            f"clients.drift = 'scaffold': takes plain SGD on clients, not clients.optimizer = "
            f"{clients.optimizer!r} with momentum {clients.momentum:g}; a step must be −lr · gradient"
        )
