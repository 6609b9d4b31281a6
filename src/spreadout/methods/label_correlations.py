"""What FedALC's methods share: label sets collected once, before the first round (§IV-E)."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

import torch
from pydantic import Field

from spreadout.correlations import CoOccurrence, PairWeights
from spreadout.data.federated import FederatedDataset
from spreadout.federated.server import ServerState
from spreadout.federated.traffic import Traffic
from spreadout.methods.positive_only import PositiveOnly
from spreadout.models.embedding import EmbeddingModel
from spreadout.privacy import label_sets
from spreadout.privacy.label_sets import LabelMessage

PARTS = ("alone", "first", "second", "both", "reversed")  # of the weights, in the server's memory


class CollectsLabels(PositiveOnly):
    """Positive loss on the clients; the server knows how often labels occur together."""

    anonymity: int = Field(0, ge=0)  # forget pairs of labels seen in fewer instances
    count_noise: float = Field(0.0, ge=0)  # deviation of the noise on every count
    dummies: int = Field(0, ge=0)  # invented entries a client adds, in the mean
    normalize: bool = False  # weights of each label scaled to sum 1: γ of Eq. 10 instead of σ of Eq. 9

    def prepare(
        self, data: FederatedDataset, state: ServerState, model: EmbeddingModel, seed: int
    ) -> Traffic:
        """Algorithm 1 lines 4 to 10: every client sends digests, the server merges and counts them."""
        invented = torch.zeros(data.classes)
        sent = 0

        def told() -> Iterator[LabelMessage]:
            nonlocal sent
            key = collection_key(seed)
            for message in label_sets.messages_of(data, key, dummies=self.dummies, seed=seed):
                rows = torch.from_numpy(message.rows)
                invented[rows] += self.dummies / max(len(rows), 1)
                sent += message.nbytes
                yield message

        sets, refused = label_sets.label_sets(told(), data.classes)
        counts = label_sets.guarded(
            CoOccurrence.of(sets, data.classes),
            anonymity=self.anonymity,
            noise=self.count_noise,
            invented=invented,
            seed=seed,
        )
        weights = counts.weights(normalize=self.normalize)
        for name in PARTS:
            state.memory[f"labels/{name}"] = getattr(weights, name).to(state.tables["classes"].device)
        state.refused += refused
        return Traffic(once_up=sent)

    def pair_weights(self, state: ServerState) -> PairWeights:
        """What the server has kept of the collection: a weight for every pair of labels."""
        return PairWeights(*(state.memory[f"labels/{name}"] for name in PARTS))

    def caution(self, data: FederatedDataset) -> str | None:
        x = next((column for name, column in data.columns.items() if name != "y"), None)
        if x is not None and (x.index is None or len(torch.unique(x.index)) == len(x.index)):
            return (
                f"method.name = {self.name!r}: no instance is held under two labels, so none are ever "
                "seen together, and labels are weighed by how often they occur alone"
            )
        return super().caution(data)


def collection_key(seed: int) -> bytes:
    """The secret the clients of a simulation share; real clients are given theirs."""
    return hashlib.sha256(f"label sets of {seed}".encode()).digest()
