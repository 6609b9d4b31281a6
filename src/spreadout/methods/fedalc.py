"""FedALC and FedALC-fixed: federated averaging by exploring label correlations (An et al. 2024).

Algorithm 1                                           here
4–10  collect and merge label sets                    CollectsLabels.client_setup, server_setup
13    send θ, w_i to client i                         Method.request: its own rows
15    (θ, w_i) ← (θ, w_i) − η ∇R_pos                  PositiveOnly.loss (Eq. 14)
19    θ ← mean of θ_i                                 weighting
20    W̃ ← [w_1 … w_C]                                 row_merge: "replace"
21    W ← W̃ − λη ∇reg(W̃)                              FedALC.server_step (Eqs. 8, 10 and 11)

Algorithm 2 trains W before the first round (lines 11 to 14, Eq. 12) and never again.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal, Self

from pydantic import Field, model_validator
from torch import Tensor

from spreadout.core.optimizers import Optimizer
from spreadout.core.rows import Rows
from spreadout.core.state import ServerState, descend_table_
from spreadout.core.tables import local_of
from spreadout.core.traffic import Traffic
from spreadout.data.dataset import FederatedDataset
from spreadout.methods.base import register_method
from spreadout.methods.collapse import ClassSpread, collapse_of
from spreadout.methods.context import ServerContext, SetupContext
from spreadout.methods.fedaws import Spreadout
from spreadout.methods.label_correlations import CollectsLabels
from spreadout.methods.spreadout_objective import MANY_CLASSES
from spreadout.models.embedding import EmbeddingModel
from spreadout.objectives import regularizers
from spreadout.objectives.cooccurrence import PairWeights
from spreadout.objectives.regularizers import HingePenalty, NearPenalty, TableLoss
from spreadout.privacy.accounting import epsilon_of
from spreadout.privacy.mechanism import GaussianMechanism
from spreadout.privacy.table_noise import noisy_rows, simulated_noisy_rows


class NoisyTable(CollectsLabels):
    """DP-SGD on the server's table (§IV-E): each pair of labels is clipped, the sum gets noise."""

    table_clip: float | None = Field(None, gt=0)  # the most a pair of labels moves the table by
    table_noise: float = Field(0.0, ge=0)  # deviation of the noise, in units of table_clip
    table_delta: float = Field(1e-5, gt=0, lt=1)
    # Of the clipped sum to one pair's count, in units of the clip.
    pair_sensitivity: ClassVar[float] = 1.0

    @model_validator(mode="after")
    def _private(self) -> Self:
        if self.table_noise and self.table_clip is None:
            raise ValueError("table_noise: needs table_clip, its unit")
        if self.table_clip is not None and self.normalize:
            raise ValueError("table_clip: needs normalize = false; one pair's count scales a row of γ")
        return self

    def noisy(self, loss: TableLoss, seed: int | None, *where: int | str) -> TableLoss:
        """The loss with the noise of one step; where: the key of this draw under the seed, if any."""
        if not self.table_noise:
            return loss
        assert self.table_clip is not None
        rows, mechanism = loss.gradient, GaussianMechanism(clip=self.table_clip, noise=self.table_noise)
        if seed is None:
            values = noisy_rows(rows.values, mechanism, self.pair_sensitivity)
        else:
            values = simulated_noisy_rows(rows.values, mechanism, seed, *where)
        return TableLoss(loss.value, Rows(rows.ids, values))

    def noise_guarantee(self, releases: int) -> dict[str, Any] | None:
        """The guarantee of so many noisy steps, for the run's summary."""
        if self.table_clip is None:
            return None
        epsilon = None
        if self.table_noise and releases:
            epsilon = epsilon_of(
                self.table_noise, releases, self.table_delta, sensitivity=self.pair_sensitivity
            )
        promise = "how often one pair of labels occurs together, against whoever sees the table"
        return {
            "guarantee": promise if epsilon is not None else "none: no noise is added",
            "not_protected": [
                "the server, which holds the counts",
                "how often single labels occur",
                "instances, which clients train the encoder and their rows on",
            ],
            "clip": self.table_clip,
            "noise": self.table_noise,
            "delta": self.table_delta,
            "releases": releases,
            "epsilon": epsilon,
        }


