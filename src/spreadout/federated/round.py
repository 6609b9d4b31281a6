"""One round of training, from the choice of clients to the server's own step.

select clients → each asks for rows → server sends SubModels → local training
               → updates are checked → merged → server step on the table
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Protocol

import torch
from torch import Tensor

from spreadout.core.merging import MergeRules
from spreadout.core.ragged import Ragged
from spreadout.core.state import ServerState
from spreadout.core.traffic import Traffic
from spreadout.core.types import Batch, Params, RowInfo, Tensors
from spreadout.data.dataset import FederatedDataset
from spreadout.federated.aggregate import Aggregate, merge, total
from spreadout.federated.augment import Augment
from spreadout.federated.batches import cohort_batches
from spreadout.federated.local import LocalTraining
from spreadout.federated.sampling import Selection, sample_clients
from spreadout.federated.schedule import Decay, Plan, Schedule, plan, rate_factor
from spreadout.federated.server import ServerOptimizers, apply_
from spreadout.methods.base import Method, ServerContext, SetupContext, SetupMessage
from spreadout.models.embedding import EmbeddingModel
from spreadout.privacy.label_sets import collection_key
from spreadout.privacy.mechanism import GaussianMechanism


@dataclass(frozen=True)
class Cohort:
    """The clients of one round and the rows each of them asked for."""

    clients: Tensor  # (k,) int64
    requests: dict[str, Ragged]  # k lists of row ids per table
    plan: Plan | None = None  # of their steps, where what they ask for follows from it


class Executor(Protocol):
    """Where clients train. Yields sums over parts of the cohort, in any grouping.

    One whose clients are elsewhere also has `cohort(federation, state)`, which asks them what rows they
    want, and `told(federation)`, what they say before the first round.
    """

    def __call__(
        self, federation: Federation, state: ServerState, cohort: Cohort
    ) -> Iterable[Aggregate]: ...


@dataclass(frozen=True)
class Federation:
    """Everything about a run that does not change from round to round."""

    data: FederatedDataset
    model: EmbeddingModel
    method: Method
    schedule: Schedule
    training: LocalTraining
    optimizers: ServerOptimizers
    executor: Executor
    device: torch.device
    seed: int = 0
    noise_seed: int | None = None  # of the server's own noise, where it must not follow from `seed`
    selection: Selection = "uniform"
    per_round: int = 1
    max_norm: float | None = None
    privacy: GaussianMechanism | None = None
    decay: Decay = "none"  # of the clients' rates, over `rounds`
    factor: float = 1.0  # what the decay leaves of them in the present round
    rounds: int = 1
    augment: Augment = field(default_factory=Augment)
    bf16: bool = False
    requests_seen: bool = False  # of features, only those of the examples a client is about to see
    activations: int = 0  # numbers the encoder's layers put out for one example

    @property
    def present_training(self) -> LocalTraining:
        """How clients train in the present round."""
        return self.training.scaled(self.factor)

    @property
    def server_noise_seed(self) -> int:
        """What the server's own noise follows from."""
        return self.seed if self.noise_seed is None else self.noise_seed

    @property
    def rules(self) -> MergeRules:
        return self.method.rules()

    def batches(self, clients: Tensor, plan: Plan, ids: Tensors, round: int) -> Tensors:
        """What a cohort trains on, step by step: (k, S, B, …) per column."""
        numbers = self.data.number_of(clients)
        corrupt = partial(self.augment, clients=numbers, seed=self.seed, round=round)
        return cohort_batches(
            self.data, clients, plan, ids, self.device, corrupt if self.augment else None
        )

    def objective(self) -> Callable[[Params, Batch, RowInfo], Tensor]:
        """One client's loss on one batch, under the run's precision."""

        def loss(params: Params, batch: Batch, info: RowInfo) -> Tensor:
            with torch.autocast(self.device.type, torch.bfloat16, enabled=self.bf16):
                return self.method.loss(self.model, params, batch, info)

        return loss


@dataclass(frozen=True)
class RoundReport:
    """What happened in one round."""

    round: int
    clients: int  # asked
    accepted: int
    loss_sum: float | Tensor  # over the accepted; a tensor where a device is still at work on it
    refused: Counter[str]
    traffic: Traffic
    cohort: Cohort  # who was asked, and what for

    @property
    def loss(self) -> float:
        """The mean over the accepted clients; looking at it may wait for a device."""
        return float(self.loss_sum) / self.accepted if self.accepted else float("nan")


@contextmanager
def repeatable(device: torch.device) -> Iterator[None]:
    """Same bits every time: torch's CPU scatter adds in whatever order its threads come, unless told.

    On CUDA the operations used here sort before they add, and repeat themselves as they are.
    """
    before = torch.are_deterministic_algorithms_enabled()
    filled = torch.utils.deterministic.fill_uninitialized_memory  # type: ignore[attr-defined]
    _be_deterministic(before or device.type == "cpu")
    # Nothing here reads memory it has not written: filling it first would cost a sixth of the time.
    torch.utils.deterministic.fill_uninitialized_memory = before and filled  # type: ignore[attr-defined]
    try:
        yield
    finally:
        _be_deterministic(before)
        torch.utils.deterministic.fill_uninitialized_memory = filled  # type: ignore[attr-defined]


