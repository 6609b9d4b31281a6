"""Where BatchNorm over a cohort can be had: a simulation in which all clients take one step at once."""

from __future__ import annotations

from spreadout.core.errors import UserError
from spreadout.federated.federation import Federation
from spreadout.models.nn.cohort_norm import statistics_in
from spreadout.runtime.simulator.executor import Simulator
from spreadout.runtime.simulator.shared_encoder import can_share
from spreadout.runtime.simulator.staging import is_fusable


def refuse_cohort_statistics(f: Federation) -> None:
    """Raise an error where a norm over the whole cohort would be none, and say what is in its way."""
    if not statistics_in(f.model.encoder):
        return
    if f.executor.clients_elsewhere:
        why = "real clients would have to send sums of every layer's outputs, one layer after another"
    elif type(f.executor) is not Simulator:
        why = "it needs the whole cohort in one process of the simulator"
    elif f.clients.privacy is not None:
        why = "statistics of a cohort's examples have no noise; leave out [privacy]"
    elif f.clients.schedule.steps != 1:
        why = "after a first step clients have weights of their own; set clients.local_steps = 1"
    elif not is_fusable(f, 1):
        why = (
            "something looks at each client's own change: leave out drift corrections, robust rules, "
            "norm limits and adaptive clients.optimizer"
        )
    elif not can_share(f):
        why = f"the loss of method.name = {f.method.name!r} may read the encoder's weights"
    else:
        return
    raise UserError(f'model.norm = "batch": {why}; model.norm = "group" works everywhere')
