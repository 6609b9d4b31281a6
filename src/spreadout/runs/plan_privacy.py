"""How much noise a budget needs, and what it leaves of the signal: before anything is trained."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import torch
from scipy.stats import binom

from spreadout.config.experiment import Experiment
from spreadout.config.sound import prepared
from spreadout.core.rows import Update, sub_model
from spreadout.core.state import ServerState
from spreadout.federated.cohort import draw_cohort
from spreadout.federated.drift.control import sent_control
from spreadout.federated.round import run_setup
from spreadout.privacy.accounting import least_noise
from spreadout.privacy.sampled import Accounted, least_poisson_noise, poisson_epsilon
from spreadout.runs.build import build_federation, pick_device
from spreadout.runtime.sequential import train_client

MOST_LOOKED_AT = 100  # clients whose updates are measured for a clip


@dataclass(frozen=True)
class Setting:
    """Who takes part, how often, and how much is sent."""

    rounds: int
    cohort: int  # clients in a round
    population: int
    parameters: int  # numbers in an update
    clip: float | None = None  # the median length of an update, where it was measured


@dataclass(frozen=True)
class PrivacyPlan:
    """What one kind of noise costs."""

    model: Literal["local", "central"]
    noise: float  # in clips: on every update (local), on the sum (central)
    releases: int  # noised updates of one client (local), rounds (central)
    on_the_mean: float  # deviation of the noise on the mean update, in clips
    signal_to_noise: float  # at best: all updates alike, and as long as the clip
    epsilon: float
    also: float | None  # ε by a second accountant


def plans(setting: Setting, epsilon: float, delta: float, *, central: bool) -> list[PrivacyPlan]:
    """For a budget: noise on the client, and noise on the server over Poisson cohorts."""
    s = setting
    rate = s.cohort / s.population
    # The most rounds that some client is drawn in: all but a hundredth of runs have nobody above it.
    most = int(min(s.rounds, binom.ppf(1 - 0.01 / s.population, s.rounds, rate)))
    local = least_noise(epsilon, most, delta)
    found = [_plan("local", local, most, local / math.sqrt(s.cohort), s, epsilon, None)]
    if central:
        noise = least_poisson_noise(epsilon, rate, s.rounds, delta)
        spent: Accounted = poisson_epsilon(noise, rate, s.rounds, delta)
        found.append(_plan("central", noise, s.rounds, noise / s.cohort, s, spent.epsilon, spent.rdp))
    return found


def _plan(
    model: Literal["local", "central"],
    noise: float,
    releases: int,
    on_the_mean: float,
    setting: Setting,
    epsilon: float,
    also: float | None,
) -> PrivacyPlan:
    ratio = 1 / (on_the_mean * math.sqrt(setting.parameters)) if on_the_mean else math.inf
    return PrivacyPlan(model, noise, releases, on_the_mean, ratio, epsilon, also)


def measured(config: str, overrides: Sequence[str]) -> Setting:
    """The setting of a config, with the updates of its first round as they are without noise."""
    experiment, splits = prepared(Experiment.load(config, overrides))
    f = build_federation(experiment.model_copy(update={"privacy": None}), splits, pick_device("cpu"))
    state = ServerState(0, *f.model.initial(f.seed, f.device))
    run_setup(f, state)
    cohort = draw_cohort(f, 0)
    control, updates = sent_control(f, state), []
    for i, client in enumerate(cohort.clients[:MOST_LOOKED_AT].tolist()):
        request = {name: rows[i] for name, rows in cohort.requests.items()}
        sent = sub_model(0, state.dense, state.tables, request, control)
        update, _ = train_client(replace(f, data=f.data.view(client)), sent, {})
        updates += [update] if update.dense or update.tables else []
    lengths = torch.tensor([_flat(update).norm() for update in updates])
    sizes = torch.tensor([_flat(update).numel() for update in updates])
    clip = float(lengths.median()) if len(lengths) else None
    parameters = int(sizes.median()) if len(sizes) else 1
    return Setting(f.rounds, f.server.per_round, f.data.clients, parameters, clip)


def _flat(update: Update) -> torch.Tensor:
    values = [*update.dense.values(), *(rows.values for rows in update.tables.values())]
    return torch.cat([value.double().flatten() for value in values])
