"""Positives for class rows, some rows of other classes for the encoder.

A client gets its own rows and, if asked for, random others. It pulls examples and own rows together, as
FedAwS does, and adds a softmax over all rows it holds, corrected for how they were drawn as in FedSS.
The rows in that softmax are constants: they teach the encoder what to keep apart, and the class table
is moved by positives and by the server's spreadout alone. So a client sends back its own rows and no
others.
"""

from __future__ import annotations

from typing import Self

from pydantic import Field, model_validator
from torch import Tensor

from spreadout.core.ragged import Ragged
from spreadout.core.types import Batch, Params, RowInfo
from spreadout.data.dataset import FederatedDataset
from spreadout.methods.base import RowAccess, reads_params_via_model
from spreadout.methods.negatives import request_with_negatives, too_many_negatives, uniform_chance
from spreadout.methods.positive_only import PositiveOnly
from spreadout.models.embedding import EmbeddingModel
from spreadout.objectives import losses


class SeenRows(PositiveOnly):
    """Clients may see rows of other classes; they train none of them."""

    negatives: int = Field(0, ge=0)  # rows beside a client's own; 0: none, as in the paper
    negative_weight: float = Field(0.5, gt=0)  # of the softmax beside the loss of positives
    negative_scale: float = Field(20.0, gt=0)  # its logits are so many times the cosine

    @model_validator(mode="after")
    def _of_negatives(self) -> Self:
        for key in ("negative_weight", "negative_scale"):
            if not self.negatives and getattr(self, key) != type(self).model_fields[key].default:
                raise ValueError(f"{key}: is for rows of other classes; set negatives, or leave it out")
        return self

    @property
    def row_access(self) -> RowAccess:
        return "sample" if self.negatives else super().row_access

    @property
    def returns_own_rows(self) -> bool:
        return self.negatives > 0

    def request(
        self, data: FederatedDataset, clients: Tensor, *, seed: int, round: int
    ) -> dict[str, Ragged]:
        if not self.negatives:
            return super().request(data, clients, seed=seed, round=round)
        return request_with_negatives(data, clients, self.negatives, seed=seed, round=round)

    @reads_params_via_model
    def loss(self, model: EmbeddingModel, params: Params, batch: Batch, info: RowInfo) -> Tensor:
        embedded = model.embed(params, batch)  # (B, d)
        pulled = self.positive_loss(embedded, params, batch, info)
        if not self.negatives:
            return pulled
        return pulled + self.negative_weight * self._push(embedded, params, batch, info)

    def _push(self, embedded: Tensor, params: Params, batch: Batch, info: RowInfo) -> Tensor:
        """The softmax over the rows a client holds (FedSS, Eq. 5), as a function of the embedding."""
        scores = embedded @ params.rows["classes"].detach().T  # (B, m)
        real, mine = info.present["classes"], info.own["classes"]  # (m,)
        expected = losses.log_expected(real, mine, uniform_chance(info))
        each = losses.softmax(
            scores, batch["y"], real, scale=self.negative_scale, correction=expected
        )  # (B,)
        return losses.masked_mean(each, batch["mask"])

    def validate_data(self, data: FederatedDataset) -> str | None:
        return too_many_negatives(self.negatives, data) or super().validate_data(data)
