"""One round of training, from the choice of clients to the server's own step.

select clients → each requests rows → server sends SubModels → local training
               → updates are checked → merged → server step on the table
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor

from spreadout.core.merging import RowSum
from spreadout.core.state import ServerState
from spreadout.core.traffic import Traffic
from spreadout.federated import central
from spreadout.federated.aggregate import apply_, total
from spreadout.federated.cohort import Cohort
from spreadout.federated.drift.control import advance_control_
from spreadout.federated.federation import Federation
from spreadout.federated.robust import merging as robust
from spreadout.federated.setup import server_setup
from spreadout.federated.shared_noise import noised_sum
from spreadout.methods.context import ServerContext


@dataclass(frozen=True)
class RoundReport:
    """What happened in one round."""

    round: int
    clients: int  # selected
    accepted: int
    loss_sum: float | Tensor  # over the accepted; a tensor while the device still computes it
    refused: Counter[str]
    traffic: Traffic
    cohort: Cohort  # who was selected, and the rows they requested

    @property
    def loss(self) -> float:
        """The mean over the accepted clients; reading it may wait for the device."""
        return float(self.loss_sum) / self.accepted if self.accepted else float("nan")


@contextmanager
def repeatable(device: torch.device) -> Iterator[None]:
    """Same bits every time: by default torch's CPU scatter adds in the order of its threads.

    On CUDA the operations used here sort before they add, so they are repeatable anyway.
    """
    before = torch.are_deterministic_algorithms_enabled()
    filled = torch.utils.deterministic.fill_uninitialized_memory  # type: ignore[attr-defined]
    _be_deterministic(before or device.type == "cpu")
    # Nothing here reads memory it has not written. Filling it first would cost a sixth of the time.
    torch.utils.deterministic.fill_uninitialized_memory = before and filled  # type: ignore[attr-defined]
    try:
        yield
    finally:
        _be_deterministic(before)
        torch.utils.deterministic.fill_uninitialized_memory = filled  # type: ignore[attr-defined]


def _be_deterministic(on: bool) -> None:
    """As `torch.use_deterministic_algorithms`, which would first load torch's compiler (a second)."""
    torch._C._set_deterministic_algorithms(on)


def run_setup(federation: Federation, state: ServerState) -> None:
    """What clients and server do once, before the first round."""
    if not state.setup_done:
        with repeatable(federation.device):
            server_setup(federation, state)
        state.setup_done = True


def run_round(federation: Federation, state: ServerState) -> RoundReport:
    """Advance the server's state by one round. Every draw depends on (seed, round) alone."""
    run_setup(federation, state)
    with repeatable(federation.device):
        return _run_round(federation, state)


def _run_round(federation: Federation, state: ServerState) -> RoundReport:
    f = federation
    cohort = f.executor.cohort(f, state)
    robust.refuse_too_many(f, state, cohort)
    if robust.needs_first_limits(f, state) and not f.executor.clients_elsewhere:
        # Trained twice: lengths are known only after the first time. Real clients are asked once.
        robust.set_first_limits(f, state, total(f.executor.train(f, state, cohort)).lengths)
    if f.noises_sums:
        central.settle_requested_(f, state, cohort)
    aggregate = total(f.executor.train(f, state, cohort))
    if f.noises_sums:  # a round with nobody releases noise all the same
        central.step_(f, state, aggregate)
        if f.method.steps_on_server:
            central.settle_all_(f, state)
            _server_step(f, state, central.every_row(state))
    elif aggregate.clients:  # a round with no accepted update leaves the model unchanged
        if f.shares_noise and not f.executor.clients_elsewhere:
            aggregate = noised_sum(f, state.round, aggregate)
        dense, rows = robust.merged(f, state, aggregate)
        for name in f.model.constant_dense:  # whatever clients say of it
            dense.pop(name, None)
        apply_(state, dense, rows, f.rules, f.optimizers_at(state.round), f.model.sphere)
        if moved := aggregate.statistics:
            torch._foreach_copy_([state.dense[name] for name in moved], list(moved.values()))
        advance_control_(f, state, aggregate)
        _server_step(f, state, aggregate.rows)
    state.keep_clients_(aggregate.client_states)
    if not f.method.is_centralized:  # data in one place crosses no network
        state.traffic += aggregate.traffic
    state.refused += aggregate.refused
    if f.clients.training.fixed:  # what never changes is sent to a client once
        state.records.sent_fixed_(cohort.clients, f.data.clients)
    if f.clients.privacy is not None and not f.noises_sums:
        state.records.released_(cohort.clients, f.data.clients)
    state.round += 1
    return RoundReport(
        state.round,
        len(cohort.clients),
        aggregate.clients,
        aggregate.loss_sum,
        aggregate.refused,
        aggregate.traffic,
        cohort,
    )


def _server_step(f: Federation, state: ServerState, touched: Mapping[str, RowSum]) -> None:
    training = f.training_at(state.round)
    rates = {name: optimizer.lr for name, optimizer in training.rows.items()}
    factor = f.rate_factor(state.round)
    context = ServerContext(f.seed, f.noise_seed, state.round, rates, touched, f.bf16, factor)
    f.method.server_step(state, f.model, context)
