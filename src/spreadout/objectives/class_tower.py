"""Class rows from features of the classes: a linear tower, fitted to the rows that clients trained.

A class with features f_c and n_c examples has the row w_c = normalise(t_c + g_c u_c): what the tower
makes of its features, t_c = normalise(Tᵀ f_c), and a free vector u_c of length at most 1, which counts
by g_c = n_c / borrow. So w_c is at most arcsin g_c away from t_c. A class of no example has the row that
its features say; one with `borrow` or more may go anywhere. u_c need not be stored: the row says it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from spreadout.core.rows import project_to_sphere


@dataclass(frozen=True)
class ClassFeatures:
    """Sparse features of all classes, (C, f), and the same by feature: (f, C)."""

    ids: Tensor  # (n,) the features of each class, class after class
    weights: Tensor  # (n,)
    offsets: Tensor  # (C + 1,)
    width: int  # f

    def times(self, tower: Tensor) -> Tensor:
        """(f, d) → (C, d)"""
        return _sums(self.ids, self.weights, self.offsets, tower)

    def transposed(self) -> ClassFeatures:
        """(f, C)"""
        order = torch.argsort(self.ids, stable=True)
        owner = torch.repeat_interleave(
            torch.arange(len(self.offsets) - 1, device=self.ids.device), self.offsets.diff()
        )
        lengths = torch.bincount(self.ids, minlength=self.width)
        offsets = F.pad(lengths.cumsum(0), (1, 0))
        return ClassFeatures(owner[order], self.weights[order], offsets, len(self.offsets) - 1)

    @classmethod
    def of(cls, rows: Sequence[np.ndarray], weights: Sequence[np.ndarray], width: int) -> ClassFeatures:
        """From the features of each class and their weights; every class's are scaled to length 1."""
        lengths = torch.tensor([len(row) for row in rows], dtype=torch.int64)
        flat = np.concatenate([*rows, np.empty(0, np.int64)]).astype(np.int64)
        scaled = [w / max(float(np.sqrt(np.square(w).sum())), 1e-12) for w in weights]
        values = np.concatenate([*scaled, np.empty(0)]).astype(np.float32)
        offsets = F.pad(lengths.cumsum(0), (1, 0))
        return cls(torch.from_numpy(flat), torch.from_numpy(values), offsets, width)


def _sums(ids: Tensor, weights: Tensor, offsets: Tensor, table: Tensor) -> Tensor:
    if not len(ids):
        return table.new_zeros(len(offsets) - 1, table.shape[1])
    return F.embedding_bag(
        ids, table, offsets, mode="sum", per_sample_weights=weights, include_last_offset=True
    )


@torch.no_grad()
def fit(
    features: ClassFeatures, rows: Tensor, trust: Tensor, tower: Tensor, *, ridge: float, steps: int
) -> Tensor:
    """A tower nearer to the best: some steps of conjugate gradients from the one there is.

    Best is the minimum of Σ_c trust_c ‖Tᵀ f_c − w_c‖² + ridge ‖T‖². rows: (C, d); trust: (C,), 0 of a
    class whose row says nothing; tower: (f, d). Each column has a step of its own.
    """
    across = features.transposed()

    def system(x: Tensor) -> Tensor:  # Fᵀ A F + ridge
        return across.times(trust[:, None] * features.times(x)) + ridge * x

    x = tower
    left = across.times(trust[:, None] * rows) - system(x)  # (f, d) the residual
    way, size = left, left.square().sum(0)  # (d,)
    for _ in range(steps):
        turned = system(way)
        length = size / (way * turned).sum(0).clamp_min(1e-30)
        x, left = x + length * way, left - length * turned
        now = left.square().sum(0)
        way, size = left + now / size.clamp_min(1e-30) * way, now
    return x


@torch.no_grad()
def realised(rows: Tensor, predicted: Tensor, gate: Tensor) -> Tensor:
    """Each row, or where it is further from what the tower says than its gate lets it, the nearest that
    is not. rows: (C, d) of unit length; predicted: (C, d) of any; gate: (C,).

    >>> east, north = torch.tensor([[1.0, 0.0]]), torch.tensor([[0.0, 3.0]])
    >>> realised(east, north, torch.tensor([0.6])).round(decimals=3)
    tensor([[0.6000, 0.8000]])
    """
    length = predicted.norm(dim=-1, keepdim=True)
    says = predicted / length.clamp_min(1e-12)
    near = (rows * says).sum(-1, keepdim=True)  # cos θ
    side = rows - near * says
    side = side / side.norm(dim=-1, keepdim=True).clamp_min(1e-12)
    most = gate.clamp(0, 1)[:, None]  # sin of the largest angle
    least = (1 - most.square()).sqrt()
    free = (gate[:, None] >= 1) | (near >= least) | (length < 1e-12)
    return torch.where(free, rows, project_to_sphere(least * says + most * side))
