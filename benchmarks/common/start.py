"""A federation and the state it starts from."""

from __future__ import annotations

import torch

from spreadout.config.experiment import Experiment
from spreadout.config.sound import data_of
from spreadout.core.state import ServerState
from spreadout.data.splits import Splits
from spreadout.federated.federation import Federation
from spreadout.runs.build import build_federation


def start(
    experiment: Experiment, device: torch.device, data: Splits | None = None
) -> tuple[Federation, ServerState]:
    """As an experiment describes it, on its own data or on what is given."""
    held = data_of(experiment) if data is None else data
    federation = build_federation(experiment, held, device)
    return federation, ServerState(0, *federation.model.initial(experiment.seed, device))
