"""FedALC and FedALC-fixed: federated averaging by exploring label correlations (An et al. 2024).

Algorithm 1                                           here
4–10  collect and merge label sets                    CollectsLabels.prepare
13    send θ, w_i to client i                         Method.request: its own rows
15    (θ, w_i) ← (θ, w_i) − η ∇R_pos                  PositiveOnly.loss (Eq. 14)
19    θ ← mean of θ_i                                 weighting
20    W̃ ← [w_1 … w_C]                                 row_merge: "replace"
21    W ← W̃ − λη ∇reg(W̃)                              FedALC.server_step (Eqs. 8, 10 and 11)

Algorithm 2 trains W before the first round (lines 11 to 14, Eq. 12) and never again.
"""

from __future__ import annotations

from typing import Any, Literal

import torch
from pydantic import Field, model_validator

from spreadout import randomness, regularizers
from spreadout.correlations import PairWeights
from spreadout.data.federated import FederatedDataset
from spreadout.federated.merge import RowSum
from spreadout.federated.optimizers import Optimizer
from spreadout.federated.rows import Rows
from spreadout.federated.server import ServerState, descend_table_
from spreadout.federated.traffic import Traffic
from spreadout.methods.base import ServerContext
from spreadout.methods.fedaws import Spreadout
from spreadout.methods.label_correlations import CollectsLabels
from spreadout.models.embedding import EmbeddingModel
from spreadout.privacy.accounting import epsilon_of
from spreadout.regularizers import HingePenalty, NearPenalty, TableLoss


class FedALC(CollectsLabels, Spreadout):
    """FedAwS whose spreadout leaves labels near each other that occur together."""

    name: Literal["fedalc"] = "fedalc"
    normalize: bool = True  # γ of Eq. 10: every label's weights sum to 1; false: σ of Eq. 9
    mined_form: Literal["hinge", "far"] = "hinge"  # Eq. 11, or −d² as in Eq. 8 of FedAwS
    table_clip: float | None = Field(None, gt=0)  # DP: the most a pair of labels moves the table by
    table_noise: float = Field(0.0, ge=0)  # DP: deviation of the noise, in units of table_clip
    table_delta: float = Field(1e-5, gt=0, lt=1)

    @model_validator(mode="after")
    def _private(self) -> FedALC:
        if self.table_noise and self.table_clip is None:
            raise ValueError("table_noise: needs table_clip, its unit")
        if self.table_clip is not None and self.normalize:
            raise ValueError(
                "table_clip: needs normalize = false; one pair's count scales a whole row of γ"
            )
        if self.table_clip is not None and self.weighted:
            raise ValueError("table_clip: needs weighted = false")
        return self

    def _lambda(self, state: ServerState) -> float:
        return 1.0 if self.strength is None else self.strength

    def regularizer(
        self, state: ServerState, touched: RowSum, context: ServerContext, step: int
    ) -> TableLoss:
        """reg_cr of Eq. 8 or 10, or its mined form Eq. 11, at the present table."""
        weights = self.co_occurrence(state).weights(normalize=self.normalize)
        loss = self._spread(state, touched, context, step, weights, self.table_clip)
        if not self.table_noise:
            return loss
        assert self.table_clip is not None
        draw = torch.Generator().manual_seed(
            randomness.key(context.seed, "table noise", context.round, step) >> 1
        )
        rows = loss.gradient
        noise = torch.randn(rows.values.shape, generator=draw).to(rows.values.device)
        return TableLoss(
            loss.value, Rows(rows.ids, rows.values + self.table_noise * self.table_clip * noise)
        )

    def privacy(self, state: ServerState) -> dict[str, Any] | None:
        """What the noise on the table's steps promises, and to whom."""
        if self.table_clip is None:
            return None
        releases = state.round * self.spreadout_steps
        return {
            "guarantee": "the co-occurrence count of one pair of labels, against whoever sees the table",
            "not_protected": ["the server, which holds the counts", "how often single labels occur"],
            "clip": self.table_clip,
            "noise": self.table_noise,
            "delta": self.table_delta,
            "releases": releases,
            "epsilon": epsilon_of(self.table_noise, releases, self.table_delta)
            if self.table_noise and releases
            else None,
        }


class FedALCFixed(CollectsLabels):
    """The class table is trained from label sets before the first round and then fixed."""

    name: Literal["fedalc-fixed"] = "fedalc-fixed"
    pull: float = Field(1.0, ge=0)  # α of Eq. 12, on pairs that occur together
    push: float = Field(1.0, ge=0)  # β of Eq. 12, on the others
    spreadout_margin: float = Field(1.0, gt=0)  # ν
    distance: regularizers.Distance = "cosine"
    table_steps: int = Field(500, ge=0)  # T′
    table_lr: float = Field(0.01, gt=0)
    table_optimizer: Literal["sgd", "adam", "adagrad", "yogi"] = "adam"

    def fixed_tables(self) -> frozenset[str]:
        return frozenset({"classes"})

    def prepare(
        self, data: FederatedDataset, state: ServerState, model: EmbeddingModel, seed: int
    ) -> Traffic:
        """Algorithm 2 lines 4 to 15."""
        traffic = super().prepare(data, state, model, seed)
        weights = self.co_occurrence(state).weights()
        optimizer = Optimizer(optimizer=self.table_optimizer, lr=self.table_lr, eps=1e-8)
        for _ in range(self.table_steps):
            loss = self.objective(state, weights)
            sphere = model.tables["classes"].sphere
            descend_table_(state, "fixed/classes", "classes", loss.gradient, optimizer, sphere=sphere)
        state.slots.pop("fixed/classes", None)
        return traffic

    def objective(self, state: ServerState, weights: PairWeights) -> TableLoss:
        """reg_fc of Eq. 12: pull labels of one instance together, push its labels off all others."""
        table = state.tables["classes"]
        near = regularizers.stored_pairs(table, weights, NearPenalty(self.distance))
        far = regularizers.all_pairs(
            table, HingePenalty(self.spreadout_margin, self.distance), weight=weights
        )
        gradient = self.pull * near.gradient.values + self.push * far.gradient.values
        return TableLoss(
            self.pull * near.value + self.push * far.value, Rows(near.gradient.ids, gradient)
        )
