"""What a method chooses: which rows a client requests, its loss, the merge, and the server's own step.

A method is a frozen value: its hyper-parameters are its fields (and the keys of `[method]` in a
config), and everything it does is a function of them.
"""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal, Self, TypeVar

import torch
from pydantic import Field
from torch import Tensor

from spreadout.core.errors import UserError
from spreadout.core.merging import MergeRules, RowMerge, Weighting
from spreadout.core.ragged import Ragged
from spreadout.core.registry import NamedSection, Registry
from spreadout.core.state import MethodState, ServerState
from spreadout.core.traffic import Traffic
from spreadout.core.types import Batch, Counted, Params, RowInfo, Tensors
from spreadout.data.dataset import FederatedDataset
from spreadout.methods import class_counts
from spreadout.methods.class_counts import SetupMessage
from spreadout.methods.collapse import LOWER_RATES, ClassSpread, collapse_of
from spreadout.methods.context import ServerContext, SetupContext
from spreadout.models.build import DataShape, ModelConfig, build_model
from spreadout.models.embedding import EmbeddingModel

Prior = Annotated[float, Field(ge=0)] | Literal["auto", "likelihood", "validation"]
"""τ as a number, as it ranks validation examples best, or as it makes their labels most likely."""
RowAccess = Literal["own", "sample", "all"]
"""Which rows a client may request: its own, always the same; its own among others it draws; or any."""


@dataclass(frozen=True)
class Draws:
    """How clients draw the rows they request besides their own; whoever reads the requests knows it."""

    by_popularity: bool = False  # else uniformly
    fixed: bool = False  # once for all rounds; else again in every round
    cover: int | None = None  # they are the rest of public blocks of so many classes


LossT = TypeVar("LossT", bound=Callable[..., Tensor])


def reads_params_via_model(loss: LossT) -> LossT:
    """Mark a `loss` that reads the encoder, its inputs and their rows through `model.embed` alone.

    Only then may an executor compute `embed` in another way (`implicit_first_layer.py`,
    `pooled_lookup.py`), leave those parameters out of `params`, and put something else in the inputs'
    place in `batch`. What overrides or wraps a marked loss is not marked.

    >>> import spreadout as so
    >>> class Pulled(so.PositiveOnly):
    ...     name: str = "pulled"
    ...
    ...     @so.reads_params_via_model
    ...     def loss(self, model, params, batch, info):
    ...         scores = (model.embed(params, batch) * params.rows["classes"][batch["y"]]).sum(-1)
    ...         return so.losses.masked_mean(so.losses.positive_square(scores), batch["mask"])
    >>> Pulled().loss_reads_params
    False
    """
    loss.via_model = loss  # type: ignore[attr-defined]  # itself: what wraps it is not marked
    return loss


METHODS: Registry[type[Method]] = Registry("method")
MethodT = TypeVar("MethodT", bound="type[Method]")


def register_method(method: MethodT) -> MethodT:
    """A class decorator: configs then know the method by its `name`.

    >>> import spreadout as so
    >>> @so.register_method
    ... class Shrinking(so.PositiveOnly):
    ...     name: str = "shrinking"
    ...
    ...     def server_step(self, state, model, context):
    ...         for value in state.dense.values():
    ...             value *= 0.9
    >>> so.Experiment.of({"method": {"name": "shrinking"}}).method.margin
    0.9
    """
    if inspect.isabstract(method):
        missing = ", ".join(sorted(method.__abstractmethods__))
        raise UserError(f"method {method.__qualname__}: has no {missing}")
    method.register()
    return method


