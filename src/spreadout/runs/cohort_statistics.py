"""Where BatchNorm over a cohort can be had: a simulation in which all clients take one step at once."""

from __future__ import annotations

from torch import nn

from spreadout.config.experiment import Experiment
from spreadout.core.errors import UserError
from spreadout.federated.federation import Federation
from spreadout.models.nn.cohort_norm import statistics_in
from spreadout.runtime.simulator.executor import Simulator
from spreadout.runtime.simulator.shared_encoder import can_share
from spreadout.runtime.simulator.staging import is_fusable

ELSEWHERE = "real clients would have to send sums of every layer's outputs, one layer after another"


def refuse_cohort_statistics(f: Federation) -> None:
    """Raise an error where a norm over the whole cohort would be none, and say what is in its way."""
    if not f.model.cohort_statistics:
        return
    if type(f.executor) is not Simulator:
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
    raise _refused(why)


def refuse_where_deployed(e: Experiment, encoder: nn.Module | None = None) -> None:
    """The same before any client is asked for. encoder: one that is built, or was given in Python."""
    if e.model.norm == "batch" or (encoder is not None and statistics_in(encoder)):
        raise _refused(ELSEWHERE)


def _refused(why: str) -> UserError:
    return UserError(f'model.norm = "batch": {why}; model.norm = "group" works everywhere')
