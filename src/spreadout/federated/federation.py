"""All that is fixed in a run: the data, the model, the method, and how clients and server work."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from spreadout.core.merging import MergeRules
from spreadout.core.randomness import Ints
from spreadout.core.types import Batch, Params, RowInfo
from spreadout.data.dataset import FederatedDataset
from spreadout.federated.aggregate import ServerOptimizers
from spreadout.federated.augment import Augment
from spreadout.federated.drift.base import DriftCorrection
from spreadout.federated.local import LocalTraining
from spreadout.federated.robust.base import RobustRule
from spreadout.federated.sampling import Selection, certain_from
from spreadout.federated.schedule import Decay, Plan, Schedule, plan, rate_factor, warmth
from spreadout.methods.base import Method
from spreadout.models.embedding import EmbeddingModel
from spreadout.privacy.mechanism import GaussianMechanism

if TYPE_CHECKING:
    from spreadout.federated.executor import Executor


@dataclass(frozen=True)
class ClientSettings:
    """How every client trains, and what it sends."""

    schedule: Schedule
    training: LocalTraining
    decay: Decay = "none"  # of the rates, over all rounds
    row_warmup: int = 0  # rounds until class rows move at their full rate
    augment: Augment = field(default_factory=Augment)
    drift: DriftCorrection | None = None
    max_norm: float | None = None  # longer updates are refused
    privacy: GaussianMechanism | None = None
    requests_seen: bool = False  # request features of the examples of this round only

    @property
    def checks_each_update(self) -> bool:
        """Whether something looks at every client's own change: a norm limit, or clipping."""
        return self.max_norm is not None or self.privacy is not None

    @property
    def keeps_state(self) -> bool:
        """Whether something stays with a client from round to round."""
        return self.drift is not None and self.drift.keeps_state


@dataclass(frozen=True)
class ServerSettings:
    """How the server chooses clients, and how it moves its model."""

    optimizers: ServerOptimizers
    selection: Selection = "uniform"
    per_round: int = 1
    robust: RobustRule | None = None  # None: plain means
    memory: int = 1 << 30  # bytes for the updates a robust rule holds at once
    claim_cap: int | None = None  # examples that a client may count for; None: as many as it says
    real_noise: bool = False  # its noise comes from the system's entropy; else simulated, from the seed
    decay: Decay = "none"  # of its rates, over all rounds


@dataclass(frozen=True)
class Federation:
    """Everything about a run that does not change from round to round."""

    data: FederatedDataset
    model: EmbeddingModel
    method: Method
    clients: ClientSettings
    server: ServerSettings
    executor: Executor
    device: torch.device
    seed: int = 0
    rounds: int = 1
    bf16: bool = False
    activations: int = 0  # numbers the encoder's layers put out for one example
    class_names: tuple[str, ...] = ()  # what the server's data calls the classes
    validated: bool = False  # whether validation examples score the model, choose one, or vote

    @cached_property
    def objective_key(self) -> Hashable:
        """All that the clients' loss depends on; a method of one's own need not have a hash."""
        return repr(self.method), id(self.model), self.bf16

    @cached_property
    def rules(self) -> MergeRules:
        least = self.certain_from if self.server.selection == "by_size" else 0.0
        return replace(self.method.rules(), most=self.server.claim_cap, least=least)

    @cached_property
    def drawn_sizes(self) -> Ints:
        """How many examples clients are drawn by: no more than each may count for."""
        usable = self.clients.schedule.usable(self.data.sizes)
        return usable if self.server.claim_cap is None else np.minimum(usable, self.server.claim_cap)

    @cached_property
    def certain_from(self) -> float:
        """How many examples make it certain that a client is drawn `by_size`, in every round alike."""
        return certain_from(self.drawn_sizes, self.server.per_round)

    @property
    def shares_noise(self) -> bool:
        """Whether clients add noise together, to a sum that is all the server sees."""
        return self.clients.privacy is not None and self.clients.privacy.needs_others

    @property
    def noises_sums(self) -> bool:
        """Whether the server adds noise to the sum over its clients."""
        return self.clients.privacy is not None and self.clients.privacy.on_the_server

    @property
    def noises_examples(self) -> bool:
        """Whether clients add noise in every step, to sums over their examples."""
        return self.clients.privacy is not None and self.clients.privacy.model == "example"

    @property
    def keeps_optimizers(self) -> bool:
        """Whether training goes on from round to round with what its optimisers remember."""
        training = self.clients.training
        used = [training.dense, *training.rows.values()]
        return self.method.is_centralized and not all(optimizer.is_plain for optimizer in used)

    @property
    def noise_seed(self) -> int | None:
        """The seed of the server's own noise; None where it is real."""
        return None if self.server.real_noise else self.seed

    @property
    def hides_sizes(self) -> bool:
        """Whether nobody is to know how many examples a client has: every client says one."""
        return self.clients.privacy is not None or self.method.hides_sizes

    @property
    def looks_at_each_update(self) -> bool:
        """Whether something looks at every client's own change: the client's side, or the server's."""
        return self.clients.checks_each_update or self.server.robust is not None

    def rate_factor(self, round: int) -> float:
        """What the decay leaves of the clients' rates in a round."""
        return rate_factor(self.clients.decay, round, self.rounds)

    def optimizers_at(self, round: int) -> ServerOptimizers:
        """How the server moves its model in a round."""
        return self.server.optimizers.scaled(rate_factor(self.server.decay, round, self.rounds))

    def training_at(self, round: int) -> LocalTraining:
        """How clients train in a round."""
        return self.clients.training.scaled(self.rate_factor(round), self.row_factor(round))

    def row_factor(self, round: int) -> float:
        """What warming up leaves of the rate of class rows in a round."""
        return warmth(self.clients.row_warmup, round)

    @property
    def corrected_tables(self) -> frozenset[str]:
        """Tables whose rows a drift correction treats as the dense part: every client holds them all."""
        whole = self.method.row_access == "all" and "classes" in self.model.tables
        return frozenset({"classes"}) - self.clients.training.fixed if whole else frozenset()

    def plan(self, clients: Tensor, round: int) -> Plan:
        """Which examples some clients see in each step of a round."""
        sizes, numbers = self.data.sizes[clients.numpy()], self.data.number_of(clients)
        return plan(self.clients.schedule, sizes, numbers, seed=self.seed, round=round)

    def corruption(self, clients: Tensor, round: int) -> Callable[[Tensor], Tensor] | None:
        """What is done to the inputs of some clients in a round; None where nothing is."""
        augment, numbers = self.clients.augment, self.data.number_of(clients)
        return partial(augment, clients=numbers, seed=self.seed, round=round) if augment else None

    def objective(self) -> Callable[[Params, Batch, RowInfo], Tensor]:
        """One client's loss on one batch, under the run's precision."""

        def loss(params: Params, batch: Batch, info: RowInfo) -> Tensor:
            with torch.autocast(self.device.type, torch.bfloat16, enabled=self.bf16):
                return self.method.loss(self.model, params, batch, info)

        return loss
