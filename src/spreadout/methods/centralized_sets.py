"""Label sets in one place: the oracle where an example has several labels.

`centralized` makes an example of every label, as clients with one label each must. With all data in one
place nothing asks for that: a network with an output for every class is trained on whole label sets.
"""

from __future__ import annotations

from typing import ClassVar, Literal

import torch
from torch import Tensor

from spreadout.core.types import Batch, Params, RowInfo
from spreadout.methods.base import reads_params_via_model, register_method
from spreadout.methods.fedmlh import FedAvgBCE
from spreadout.models.embedding import EmbeddingModel
from spreadout.objectives import losses


@register_method
class CentralizedSets(FedAvgBCE):
    """Binary cross-entropy of every label, or a softmax whose target is even over the label set."""

    is_centralized: ClassVar[bool] = True
    name: Literal["centralized-sets"] = "centralized-sets"  # type: ignore[assignment]
    loss_form: Literal["bce", "softmax"] = "bce"

    @reads_params_via_model
    def loss(self, model: EmbeddingModel, params: Params, batch: Batch, info: RowInfo) -> Tensor:
        if self.loss_form == "bce":
            return super().loss(model, params, batch, info)
        logits, named = self.scored(model, params, batch)  # (1, B, C), (1, B, L)
        # Padding falls into one too many.
        none = logits.new_zeros(*logits.shape[:-1], logits.shape[-1] + 1)
        right = none.scatter(-1, torch.where(named < 0, logits.shape[-1], named), 1.0)[..., :-1]
        share = right / right.sum(-1, keepdim=True).clamp_min(1)
        return losses.masked_mean(-(share * logits.log_softmax(-1)).sum(-1)[0], batch["mask"])
