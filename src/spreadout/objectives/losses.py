"""Client objectives as functions of scores. Equation numbers are those of FedAwS (Yu et al. 2020).

`s` is the score g(x)·w of unit vectors, so the cosine distance is `1 − s` (Eq. 10) and the Euclidean
one is `sqrt(2 − 2s)`. Every function returns one loss per example; `masked_mean` makes it a scalar.

>>> import torch
>>> import spreadout as so
>>> scores = torch.tensor([0.9, 0.5])
>>> so.losses.positive_hinge(scores, margin=0.9)
tensor([0.0000, 0.1600])
>>> so.losses.masked_mean(so.losses.positive_square(scores), mask=torch.tensor([0.0, 1.0]))
tensor(0.2500)
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F


def masked_mean(values: Tensor, mask: Tensor) -> Tensor:
    """Mean over the filled slots of a batch; 0 for an empty one."""
    return (values * mask).sum() / mask.sum().clamp_min(1)


def positive_hinge(s: Tensor, margin: float = 0.9) -> Tensor:
    """`max(0, margin − s)²` (Eq. 23): the positive loss of the experiments. (B,) → (B,)"""
    return F.relu(margin - s).square()


def positive_square(s: Tensor) -> Tensor:
    """`(1 − s)²`, the positive part of the cosine contrastive loss (Eq. 12). (B,) → (B,)"""
    return (1 - s).square()


def contrastive(
    distance: Tensor, label: Tensor, *, alpha: float = 1.0, beta: float = 1.0, margin: float
) -> Tensor:
    """Contrastive loss with all other classes as negatives (Eq. 6).

    distance: (B, C) from each example to each class; label: (B,); margin is ν. → (B,)
    """
    own = F.one_hot(label, distance.shape[-1]).bool()
    attract = distance.square().masked_fill(~own, 0).sum(-1)
    repel = F.relu(margin - distance).square().masked_fill(own, 0).sum(-1)
    return alpha * attract + beta * repel


def cosine_contrastive(scores: Tensor, label: Tensor, *, margin: float) -> Tensor:
    """The cosine contrastive loss (Eqs. 11 and 12). scores: (B, C) → (B,)"""
    return contrastive(1 - scores, label, margin=margin)


def spreadout_surrogate(scores: Tensor, label: Tensor, class_rows: Tensor, *, margin: float) -> Tensor:
    """ℓ_sp (Eq. 17): what FedAwS minimises, as a loss per example, class rows in place of negatives."""
    own = F.one_hot(label, len(class_rows)).bool()
    between = class_rows[label] @ class_rows.T  # (B, C) w_y·w_c
    repel = F.relu(margin - 1 + between).square().masked_fill(own, 0).sum(-1)
    return positive_square(scores.gather(-1, label[:, None])[:, 0]) + repel


def softmax(
    scores: Tensor,
    label: Tensor,
    present: Tensor,
    *,
    scale: float,
    correction: Tensor | None = None,
) -> Tensor:
    """Cross-entropy of scaled cosine logits over the rows a client holds.

    scores: (B, m); label: (B,) places among the rows; present: (m,) or (B, m) bool, False for rows that
    do not count; correction: (m,) the log of how often each row is expected in the sample (FedSS,
    Eq. 3), None: all are there.
    → (B,)
    """
    logits = scale * scores if correction is None else scale * scores - correction
    logits = torch.where(present, logits, torch.finfo(scores.dtype).min)
    return -logits.log_softmax(-1).gather(-1, label[:, None])[:, 0]


def log_expected(present: Tensor, own: Tensor, chance: Tensor) -> Tensor:
    """log(m q) of the rows a client has sampled: how often each is expected among them (FedSS, Eq. 3).

    present, own: (m,) bool, the rows that are real, and the client's own, which are always there:
    0; chance: (m,) or (), q of each other row. Drawn without replacement, a row is there once at most:
    where q differs from row to row, m·q capped at 1 stands for how likely that is. → (m,)
    """
    drawn = (present & ~own).sum().clamp_min(1)  # m of the paper
    return torch.where(own | ~present, 0.0, torch.log((drawn * chance).clamp(1e-12, 1.0)))


def batch_softmax(scores: Tensor, mask: Tensor, *, scale: float = 1.0) -> Tensor:
    """Cross-entropy with the batch's other items as negatives (003, §2). scores: (B, B) → (B,)"""
    logits = torch.where(mask > 0, scale * scores, torch.finfo(scores.dtype).min)
    return -logits.log_softmax(-1).diagonal()
