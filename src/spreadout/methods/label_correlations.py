"""What FedALC's methods share: label sets collected once, before the first round (§IV-E)."""

from __future__ import annotations

import torch
from pydantic import Field

from spreadout import randomness
from spreadout.correlations import CoOccurrence
from spreadout.data.columns import Lists
from spreadout.data.federated import FederatedDataset
from spreadout.federated.server import ServerState
from spreadout.federated.traffic import Traffic
from spreadout.methods.positive_only import PositiveOnly
from spreadout.models.embedding import EmbeddingModel
from spreadout.privacy import label_sets


class CollectsLabels(PositiveOnly):
    """Positive loss on the clients; the server knows how often labels occur together."""

    anonymity: int = Field(0, ge=0)  # forget pairs of labels seen in fewer instances
    count_noise: float = Field(0.0, ge=0)  # deviation of the noise on every count
    dummies: int = Field(0, ge=0)  # invented entries a client adds, in the mean

    def prepare(
        self, data: FederatedDataset, state: ServerState, model: EmbeddingModel, seed: int
    ) -> Traffic:
        """Algorithm 1 lines 4 to 10: every client sends digests, the server merges and counts them."""
        key = collection_key(seed)
        invented = torch.zeros(data.classes)
        messages = []
        for message in label_sets.messages_of(data, key, dummies=self.dummies, seed=seed):
            rows = torch.from_numpy(message.rows)
            invented[rows] += self.dummies / max(len(rows), 1)
            messages.append(message)
        counted = CoOccurrence.of(label_sets.label_sets(messages), data.classes)
        found = label_sets.guarded(
            counted,
            anonymity=self.anonymity,
            noise=self.count_noise,
            invented=invented,
            seed=seed,
        )
        for name in ("count", "first", "second", "together"):
            state.memory[f"labels/{name}"] = getattr(found, name).to(state.tables["classes"].device)
        state.memory["labels/instances"] = torch.tensor([found.instances], dtype=torch.float64)
        return Traffic(once_up=sum(message.nbytes for message in messages))

    def co_occurrence(self, state: ServerState) -> CoOccurrence:
        """What the server has kept of the collection."""
        parts = (state.memory[f"labels/{name}"] for name in ("count", "first", "second", "together"))
        return CoOccurrence(float(state.memory["labels/instances"]), *parts)

    def complaint(self, data: FederatedDataset) -> str | None:
        if isinstance(data.columns["y"], Lists):
            return 'data.targets = "all": each client must hold one label an example; take "each"'
        return super().complaint(data)


def collection_key(seed: int) -> bytes:
    """The secret the clients of a simulation share; real clients are given theirs."""
    return randomness.key(seed, "collection").to_bytes(8, "big")
