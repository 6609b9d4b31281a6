"""Federated dual encoders with limited negatives (Ning et al. 2021): next-item retrieval.

A client has contexts (what its user had) and items (what came next). Batch softmax takes its negatives
from the client's own batch, where they are all alike; batch-insensitive losses (Def. 1) do not.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor

from spreadout.core.merging import RowMerge
from spreadout.core.optimizers import Optimizer
from spreadout.core.ragged import Ragged
from spreadout.core.rows import Rows
from spreadout.core.state import ServerState, descend_table_
from spreadout.core.tables import local_of
from spreadout.core.types import Batch, Params, RowInfo
from spreadout.data.dataset import FederatedDataset
from spreadout.methods.base import Method, RowAccess, every_row, reads_params_via_model, register_method
from spreadout.methods.collapse import ClassSpread, collapse_of
from spreadout.methods.context import ServerContext
from spreadout.methods.negatives import request_with_negatives, uniform_chance
from spreadout.models.embedding import EmbeddingModel
from spreadout.models.nn.gather import gathered
from spreadout.objectives import losses, regularizers

Loss = Literal["batch_softmax", "hinge", "global_softmax", "sampled_softmax"]


@register_method
class DualEncoder(Method):
    """Two towers, one table of items; `loss` and the regularisers are the paper's four and their kin."""

    takes_histories: ClassVar[bool] = True
    name: Literal["dual_encoder"] = "dual_encoder"
    read_if: ClassVar = {
        "margin": ({"loss_form": ("hinge",)},),
        "negatives": ({"loss_form": ("sampled_softmax",)},),
        "requests": ({"loss_form": ("batch_softmax", "hinge")},),
        "scale": ({"loss_form": ("batch_softmax", "global_softmax", "sampled_softmax")},),
    }

    loss_form: Loss = "batch_softmax"
    scale: float = Field(1.0, gt=0)  # logits are scale · similarity: an inverse temperature
    margin: float = Field(0.9, gt=-1, le=1)  # β of the hinge (§3.1)
    negatives: int = Field(256, ge=1)  # sampled_softmax: items a client requests besides its own
    row_spreadout: float = Field(0.0, ge=0)  # λ of ‖offdiag(ŴŴᵀ)‖_F on the rows a client holds
    server_spreadout: float = Field(0.0, ge=0)  # the same over the whole table, on the server
    context_spreadout: float = Field(0.0, ge=0)  # ‖offdiag(XXᵀ)‖_F over a batch's contexts
    label_spreadout: float = Field(0.0, ge=0)  # ‖offdiag(YYᵀ)‖_F over a batch's items
    cross_spreadout: float = Field(0.0, ge=0)  # ‖offdiag(XYᵀ)‖_F between them
    l2: float = Field(0.0, ge=0)  # on the encoder and on the rows of a batch
    requests: Literal["own", "all"] = "own"  # items that clients with batch_softmax and hinge request
    merge: RowMerge = "sum"
    centralized: bool = False  # all data in one place: the paper's centralised rows

    @property
    def is_centralized(self) -> bool:  # type: ignore[override]
        return self.centralized

    @property
    def needs_own(self) -> bool:
        return self.loss_form == "sampled_softmax"

    @property
    def is_batch_insensitive(self) -> bool:
        """Def. 1, whoever holds the batch: a mean over examples of terms that depend on the model alone.

        A sample of negatives, or a regulariser over a client's own rows, depends on more.
        """
        in_batch = self.context_spreadout or self.label_spreadout or self.cross_spreadout
        holds_all = self.loss_form == "global_softmax" or self.requests == "all"
        if self.loss_form in ("batch_softmax", "sampled_softmax") or in_batch:
            return False
        return holds_all or not self.row_spreadout

    @property
    def loss_reads_params(self) -> bool:
        return bool(self.l2) or super().loss_reads_params

    @property
    def row_access(self) -> RowAccess:
        if self.loss_form == "sampled_softmax":
            return "sample"
        return "all" if self.loss_form == "global_softmax" or self.requests == "all" else "own"

    def row_merge(self) -> dict[str, RowMerge]:
        return {"classes": self.merge}

    def request(
        self, data: FederatedDataset, clients: Tensor, *, seed: int, round: int
    ) -> dict[str, Ragged]:
        """A client's own items; a sample too for the sampled softmax; all items for the global one."""
        if self.row_access == "all":
            return every_row(data, clients)
        if self.row_access == "sample":
            return request_with_negatives(data, clients, self.negatives, seed=seed, round=round)
        return data.rows_of(clients)

    @reads_params_via_model
    def loss(self, model: EmbeddingModel, params: Params, batch: Batch, info: RowInfo) -> Tensor:
        contexts = model.embed(params, batch)  # (B, dim)
        mask = batch["mask"]
        label = batch["y"]
        rows = gathered(label, params.rows["classes"])  # (B, d)
        own = model.class_vectors(Params(params.dense, {**params.rows, "classes": rows}))  # (B, dim)
        items = cache(lambda: model.class_vectors(params))  # (m, dim), where a loss is over them all
        each = self._each(contexts, items, own, label, batch, info)
        loss = losses.masked_mean(each, mask)
        if self.row_spreadout:
            loss = loss + self.row_spreadout * regularizers.off_diagonal(
                items(), items(), info.present["classes"]
            )
        pairs = (
            (self.context_spreadout, contexts, contexts),
            (self.label_spreadout, own, own),
            (self.cross_spreadout, contexts, own),
        )
        for strength, left, right in pairs:
            if strength:
                loss = loss + strength * regularizers.off_diagonal(left, right, mask > 0)
        if self.l2:
            weights = sum(value.square().sum() for value in params.dense.values())
            sizes = rows.square().sum(-1)  # before they are scaled
            loss = loss + self.l2 * (weights + losses.masked_mean(sizes, mask))
        return loss

    def _each(
        self,
        contexts: Tensor,
        items: Callable[[], Tensor],
        own: Tensor,
        label: Tensor,
        batch: Batch,
        info: RowInfo,
    ) -> Tensor:
        """One loss per example, (B,)."""
        if self.loss_form == "batch_softmax":
            return losses.batch_softmax(contexts @ own.T, batch["mask"], scale=self.scale)
        if self.loss_form == "hinge":
            return losses.positive_hinge((contexts * own).sum(-1), self.margin)
        scores = contexts @ items().T  # (B, m)
        if self.loss_form == "global_softmax":
            return losses.softmax(scores, label, info.present["classes"], scale=self.scale)
        real, mine = info.present["classes"], info.own["classes"]
        correction = losses.log_expected(real, mine, uniform_chance(info))
        return losses.softmax(scores, label, real, scale=self.scale, correction=correction)

    def collapse_advice(self, spread: ClassSpread) -> str:
        if self.loss_form not in ("batch_softmax", "hinge"):
            return super().collapse_advice(spread)
        remedy = 'set method.loss_form = "sampled_softmax", or raise method.server_spreadout'
        return f"{collapse_of(spread)}; nothing keeps them apart here: {remedy}"

    @property
    def can_shard(self) -> bool:
        return False  # contexts read rows too

    @property
    def loss_is_of_each_example(self) -> bool:
        in_batch = self.context_spreadout or self.label_spreadout or self.cross_spreadout
        return self.loss_form != "batch_softmax" and not self.needs_own and not in_batch

    @property
    def steps_on_server(self) -> bool:
        return self.server_spreadout > 0

    def server_step(self, state: ServerState, model: EmbeddingModel, context: ServerContext) -> None:
        """A step of the whole table down its own spreadout, at the clients' rate."""
        if not self.server_spreadout:
            return
        table = local_of(state.tables["classes"]).detach().requires_grad_()
        with torch.enable_grad():
            items = model.class_vectors(Params(state.dense, {"classes": table}))
            real = torch.arange(len(table), device=table.device) >= model.first_class
            value = self.server_spreadout * regularizers.off_diagonal(items, items, real)
            (gradient,) = torch.autograd.grad(value, [table])
        every = torch.arange(len(table), device=table.device)
        optimizer = Optimizer(lr=context.client_lr["classes"])
        sphere = model.tables["classes"].sphere
        descend_table_(
            state, "spreadout/classes", "classes", Rows(every, gradient), optimizer, sphere=sphere
        )
