"""What a method chooses: which rows a client asks for, its loss, the merge, and the server's own step.

A method is a frozen value: its hyper-parameters are its fields (and the keys of `[method]` in a
config), and everything it does is a function of them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from pydantic import BaseModel, ConfigDict
from torch import Tensor

from spreadout.data.federated import FederatedDataset
from spreadout.federated.local import Batch, Held, Params
from spreadout.federated.merge import MergeRules, RowMerge, RowSum, Weighting
from spreadout.federated.server import ServerState
from spreadout.models.embedding import EmbeddingModel
from spreadout.ragged import Ragged


@dataclass(frozen=True)
class ServerContext:
    """What the server knows when it takes its own step at the end of a round."""

    seed: int
    round: int
    client_lr: Mapping[str, float]  # η of each table's rows on the clients
    touched: Mapping[str, RowSum]  # the rows this round's accepted clients trained
    low_precision: bool = False


class Method(BaseModel, ABC):
    """Base of all methods. A subclass names itself and overrides what its paper does differently."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    name: str
    pools_data: ClassVar[bool] = False  # centralised reference: all data in one place, no traffic
    label_sets: ClassVar[bool] = False  # whether the loss takes examples with several labels
    weighting: Weighting = "examples"

    def row_merge(self) -> dict[str, RowMerge]:
        """How each table's rows are merged."""
        return {"classes": "replace"}

    def fixed_tables(self) -> frozenset[str]:
        """Tables clients read but never train."""
        return frozenset()

    def request(
        self, data: FederatedDataset, clients: Tensor, *, seed: int, round: int
    ) -> dict[str, Ragged]:
        """The rows each client of a cohort asks for, ascending: by default, its own.

        Every row a client's examples name must be among them. What is drawn at random follows from
        (seed, round, client).
        """
        return data.rows_of(clients)

    @abstractmethod
    def loss(self, model: EmbeddingModel, params: Params, batch: Batch, held: Held) -> Tensor:
        """One client's loss on one batch, a scalar."""

    def server_step(self, state: ServerState, model: EmbeddingModel, context: ServerContext) -> None:
        """What the server does to its tables after the merge; nothing by default."""

    def complaint(self, data: FederatedDataset) -> str | None:
        """Why this method cannot run on this data, as `key = value: reason`; None if it can."""
        return None

    def caution(self, data: FederatedDataset) -> str | None:
        """What a user should know before a run that is possible but doubtful."""
        return None

    def rules(self) -> MergeRules:
        return MergeRules(self.weighting, self.row_merge())


def every_row(data: FederatedDataset, clients: Tensor) -> dict[str, Ragged]:
    """The request of a client that needs the whole class table."""
    table = torch.arange(data.classes)
    offsets = torch.arange(len(clients) + 1) * data.classes
    return {"classes": Ragged(offsets, table.repeat(len(clients)))}
