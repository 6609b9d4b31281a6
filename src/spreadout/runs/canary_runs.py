"""Canaries in a whole training of a config: what one run of it shows of ε.

Local noise: canary clients that send one of two opposite updates, in every round the same, noised as by
real nodes. Noise on the server: canary clients that each move one number of the model by the clip, in a
training of nobody else. (What others add is no secret to this attacker.) The server steps plainly at
rate 1, so that the model's way is the sum of what was released; he reads the number at its end. Noise on
examples: canary examples of one client, each with a gradient along a number of its own, and an attacker
who adds up the gradients that the client steps by.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from spreadout.core.errors import UserError
from spreadout.core.merging import RowSum
from spreadout.core.optimizers import Optimizer
from spreadout.core.state import ServerState
from spreadout.core.tables import local_of
from spreadout.core.types import Params, Tensors
from spreadout.federated import central
from spreadout.federated.aggregate import Aggregate, ServerOptimizers
from spreadout.federated.example_noise import example_noise
from spreadout.federated.federation import Federation
from spreadout.federated.schedule import plan
from spreadout.privacy.accounting import epsilon_of
from spreadout.privacy.canary import Releases
from spreadout.privacy.central import Rounds
from spreadout.privacy.mechanism import GaussianMechanism, clipped
from spreadout.privacy.one_run_audit import OneRun, audited

MOST_ROUNDS = 4  # of canaries with local noise: noise of real nodes takes its time
FAR = 100.0  # canaries are so many clips long: clipping is part of the claim
BATCHES = 4  # canary examples, in batches: fewer are drawn more often, and more make a sharper guess


def of_clients(mechanism: GaussianMechanism, release: Releases, canaries: int, rounds: int) -> OneRun:
    """Clients that send one of two opposite updates in the first rounds of a run."""
    rounds = min(rounds, MOST_ROUNDS)
    far = FAR * mechanism.clip * torch.tensor([3.0, -4.0, 12.0])
    there = np.random.default_rng().integers(0, 2, canaries).astype(bool)
    scores = np.zeros(canaries)
    for i, sign in enumerate(np.where(there, 1.0, -1.0).tolist()):
        for _ in range(rounds):
            scores[i] += float(release(Params({"w": sign * far}, {})).dense["w"] @ far)
    claimed = epsilon_of(mechanism.noise, rounds, mechanism.delta)
    return audited(scores, there, rounds=rounds, claimed=claimed, delta=mechanism.delta)


def of_sums(federation: Federation, canaries: int) -> OneRun:
    """Canaries in all rounds of a run with noise on the server."""
    mechanism = federation.clients.privacy
    assert mechanism is not None
    drawn = central.rounds_of(federation)
    if drawn.drawn == "fixed-size":
        raise UserError('clients.selection = "uniform": canaries come by themselves; take "poisson"')
    plain = {name: Optimizer() for name in federation.server.optimizers.tables}
    server = replace(federation.server, optimizers=ServerOptimizers(Optimizer(), plain), decay="none")
    f = replace(federation, server=server)
    state = ServerState(0, *f.model.initial(f.seed, f.device))
    start = _flat(f, state)
    free = _trained(f, state, len(start))
    canaries = min(canaries, len(free))
    draw = np.random.default_rng(f.seed)
    places = draw.choice(free, canaries, replace=False)
    there = draw.integers(0, 2, canaries).astype(bool)
    for _ in range(f.rounds):
        come = places[there & (draw.random(canaries) < drawn.rate)]
        clip = central.clip_of(state, mechanism)
        far = Params({"w": torch.tensor([FAR * clip])}, {})
        sums = torch.zeros_like(start)
        sums[come] = clipped(far, clip)[0].dense["w"]
        central.step_(f, state, _aggregate(state, sums, len(come), FAR * clip))
        state.round += 1
    scores = (_flat(f, state) - start)[places].double().numpy()
    claimed = drawn.spent(mechanism.noise, f.rounds, mechanism.delta).epsilon
    return audited(scores, there, rounds=f.rounds, claimed=claimed, delta=mechanism.delta)


def of_examples(federation: Federation, canaries: int) -> OneRun:
    """Canary examples of a client that takes part in all rounds of a run with noise on examples."""
    mechanism, schedule = federation.clients.privacy, federation.clients.schedule
    assert mechanism is not None
    assert schedule.batch is not None
    assert schedule.steps is not None
    n = min(canaries, BATCHES * schedule.batch)
    there = np.random.default_rng().integers(0, 2, n).astype(bool)
    gradients = FAR * mechanism.clip * torch.diag(torch.from_numpy(there).float())  # (n, n)
    total = torch.zeros(n)
    for round in range(federation.rounds):
        noise = example_noise(federation, torch.zeros(1, dtype=torch.int64), round)
        assert noise is not None
        made = plan(schedule, np.array([n]), np.array([0]), seed=federation.seed, round=round)
        for step in range(schedule.steps):
            drawn = {"w": gradients[made.index[0, step]]}  # (B, n)
            total += noise.noised_sums(drawn, made.mask[:, step], step)["w"][0]
    drawn_as = Rounds("poisson", min(schedule.batch, n), n)
    steps = schedule.steps * federation.rounds
    claimed = drawn_as.spent(mechanism.noise, steps, mechanism.delta).epsilon
    scores = total.double().numpy()
    return audited(scores, there, rounds=federation.rounds, claimed=claimed, delta=mechanism.delta)


def _trained(f: Federation, state: ServerState, count: int) -> np.ndarray:
    """Which numbers of a model training may move."""
    moves = np.ones(count, dtype=bool)
    at = 0
    for name, value in _parts(state).items():
        fixed = name in f.clients.training.fixed or name in f.model.constant_dense
        moves[at : at + value.numel()] = not fixed
        at += value.numel()
    return np.flatnonzero(moves)


def _parts(state: ServerState) -> Tensors:
    return {**state.dense, **{name: local_of(table) for name, table in state.tables.items()}}


def _flat(f: Federation, state: ServerState) -> Tensor:
    """All numbers of the model, rows as they add up."""
    central.settle_all_(f, state)
    tables = [central.raw_rows(f, state, name).flatten() for name in state.tables]
    return torch.cat([*(value.flatten() for value in state.dense.values()), *tables]).cpu()


def _aggregate(state: ServerState, sums: Tensor, clients: int, length: float) -> Aggregate:
    """What canaries came to, as executors would add it up."""
    parts = _parts(state)
    split = torch.split(sums, [value.numel() for value in parts.values()])
    shaped = {n: one.view(v.shape).to(v) for (n, v), one in zip(parts.items(), split, strict=True)}
    rows = {}
    for name in state.tables:
        ids = shaped[name].any(dim=-1).nonzero()[:, 0]
        ones = torch.ones(len(ids))
        rows[name] = RowSum(ids, shaped[name][ids], ones, ones)
    lengths = {central.UPDATE: torch.full((clients,), length, dtype=torch.float64)}
    dense = {name: shaped[name] for name in state.dense}
    return Aggregate(dense, float(clients), rows, clients, clients, lengths=lengths)