def _be_deterministic(on: bool) -> None:
    """As torch's own, which would first load its compiler: a second for nothing."""
    torch._C._set_deterministic_algorithms(on)


def run_setup(federation: Federation, state: ServerState) -> None:
    """What a method does before the first round, once."""
    if state.setup_done:
        return
    f = federation
    heard = getattr(f.executor, "told", None)
    told = simulated_setup_messages(f) if heard is None else heard(f)
    told_back = f.data.clients if heard is None else 0  # those elsewhere count what they are sent
    with repeatable(f.device):
        state.traffic += f.method.server_setup(
            SetupContext(told, told_back, f.server_noise_seed), state, f.model
        )
    state.setup_done = True


def simulated_setup_messages(federation: Federation) -> Iterator[SetupMessage]:
    """What the clients of a simulation say before the first round."""
    f = federation
    return f.method.client_setup(f.data, key=collection_key(f.seed), seed=f.seed)


def run_round(federation: Federation, state: ServerState) -> RoundReport:
    """Advance the server's state by one round. Every draw depends on (seed, round) alone."""
    run_setup(federation, state)
    with repeatable(federation.device):
        return _run_round(federation, state)


def draw_cohort(federation: Federation, round: int) -> Cohort:
    """Who takes part in a round, and what they ask for: a function of (seed, round) alone."""
    f = federation
    return request_rows(f, draw_clients(f, round), round)


def draw_clients(federation: Federation, round: int) -> Tensor:
    """Who takes part in a round."""
    f = federation
    usable = f.schedule.usable(f.data.sizes)
    return sample_clients(f.selection, usable, f.per_round, seed=f.seed, round=round)


def request_rows(federation: Federation, clients: Tensor, round: int) -> Cohort:
    """These clients, and the rows they ask for in a round."""
    f = federation
    if not (f.requests_seen and f.data.features):
        return Cohort(clients, f.method.request(f.data, clients, seed=f.seed, round=round))
    asked = f.method.request(f.data.without_features, clients, seed=f.seed, round=round)
    sizes = f.data.sizes[clients.numpy()]
    steps = plan(f.schedule, sizes, f.data.number_of(clients), seed=f.seed, round=round)
    owner = steps.mask.nonzero()[:, 0]
    seen = f.data.offsets[clients][owner] + steps.index[steps.mask > 0]
    once = Ragged.from_pairs(owner, seen, len(clients))  # over several epochs too
    owner = torch.repeat_interleave(torch.arange(len(clients)), once.lengths)
    tables = set(f.data.features.values())
    seen_rows = {t: f.data.rows_at(t, once.values, owner, len(clients)) for t in tables}
    return Cohort(clients, asked | seen_rows, steps)


def cohort_by(executor: Executor, federation: Federation, state: ServerState) -> Cohort:
    """The same by an executor that has a way of its own, such as asking clients that are elsewhere."""
    asked = getattr(executor, "cohort", None)
    cohort: Cohort = draw_cohort(federation, state.round) if asked is None else asked(federation, state)
    return cohort


def _run_round(federation: Federation, state: ServerState) -> RoundReport:
    factor = rate_factor(federation.decay, state.round, federation.rounds)
    f = replace(federation, factor=factor)
    cohort = cohort_by(f.executor, f, state)
    clients = cohort.clients
    aggregate = total(f.executor(f, state, cohort))
    if aggregate.clients:  # a round with no accepted update leaves the model unchanged
        apply_(state, merge(aggregate, f.rules), f.rules, f.optimizers, f.model.sphere)
        rates = {name: optimizer.lr for name, optimizer in f.present_training.rows.items()}
        context = ServerContext(f.seed, f.server_noise_seed, state.round, rates, aggregate.rows, f.bf16)
        f.method.server_step(state, f.model, context)
    if not f.method.is_centralized:  # data in one place crosses no network
        state.traffic += aggregate.traffic
    state.refused += aggregate.refused
    if f.training.fixed:  # what never changes is sent to a client once
        kept = state.memory.setdefault("keeps_fixed", torch.zeros(f.data.clients, dtype=torch.bool))
        kept[clients] = True
    if f.privacy is not None:
        releases = state.memory.setdefault("releases", torch.zeros(f.data.clients, dtype=torch.int32))
        releases[clients] += 1
    state.round += 1
    return RoundReport(
        state.round,
        len(clients),
        aggregate.clients,
        aggregate.loss_sum,
        aggregate.refused,
        aggregate.traffic,
        cohort,
    )
