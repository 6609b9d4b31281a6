"""A classifier of sparse inputs: rows of features, pooled, then dense layers (000, §5.1; 004, §V-B).

The features' rows are a table like that of the classes: a client gets those its own examples have.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from torch import Tensor
from torch.nn import functional as F

from spreadout.core.types import Batch, Params
from spreadout.models.embedding import EmbeddingModel
from spreadout.models.nn.unit import unit
from spreadout.models.nn.untouched import output_of

Pooling = Literal["mean", "sqrtn", "sum"]
"""What a weighted sum of rows is divided by: Σ|x|, the root of Σx², or nothing."""


@dataclass(frozen=True)
class LookupModel(EmbeddingModel):
    """`encoder` takes pooled rows; inputs are feature vectors over the client's rows."""

    row_columns: Mapping[str, str] = field(default_factory=lambda: {"x": "inputs"})
    pooling: Pooling = "mean"

    def embed(self, params: Params, batch: Batch) -> Tensor:
        """g(x): unit embeddings of a batch, (B, dim)."""
        x = batch[self.inputs[0]]  # (B, m)
        if self.pooling != "sum":
            x = F.normalize(x, p=1 if self.pooling == "mean" else 2, dim=-1)
        pooled = x @ params.rows["inputs"]  # (B, width)
        output = output_of(self.encoder, params.dense, (pooled,))
        return unit(output.float())
