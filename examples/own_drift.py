"""A correction of client drift of one's own: SCAFFOLD with control variates that change slowly.

SCAFFOLD takes a client's mean gradient of the last round as its control variate. Here it is a running
mean over rounds, which is less noisy where clients take few steps.
`spreadout run CONFIG --import own_drift clients.drift=slow-scaffold` takes it from the command line.
"""

from typing import ClassVar, Literal

from pydantic import Field
from torch import Tensor

import spreadout as so


@so.register_drift_correction
class SlowScaffold(so.DriftCorrection):
    """A client's state is c_i, the server's control is c, the mean of all c_i."""

    keeps_state: ClassVar[bool] = True  # c_i stays with the client
    sends_control: ClassVar[bool] = True  # c is sent to it
    name: Literal["slow-scaffold"] = "slow-scaffold"
    share: float = Field(0.5, gt=0, le=1)  # of the new gradient in the running mean; 1: SCAFFOLD

    def offset(self, state: Tensor, control: Tensor) -> Tensor:
        """What is added to each local gradient."""
        return control - state

    def state_change(self, control: Tensor, change: Tensor, travelled: Tensor) -> Tensor:
        """−change / travelled is the mean of g − c_i + c over the local steps."""
        return self.share * (-control - change / travelled)


if __name__ == "__main__":
    values = {
        "rounds": 10,
        "data": {"partition": {"name": "dirichlet", "clients": 10, "alpha": 0.1}},
        "method": {"name": "fedavg"},
        "clients": {"lr": 0.03, "local_epochs": 2},
    }
    for drift in ("slow-scaffold", "scaffold"):
        result = so.run(so.Experiment.of(values, overrides=[f"clients.drift={drift}"]))
        print(f"{drift}: P@1 {result.metrics['P@1']:.1f}")
