"""What FedALC's methods share: label sets collected once, before the first round (§IV-E)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import torch
from pydantic import Field
from torch import Tensor

from spreadout.core.state import ServerState
from spreadout.core.traffic import Traffic
from spreadout.data.dataset import FederatedDataset
from spreadout.methods.class_counts import SetupMessage
from spreadout.methods.context import SetupContext
from spreadout.methods.positive_only import PositiveOnly
from spreadout.methods.spreadout_state import SpreadoutState
from spreadout.models.embedding import EmbeddingModel
from spreadout.objectives.cooccurrence import CoOccurrence, PairWeights
from spreadout.privacy import label_sets
from spreadout.privacy.label_sets import LabelMessage

PARTS = ("alone", "first", "second", "both", "reversed")  # of the weights


@dataclass
class LabelState(SpreadoutState):
    """The weights of pairs of labels that the server computes from the collected label sets."""

    alone: Tensor | None = None
    first: Tensor | None = None
    second: Tensor | None = None
    both: Tensor | None = None
    reversed: Tensor | None = None


class CollectsLabels(PositiveOnly):
    """Positive loss on the clients; the server knows how often labels occur together."""

    needs_shared_key: ClassVar[bool] = True
    state_type: ClassVar[type[SpreadoutState]] = LabelState

    anonymity: int = Field(0, ge=0)  # forget pairs of labels seen in fewer instances
    count_noise: float = Field(0.0, ge=0)  # deviation of the noise on every count
    dummies: int = Field(0, ge=0, le=1_000_000)  # invented entries a client adds, in the mean
    normalize: bool = False  # weights of each label scaled to sum 1: γ of Eq. 10 instead of σ of Eq. 9

    @property
    def prior_costs_counts(self) -> bool:
        return False  # label sets say it

    @property
    def hides_sizes(self) -> bool:
        return self.dummies > 0  # who knows n_k takes it off the entries and has the dummies

    @property
    def sends_at_setup(self) -> str | None:
        return "digests of their examples with their labels"

    @property
    def has_secret_draws(self) -> bool:
        return True  # at least the order of its examples

    @property
    def floor(self) -> float:
        """The share of its weight that a pair keeps, however often its labels meet."""
        return 0.0

    def client_setup(self, data: FederatedDataset, *, key: bytes, seed: int) -> Iterator[SetupMessage]:
        """Algorithm 1 lines 4 to 7: a client's digests."""
        for message in label_sets.messages_of(data, key, dummies=self.dummies, seed=seed):
            yield vars(message)

    def server_setup(self, setup: SetupContext, state: ServerState, model: EmbeddingModel) -> Traffic:
        """Algorithm 1 lines 8 to 10: the server merges and counts what clients sent."""
        classes = model.tables["classes"].count
        sent = 0

        def received() -> Iterator[LabelMessage | None]:
            nonlocal sent
            for arrays in setup.messages:
                sent += sum(array.nbytes for array in arrays.values())
                yield label_sets.received(arrays)

        collected = label_sets.label_sets(received(), classes)
        counts = label_sets.guarded(
            CoOccurrence.of(collected.sets, classes),
            anonymity=self.anonymity,
            noise=self.count_noise,
            invented=self.dummies * collected.holders,
            seed=setup.noise_seed,
        )
        if self.collects_counts:  # known from the label sets: clients send no other counts
            state.scoring["counts"] = counts.count.to(state.tables["classes"].device)
        weights = counts.weights(normalize=self.normalize, floor=self.floor)
        memory, device = state.recall(LabelState), state.tables["classes"].device
        for name in PARTS:
            setattr(memory, name, getattr(weights, name).to(device))
        state.refused += collected.refused
        return Traffic(once_up=sent)

    def pair_weights(self, state: ServerState) -> PairWeights:
        """A weight for every pair of labels, from the collected label sets."""
        memory = state.recall(LabelState)
        return PairWeights(*(getattr(memory, name) for name in PARTS))

    def warnings(self, data: FederatedDataset) -> str | None:
        x = next((column for name, column in data.columns.items() if name != "y"), None)
        if x is not None and (x.index is None or len(torch.unique(x.index)) == len(x.index)):
            return (
                f"method.name = {self.name!r}: every example is an instance of its own here; unless "
                "some are equal, no labels are seen together, and how often they occur is all there is"
            )
        return super().warnings(data)
