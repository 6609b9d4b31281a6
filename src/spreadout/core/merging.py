"""How the changes of several clients become one: the rules a method chooses, and sums of rows.

>>> import spreadout as so
>>> so.PositiveOnly.model_fields["merge"].annotation == so.RowMerge
True
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

RowMerge = Literal["replace", "mean", "weighted-mean", "positives", "sum"]
"""How a row's changes from several holders become one:

- `replace`: the owner's new value takes the row's place, no server optimiser between (several
  owners: their plain mean). FedAwS, Algorithm 1 line 13.
- `mean`: the mean over the clients that hold the row.
- `weighted-mean`: the same, weighted by the holders' numbers of examples.
- `positives`: the same, weighted by how many of a holder's examples have the row's class (FLAG).
- `sum`: the literal `Σ_k (n_k/n) Δ_k` of FedAvg with zeros where a client does not hold the row.
"""

Weighting = Literal["examples", "uniform"]
"""Client weights of the dense average: `n_i/n` (Eq. 5), or equal as in Algorithm 1 line 12."""


@dataclass(frozen=True)
class RowSum:
    """Row changes summed over clients: Σ v_i Δ_i, with how many clients and examples stand behind."""

    ids: Tensor  # (m,) int64; distinct after `total`
    total: Tensor  # (m, d)
    holders: Tensor  # (m,) float32
    examples: Tensor  # (m,) float32


@dataclass(frozen=True)
class MergeRules:
    """The weights of the dense average, and the way each table's rows are merged."""

    weighting: Weighting
    rows: Mapping[str, RowMerge]
    most: int | None = None  # examples that a client may count for
    least: float = 0.0  # … and that it counts for in the dense average, where it was drawn by its size

    def counted_examples(self, examples: Tensor) -> Tensor:
        """How many of the examples that clients claim count: (n,) → (n,) float32."""
        return (examples if self.most is None else examples.clamp_max(self.most)).float()

    def client_weight(self, examples: Tensor) -> Tensor:
        """ω_i for the dense average, before normalisation: (k,) → (k,)."""
        if self.weighting == "uniform":
            return torch.ones_like(examples).float()
        return self.counted_examples(examples).clamp_min(self.least)

    @property
    def counted(self) -> frozenset[str]:
        """Tables of whose rows clients must say how many of their examples have that class."""
        return frozenset(table for table, rule in self.rows.items() if rule == "positives")

    def row_weight(self, table: str, examples: Tensor) -> Tensor:
        """v_i for the row sums: (k,) → (k,); positives come row by row instead."""
        if self.rows[table] == "sum":
            return self.client_weight(examples)
        weighted = self.rows[table] == "weighted-mean"
        return self.counted_examples(examples) if weighted else torch.ones_like(examples).float()