class Method(NamedSection, ABC):
    """Base of all methods. A subclass names itself and overrides what its paper does differently.

    >>> import spreadout as so
    >>> class OwnScore(so.Method):
    ...     name: str = "own-score"
    ...
    ...     def loss(self, model, params, batch, info):
    ...         scores = (model.embed(params, batch) * params.rows["classes"][batch["y"]]).sum(-1)
    ...         return so.losses.masked_mean(1 - scores, batch["mask"])
    >>> so.run(so.Experiment(rounds=2), method=OwnScore()).summary["method"]
    'own-score'
    """

    registry: ClassVar[Registry[type[Method]]] = METHODS
    is_centralized: ClassVar[bool] = False  # centralised reference: all data in one place, no traffic
    label_sets: ClassVar[bool] = False  # whether the loss takes examples with several labels
    has_class_table: ClassVar[bool] = True  # whether labels name rows of a table
    takes_histories: ClassVar[bool] = False  # whether it trains models of histories
    state_type: ClassVar[type[MethodState]] = MethodState  # what it remembers between rounds
    needs_shared_key: ClassVar[bool] = False  # whether clients share a secret that keys setup messages
    weighting: Weighting = "examples"
    prior: Prior = 0.0  # τ: scores are cosine + τ · log n_c

    @property
    def ranks_unseen(self) -> bool:
        """Whether a class that nobody has trained on has a row that says something of it."""
        return False

    @property
    def prior_costs_counts(self) -> bool:
        """Whether clients tell how often they have each class for the sake of the prior alone."""
        return self.prior != "validation"

    @property
    def hides_sizes(self) -> bool:
        """Whether the server must not learn how many examples a client has: then all count alike."""
        return False

    @property
    def sends_at_setup(self) -> str | None:
        """What `client_setup` tells about each client, without noise; None if it sends nothing."""
        return "their label counts" if self.collects_counts else None

    @property
    def without_setup(self) -> str:
        """What a config takes so that clients send nothing before the first round."""
        return 'method.name = "fedaws"'

    @property
    def unguarded_setup(self) -> str | None:
        """What is added up before the first round that no robust rule looks at, with the remedy."""
        return None

    @property
    def needs_own(self) -> bool:
        """Whether the loss must know which rows a client's examples name."""
        return self.returns_own_rows

    @property
    def needs_counts(self) -> Counted | None:
        """Of whose examples the loss must know how many each class has; None: of nobody's."""
        return None

    @property
    def collects_counts(self) -> bool:
        """Whether clients tell the server how often they have each class."""
        told = bool(self.prior) and self.prior != "validation"  # that one the server counts by itself
        return told or self.needs_counts == "all"

    @property
    def known_prior(self) -> float | None:
        """The τ that follows from the loss itself; None where it has to be found."""
        return None

    @property
    def needs_popularity(self) -> bool:
        """Whether clients must know how many of them hold each class."""
        return False

    @property
    def needs_public_state(self) -> bool:
        """Whether clients cannot train, or request rows, before they have `public_state`."""
        return self.needs_popularity or self.needs_counts == "all"

    @property
    def row_access(self) -> RowAccess:
        """Which rows a server may let a client request."""
        return "own"

    @property
    def returns_own_rows(self) -> bool:
        """Whether a client sends back, of the class rows it got, its own alone: it trains no others."""
        return False

    @property
    def names_own_rows(self) -> bool:
        """Whether the server learns which rows are a client's own: by the request, or by the update."""
        return self.row_access == "own" or self.returns_own_rows

    @property
    def draws(self) -> Draws:
        """How a client draws the rows it requests besides its own, if it does."""
        return Draws()

    @property
    def has_secret_draws(self) -> bool:
        """Whether a client's draws hide something about it: then the server must not know their seed."""
        return self.row_access == "sample" and not self.names_own_rows

    @property
    def can_shard(self) -> bool:
        """Whether it can train a class table that is split over several processes, and gains from it."""
        return self.row_access != "all"

    def build_model(self, config: ModelConfig, shape: DataShape, seed: int) -> EmbeddingModel:
        """A model of the kind this method trains."""
        return build_model(config, shape, seed)

    def row_merge(self) -> dict[str, RowMerge]:
        """How each table's rows are merged."""
        return {"classes": "replace"}

    def fixed_tables(self) -> frozenset[str]:
        """Tables clients read but never train."""
        return frozenset()

    def request(
        self, data: FederatedDataset, clients: Tensor, *, seed: int, round: int
    ) -> dict[str, Ragged]:
        """The rows each client of a cohort requests, ascending: by default, its own.

        They must include every row that the client's examples name. Random draws are a function of
        (seed, round, client).
        """
        return data.rows_of(clients)

    @abstractmethod
    def loss(self, model: EmbeddingModel, params: Params, batch: Batch, info: RowInfo) -> Tensor:
        """One client's loss on one batch, a scalar."""

    @property
    def loss_reads_params(self) -> bool:
        """Whether `loss` may look at the encoder's parameters or the rows of inputs itself."""
        loss = type(self).loss
        return getattr(loss, "via_model", None) is not loss

    def client_setup(self, data: FederatedDataset, *, key: bytes, seed: int) -> Iterator[SetupMessage]:
        """What each client sends once, before the first round: its label counts, where they are used.

        A message depends on the client's own view only. key: a secret that the clients share and the
        server does not have.
        """
        return class_counts.messages_of(data) if self.collects_counts else iter(())

    def server_setup(self, setup: SetupContext, state: ServerState, model: EmbeddingModel) -> Traffic:
        """What the server does once, before the first round; returns the bytes that moved for it."""
        if not self.collects_counts:
            return Traffic()
        sent = class_counts.collect_(setup.messages, state, model, setup.most)
        told = self.public_state(state).get("counts")
        return sent if told is None else sent + Traffic(once_down=setup.clients * told.nbytes)

    def learn_classes(self, names: Sequence[str], state: ServerState) -> None:
        """What the server keeps of the classes themselves, before the first round; nothing by default.

        names: what they are called, as far as the server knows.
        """

    def as_trained(self, model: EmbeddingModel, state: ServerState, seed: int) -> EmbeddingModel:
        """The model with what its state holds of it beside weights; the same one if that is nothing new.

        UserError where the state lacks what it was trained with.
        """
        return model

    @property
    def setup_steps(self) -> int:
        """How many optimiser steps `server_setup` takes."""
        return 0

    def with_setup_steps(self, steps: int) -> Self:
        """The same with only so many of them."""
        return self

    def public_state(self, state: ServerState) -> Tensors:
        """What every client must be sent before it requests rows or trains: what its loss counts."""
        return {"counts": state.scoring["counts"]} if self.needs_counts == "all" else {}

    def server_step(self, state: ServerState, model: EmbeddingModel, context: ServerContext) -> None:
        """What the server does to its tables after the merge; nothing by default."""

    @property
    def loss_is_of_each_example(self) -> bool:
        """Whether a batch's loss is the mean of losses that each example has by itself.

        One that reads `info.own` is not: which classes are the client's own follows from all examples.
        Neither is one that counts them.
        """
        return not self.needs_own and self.needs_counts is None

    @property
    def steps_on_server(self) -> bool:
        """Whether `server_step` does anything: then it may read every row of a table."""
        return type(self).server_step is not Method.server_step

    def privacy(self, state: ServerState) -> dict[str, Any] | None:
        """What the server's own noise promises so far, for the run's summary; None without any."""
        return None

    def validate_data(self, data: FederatedDataset) -> str | None:
        """Why this method cannot run on this data, as `key = value: reason`; None if it can."""
        return None

    def warnings(self, data: FederatedDataset) -> str | None:
        """What a user should know before a run that is possible but doubtful."""
        return None

    def signs(self, state: ServerState) -> dict[str, float]:
        """What it measured of its own steps so far, for the record of an evaluation."""
        return {}

    def collapse_advice(self, spread: ClassSpread) -> str:
        """What a user should know, and try, when classes fall onto each other.

        A method with negatives throws them together by steps that are too large.
        """
        return f"{collapse_of(spread)}; {LOWER_RATES}"

    def rules(self) -> MergeRules:
        """Rows of input features are part of the encoder: averaged as the dense part is."""
        return MergeRules(self.weighting, {"inputs": "sum", **self.row_merge()})


def every_row(data: FederatedDataset, clients: Tensor) -> dict[str, Ragged]:
    """The request of a client that needs the whole class table; of other tables, its own rows."""
    table = torch.arange(data.first_class, data.classes)
    return {**data.rows_of(clients), "classes": Ragged.repeated(table, len(clients))}
