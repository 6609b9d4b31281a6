"""Where clients train: the base of all executors."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar, NamedTuple, Self, TypeVar

import torch

from spreadout.core.registry import Registry
from spreadout.core.state import ServerState
from spreadout.federated.aggregate import Aggregate
from spreadout.federated.central import repeats
from spreadout.federated.cohort import Cohort, draw_cohort
from spreadout.federated.federation import Federation
from spreadout.federated.setup import client_setup
from spreadout.methods.class_counts import SetupMessage
from spreadout.privacy.label_sets import collection_key

ExecutorT = TypeVar("ExecutorT", bound="type[Executor]")


@dataclass(frozen=True)
class ExecutorOptions:
    """What `[run]` and the machine say that an executor may use."""

    device: torch.device
    memory: int  # bytes for one chunk of clients
    graphs: bool = True  # whether CUDA graphs may be made
    prefetch: bool = True  # whether later rounds may be staged in advance


class Heard(NamedTuple):
    """The class rows a client asked for, and of which round."""

    round: int
    client: int
    rows: list[int]


class Executor(ABC):
    """Trains the cohort of a round. One whose clients are elsewhere overrides five hooks.

    >>> import spreadout as so
    >>> issubclass(so.Sequential, so.Executor)  # the shortest one there is
    True
    """

    clients_elsewhere: ClassVar[bool] = False  # whether clients keep their state themselves
    hides_requests: ClassVar[bool] = False  # whether no server learns which rows clients are sent

    @classmethod
    def from_options(cls, options: ExecutorOptions) -> Self:
        """As `run.executor` makes it."""
        return cls()

    @abstractmethod
    def train(self, federation: Federation, state: ServerState, cohort: Cohort) -> Iterable[Aggregate]:
        """Train the clients; yields sums over parts of the cohort, in any grouping."""

    def cohort(self, federation: Federation, state: ServerState) -> Cohort:
        """Who takes part in the state's round, and the rows each of them requests."""
        return draw_cohort(federation, state.round, repeats(state))

    def heard_requests(self, federation: Federation, cohort: Cohort) -> Iterator[Heard]:
        """The class rows that the server has been asked for since it was last told, whoever trained."""
        asked = cohort.requests["classes"]
        for i, client in enumerate(federation.data.number_of(cohort.clients).tolist()):
            yield Heard(cohort.round, client, asked[i].tolist())

    def setup_messages(self, federation: Federation) -> Iterator[SetupMessage]:
        """What clients send once, before the first round."""
        return client_setup(federation, collection_key(federation.seed))

    def releases(self, state: ServerState) -> Mapping[int, int]:
        """How many noised updates each client, by its place, was asked for so far."""
        counts = state.records.releases
        return {} if counts is None else dict(enumerate(counts.tolist()))

    def keeps_sparse(self, federation: Federation) -> bool:
        """Whether it trains on sparse features without making them dense."""
        return False


EXECUTORS: Registry[type[Executor]] = Registry("executor")


def register_executor(name: str) -> Callable[[ExecutorT], ExecutorT]:
    """A class decorator: `run.executor` then knows it by this name.

    >>> import spreadout as so
    >>> @so.register_executor("counting")
    ... class Counting(so.Sequential):
    ...     def train(self, federation, state, cohort):
    ...         print(f"round {state.round}: {len(cohort.clients)} clients")
    ...         return super().train(federation, state, cohort)
    >>> experiment = so.Experiment.of({"rounds": 1, "run": {"executor": "counting"}})
    >>> result = so.run(experiment)
    round 0: 10 clients
    """

    def register(executor: ExecutorT) -> ExecutorT:
        EXECUTORS.add(name, executor)
        return executor

    return register
