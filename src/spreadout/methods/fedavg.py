"""FedAvg and FedSGD (McMahan et al. 2017) with a full softmax, and its centralised reference.

FedSGD is FedAvg with one full-batch step a round: `clients.local_steps = 1`, `clients.batch = "full"`.
"""

from __future__ import annotations

from typing import ClassVar, Literal

from torch import Tensor

from spreadout.core.merging import RowMerge
from spreadout.core.ragged import Ragged
from spreadout.core.types import Batch, Params, RowInfo
from spreadout.data.dataset import FederatedDataset
from spreadout.methods.base import RowAccess, every_row, reads_params_via_model, register_method
from spreadout.methods.by_frequency import AdjustedLogits
from spreadout.models.embedding import EmbeddingModel
from spreadout.objectives import losses


class FullSoftmax(AdjustedLogits):
    """Every client gets the whole model and trains a softmax over all classes (Eqs. 3 to 5).

    >>> import spreadout as so
    >>> class Soft(so.FullSoftmax):
    ...     name: str = "soft"
    ...     scale: float = 5.0
    >>> Soft().row_access, Soft(scale=2).scale
    ('all', 2.0)
    """

    merge: RowMerge = "weighted-mean"

    @property
    def row_access(self) -> RowAccess:
        return "all"

    def row_merge(self) -> dict[str, RowMerge]:
        return {"classes": self.merge}

    def request(
        self, data: FederatedDataset, clients: Tensor, *, seed: int, round: int
    ) -> dict[str, Ragged]:
        return every_row(data, clients)

    @reads_params_via_model
    def loss(self, model: EmbeddingModel, params: Params, batch: Batch, info: RowInfo) -> Tensor:
        scores = model.embed(params, batch) @ params.rows["classes"].T  # (B, C)
        each = self.cross_entropy(scores, batch["y"], info.present["classes"], info)
        return losses.masked_mean(each, batch["mask"])


@register_method
class FedAvg(FullSoftmax):
    """Clients keep their data; the server averages what they send."""

    name: Literal["fedavg"] = "fedavg"


@register_method
class Centralized(FullSoftmax):
    """The oracle: the same softmax with all data in one place, negatives and all."""

    is_centralized: ClassVar[bool] = True
    name: Literal["centralized"] = "centralized"
