"""FedMLH: federated multiple label hashing (Dai et al. 2021), and FedAvg on the same network.

Algorithm 2                                           here
2–3   draw R hash functions, broadcast them           FedMLH.server_setup
4–7   bucket labels: the union of the classes'        Buckets.loss
10    S of K clients                                  clients.per_round
13    train R networks on their bucket labels         Buckets.loss, models/buckets.py
17    w ← Σ w_k / S                                   weighting = "uniform"
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import replace
from typing import ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor

from spreadout.core.errors import UserError
from spreadout.core.hashing import HashFamily
from spreadout.core.merging import RowMerge, Weighting
from spreadout.core.ragged import Ragged
from spreadout.core.state import ServerState
from spreadout.core.traffic import Traffic
from spreadout.core.types import Batch, Params, RowInfo
from spreadout.data.dataset import FederatedDataset
from spreadout.methods.base import Method, reads_params_via_model, register_method
from spreadout.methods.context import SetupContext
from spreadout.models.buckets import BucketModel, Decoding
from spreadout.models.build import DataShape, ModelConfig, build_bucket_model
from spreadout.models.embedding import EmbeddingModel
from spreadout.objectives import losses


class Buckets(Method):
    """Every client trains the whole network on which buckets its examples' labels fall into."""

    label_sets: ClassVar[bool] = True
    has_class_table: ClassVar[bool] = False
    weighting: Weighting = "uniform"  # 1/S of line 17; "examples": n_k/n
    decoding: Decoding = "log-probability"
    # How often a fresh network takes an output to be right: in half of all examples, or in one of as
    # many as there are outputs.
    start_odds: Literal["even", "rare"] = "even"

    @abstractmethod
    def hashes(self, seed: int, classes: int) -> HashFamily | None:
        """Where classes go; None: every class has an output of its own."""

    def build_model(self, config: ModelConfig, shape: DataShape, seed: int) -> BucketModel:
        hashes = self.hashes(seed, shape.classes)
        rare = self.start_odds == "rare"
        return build_bucket_model(config, shape, seed, hashes, self.decoding, rare)

    def row_merge(self) -> dict[str, RowMerge]:
        return {}

    def request(
        self, data: FederatedDataset, clients: Tensor, *, seed: int, round: int
    ) -> dict[str, Ragged]:
        return {}

    @reads_params_via_model
    def loss(self, model: EmbeddingModel, params: Params, batch: Batch, info: RowInfo) -> Tensor:
        """Binary cross-entropy over buckets: the sum over networks of each one's mean."""
        logits, right = self.scored(model, params, batch)
        return losses.masked_mean(losses.label_sets(logits, right).sum(0), batch["mask"])

    def scored(self, model: EmbeddingModel, params: Params, batch: Batch) -> tuple[Tensor, Tensor]:
        """The logits of all buckets (R, B, buckets), and which are right (R, B, L), −1: none."""
        assert isinstance(model, BucketModel)
        logits = model.logits(params, batch)
        labels = batch["y"] if batch["y"].dim() > 1 else batch["y"][:, None]  # (B, L), −1: none
        # Lines 4 to 7: a bucket is right if any of its classes is.
        return logits, torch.where(labels >= 0, model.buckets_of(labels.clamp_min(0)), -1)


@register_method
class FedMLH(Buckets):
    """R small networks, each over B buckets of classes instead of all classes."""

    name: Literal["fedmlh"] = "fedmlh"
    hash_tables: int = Field(4, ge=1, le=64)  # R
    buckets: int = Field(250, ge=2)  # B

    def hashes(self, seed: int, classes: int) -> HashFamily:
        if classes <= self.buckets:  # two classes in two buckets: a draw might put both into one
            return HashFamily.apart(self.hash_tables, self.buckets)
        return HashFamily.telling_apart(classes, self.hash_tables, self.buckets, seed=seed, use="labels")

    def server_setup(self, setup: SetupContext, state: ServerState, model: EmbeddingModel) -> Traffic:
        """Line 3: every client is sent the hash functions, once."""
        hashes = _hashes_of(model)
        state.scoring["hashes"] = hashes.functions
        return Traffic(once_down=setup.clients * hashes.nbytes)

    def as_trained(self, model: EmbeddingModel, state: ServerState, seed: int) -> EmbeddingModel:
        """With the hash functions that it was trained with: other versions draw others.

        Earlier ones did not keep them, and took the first draw.
        """
        assert isinstance(model, BucketModel), "of a method over buckets"
        own, kept = _hashes_of(model), state.scoring.get("hashes")
        if kept is None:
            first = HashFamily.drawn(own.tables, own.buckets, seed=seed, use="labels").functions
            if model.classes > own.buckets and not torch.equal(first, own.functions.cpu()):
                raise UserError("its hash functions were not kept, and may be others than are drawn now")
            return model
        if torch.equal(kept, own.functions):
            return model
        try:
            return replace(model, hashes=HashFamily.of(kept, own.buckets))
        except ValueError as error:
            raise UserError(f"its {error}") from None

    def validate_data(self, data: FederatedDataset) -> str | None:
        if data.classes == 1:
            return "method.name = 'fedmlh': there is one class only, and nothing to tell apart"
        if self.buckets >= data.classes and (self.buckets, data.classes) != (2, 2):
            return (
                f"method.buckets = {self.buckets}: must be below the number of classes, {data.classes}; "
                'with as many buckets take name = "fedavg-bce"'
            )
        return None


def _hashes_of(model: EmbeddingModel) -> HashFamily:
    assert isinstance(model, BucketModel), "of a method over buckets"
    assert model.hashes is not None, "classes share buckets"
    return model.hashes


@register_method
class FedAvgBCE(Buckets):
    """FedAvg of one network with an output for every class: what FedMLH is compared with."""

    name: Literal["fedavg-bce"] = "fedavg-bce"

    def hashes(self, seed: int, classes: int) -> None:
        return None