@register_method
class FedALC(NoisyTable, Spreadout):
    """FedAwS whose spreadout leaves labels near each other that occur together."""

    name: Literal["fedalc"] = "fedalc"
    normalize: bool = True
    weight_floor: float = Field(0.0, ge=0, lt=1)  # of its weight, what a pair keeps that always meets
    mined_form: Literal["hinge", "far"] = "hinge"  # Eq. 11, or −d² as in Eq. 8 of FedAwS

    @model_validator(mode="before")
    @classmethod
    def _plain_where_clipped(cls, values: Any) -> Any:
        """A line search would look at the counts that the clip protects."""
        clipped = isinstance(values, Mapping) and values.get("table_clip") is not None
        return {"spreadout_step": "plain", **values} if clipped else values

    @model_validator(mode="after")
    def _whole_sums(self) -> Self:
        if self.weighted:
            raise ValueError("weighted: has no meaning here, pairs of labels have weights of their own")
        if self.table_clip is not None and self.spreadout_step == "safe":
            raise ValueError('table_clip: needs spreadout_step = "plain"; a line search looks at counts')
        if self.table_clip is not None and self.reduction != "sum":
            raise ValueError('table_clip: needs reduction = "sum", what it clips')
        return self

    @property
    def can_shard(self) -> bool:
        return super().can_shard and not self.table_noise  # which is drawn for all rows at once

    @property
    def floor(self) -> float:
        return self.weight_floor

    def _lambda(self, state: ServerState, context: ServerContext) -> float:
        return 1.0 if self.strength is None else self.strength

    def regularizer(
        self,
        state: ServerState,
        context: ServerContext,
        step: int,
        neighbours: Tensor | None = None,
        *,
        gradient: bool = True,
    ) -> TableLoss:
        """reg_cr of Eq. 8 or 10, or its mined form Eq. 11; noise is on the gradient alone."""
        loss = super().regularizer(state, context, step, neighbours, gradient=gradient)
        where = ("table noise", context.round, step)
        return self.noisy(loss, context.noise_seed, *where) if gradient else loss

    @property
    def pair_clip(self) -> float | None:
        return self.table_clip

    def _term_weights(self, state: ServerState, context: ServerContext) -> PairWeights:
        return self.pair_weights(state)

    def privacy(self, state: ServerState) -> dict[str, Any] | None:
        return self.noise_guarantee(state.round * self.spreadout_steps)


@register_method
class FedALCFixed(NoisyTable):
    """The class table is trained from label sets before the first round and then fixed."""

    name: Literal["fedalc-fixed"] = "fedalc-fixed"
    pull: float = Field(1.0, ge=0)  # α of Eq. 12, on pairs that occur together
    push: float = Field(1.0, ge=0)  # β of Eq. 12, on the others
    spreadout_margin: float = Field(1.0, gt=0)  # ν
    distance: regularizers.Distance = "cosine"
    table_steps: int = Field(500, ge=0)  # T′
    table_lr: float = Field(0.01, gt=0)
    table_optimizer: Literal["sgd", "adam", "adagrad", "yogi"] = "adam"
    # A count more of a pair turns a push into a pull: from one end of the clip to the other.
    pair_sensitivity: ClassVar[float] = 2.0

    @property
    def can_shard(self) -> bool:
        return False  # Eq. 12 is over all pairs

    def fixed_tables(self) -> frozenset[str]:
        return frozenset({"classes"})

    def collapse_advice(self, spread: ClassSpread) -> str:
        return f"{collapse_of(spread)}; they are fixed: raise method.push, or lower method.pull"

    def server_setup(self, setup: SetupContext, state: ServerState, model: EmbeddingModel) -> Traffic:
        """Algorithm 2 lines 8 to 15."""
        traffic = super().server_setup(setup, state, model)
        weights = self.pair_weights(state)
        optimizer = Optimizer(optimizer=self.table_optimizer, lr=self.table_lr, eps=1e-8)
        sphere = model.tables["classes"].sphere
        for step in range(self.table_steps):
            loss = self.noisy(
                self.objective(state, weights), setup.noise_seed, "fixed table noise", step
            )
            descend_table_(state, "fixed/classes", "classes", loss.gradient, optimizer, sphere=sphere)
        state.slots.pop("fixed/classes", None)
        return traffic

    @property
    def setup_steps(self) -> int:
        return self.table_steps

    def with_setup_steps(self, steps: int) -> Self:
        return self.model_copy(update={"table_steps": steps})

    def objective(self, state: ServerState, weights: PairWeights) -> TableLoss:
        """reg_fc of Eq. 12: pull labels of one instance together, push its labels off all others."""
        return regularizers.pull_and_push(
            local_of(state.tables["classes"]),
            weights,
            HingePenalty(self.spreadout_margin, self.distance),
            NearPenalty(self.distance),
            pull=self.pull,
            push=self.push,
            clip=self.table_clip,
        )

    def privacy(self, state: ServerState) -> dict[str, Any] | None:
        return self.noise_guarantee(self.table_steps)

    def warnings(self, data: FederatedDataset) -> str | None:
        if data.classes > MANY_CLASSES:
            return (
                f"Eq. 12 over all pairs of {data.classes} classes costs C² d in each of "
                f"method.table_steps = {self.table_steps} steps; FedALC mines near pairs only"
            )
        return super().warnings(data)
