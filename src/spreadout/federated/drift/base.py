"""The seam in local training: what a correction of client drift may add to a client's objective.

Between the server's model w⁰ and a client's own optimum, local training drifts towards the latter. The
corrections here add to client i's objective a pull back to where the round began, and a linear term that
is the same in all of its local steps:

    f_i(w) + μ/2 ‖w − w⁰‖² + ⟨offset_i, w⟩

The offset is made of two things: the state of the client, which stays with it from round to round, and
the server's control, which is the mean of all clients' states (weighted as their updates are). After a
round the client's state moves by `state_change`. That is a function of the client's update, so the
server works it out for itself: nothing more than the update travels up, and nobody can
lie about it.

The pull is on all that a client trains. The offset is on the dense part, and on tables that every client
holds whole, such as FedAvg's class table. A row that only some clients hold has none: the control would
be a mean over clients of which some do not hold the row.
"""

from __future__ import annotations

from abc import ABC
from typing import ClassVar, TypeVar

from torch import Tensor

from spreadout.core.errors import UserError
from spreadout.core.optimizers import Optimizer
from spreadout.core.registry import NamedSection, Registry

DRIFT_CORRECTIONS: Registry[type[DriftCorrection]] = Registry("drift correction")
CorrectionT = TypeVar("CorrectionT", bound="type[DriftCorrection]")


def register_drift_correction(correction: CorrectionT) -> CorrectionT:
    """A class decorator: configs then know the correction by its `name`.

    >>> import spreadout as so
    >>> @so.register_drift_correction
    ... class Nothing(so.DriftCorrection):
    ...     name: str = "nothing"
    >>> so.Experiment.of({"clients": {"drift": "nothing"}}).clients.drift
    Nothing(name='nothing')
    """
    for hook in ("offset", "state_change") if correction.keeps_state else ():
        if getattr(correction, hook) is getattr(DriftCorrection, hook):
            raise UserError(
                f"drift correction {correction.__qualname__}: keeps_state, but has no {hook}"
            )
    correction.register()
    return correction


class DriftCorrection(NamedSection, ABC):
    """What is added to every client's local objective. All hooks are functions of single tensors.

    A hook sees one tensor of the model: a client's own, or those of k clients with a leading k.

    >>> import spreadout as so
    >>> @so.register_drift_correction
    ... class Leash(so.DriftCorrection):
    ...     name: str = "leash"
    ...     mu: float = 0.1
    ...
    ...     @property
    ...     def pull(self):
    ...         return self.mu
    >>> so.run(so.Experiment(rounds=2, clients={"drift": "leash", "local_steps": 2})).summary["rounds"]
    2
    """

    registry: ClassVar[Registry[type[DriftCorrection]]] = DRIFT_CORRECTIONS
    keeps_state: ClassVar[bool] = False  # whether anything stays with a client
    sends_control: ClassVar[bool] = False  # whether clients are sent the server's control

    @property
    def pull(self) -> float:
        """μ: how strongly a client is pulled back to where the round began."""
        return 0.0

    def offset(self, state: Tensor, control: Tensor) -> Tensor:
        """offset_i, from the client's state and the server's control (zero where none is sent)."""
        raise NotImplementedError  # of those that keep a state

    def state_change(self, control: Tensor, change: Tensor, travelled: Tensor) -> Tensor:
        """How far the client's state moves after a round.

        change: local − sent. travelled: Σ of the rates of the steps it took, K·η.
        """
        raise NotImplementedError  # of those that keep a state

    def shift(self, value: Tensor, control: Tensor) -> Tensor:
        """The server's model after the merge, given its new control; as it is by default."""
        return value

    def validate_optimizers(self, clients: Optimizer, server: Optimizer) -> str | None:
        """Why it cannot go with these optimisers, as `key = value: reason`; None if it can."""
        return None
