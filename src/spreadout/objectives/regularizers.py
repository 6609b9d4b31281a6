"""Server-side table objectives: spreadout over all pairs (Eq. 7 of FedAwS) and over mined pairs (Eq. 8),
with a weight for every class or pair (FedALC, Eqs. 8 to 11), and FedALC's pull and push (Eq. 12).

Both are sums of a penalty φ(s) of the dot product s of two unit rows, over ordered pairs. Values and
gradients are written out by hand and computed in blocks: there is never a (C, C) matrix. Where φ is a
polynomial of degree two on all of [−1, 1], the all-pairs sum has an exact O(C d²) form. Sums over all
pairs are in `every_pair.py`, those over mined ones in `mined_pairs.py`.

>>> import torch
>>> import spreadout as so
>>> rows = torch.eye(3)  # three classes at right angles: a cosine distance of 1
>>> found = so.regularizers.all_pairs(rows, so.regularizers.HingePenalty(margin=1.5))
>>> found.value  # six ordered pairs, (1.5 − 1)² each
tensor(1.5000)
>>> found.gradient.values.shape
torch.Size([3, 3])
"""

from __future__ import annotations

import torch
from torch import Tensor

from spreadout.core.rows import Rows
from spreadout.objectives.every_pair import all_pairs, pull_and_push, stored_pairs
from spreadout.objectives.mined_pairs import Search, among, mined_pairs
from spreadout.objectives.penalties import Distance, FarPenalty, HingePenalty, NearPenalty, Penalty
from spreadout.objectives.table_loss import Reduction, TableLoss

__all__ = [
    "Distance",
    "FarPenalty",
    "HingePenalty",
    "NearPenalty",
    "Penalty",
    "Reduction",
    "Search",
    "TableLoss",
    "all_pairs",
    "among",
    "mined_pairs",
    "off_diagonal",
    "pull_and_push",
    "stored_pairs",
    "together",
]


def together(all_of: TableLoss, mined: TableLoss, share: float) -> TableLoss:
    """(1 − share) of a loss over all pairs and share of one over mined pairs, as one loss.

    >>> import torch
    >>> import spreadout as so
    >>> rows, hinge = torch.eye(3), so.regularizers.HingePenalty(margin=1.5)
    >>> every = so.regularizers.all_pairs(rows, hinge)  # 1.5
    >>> near = so.regularizers.mined_pairs(rows, torch.tensor([0]), k=1, penalty=hinge)  # 0.25
    >>> so.regularizers.together(every, near, share=0.5).value
    tensor(0.8750)
    """
    gradient = (1 - share) * all_of.gradient.values  # of all rows, in their order
    gradient.index_add_(0, mined.gradient.ids, share * mined.gradient.values)
    value = (1 - share) * all_of.value + share * mined.value
    return TableLoss(value, Rows(all_of.gradient.ids, gradient), mined.neighbours)


def off_diagonal(left: Tensor, right: Tensor, real: Tensor) -> Tensor:
    """‖offdiag(L Rᵀ)‖_F over the real rows (003, §3.1), without the (n, n) matrix: O(n d²).

    left, right: (n, d); real: (n,) bool. ‖L Rᵀ‖²_F = ⟨LᵀL, RᵀR⟩, and the diagonal's squares come off.

    >>> import torch
    >>> import spreadout as so
    >>> left, right = torch.eye(2), torch.tensor([[1.0, 3.0], [4.0, 1.0]])  # L Rᵀ is the transpose of R
    >>> so.regularizers.off_diagonal(left, right, real=torch.tensor([True, True]))  # √(3² + 4²)
    tensor(5.)
    """
    same = left is right  # then one Gram matrix does
    with torch.autocast(left.device.type, enabled=False):  # a difference of large sums
        keep = real[:, None]
        left = left * keep
        right = left if same else right * keep
        gram = left.T @ left
        whole = gram.square().sum() if same else (gram * (right.T @ right)).sum()
        diagonal = (left * right).sum(-1).square().sum()
    # Rounding may leave a hair below 0; the root's slope must stay finite where nothing overlaps.
    return (whole - diagonal).clamp_min(1e-12).sqrt()
