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
    """Mean over the filled slots of a batch; 0 for an empty one.

    >>> import torch
    >>> import spreadout as so
    >>> so.losses.masked_mean(torch.tensor([1.0, 3.0, 8.0]), mask=torch.tensor([1.0, 1.0, 0.0]))
    tensor(2.)
    """
    return (values * mask).sum() / mask.sum().clamp_min(1)


def positive_hinge(s: Tensor, margin: float | Tensor = 0.9) -> Tensor:
    """`max(0, margin − s)²` (Eq. 23): the positive loss of the experiments. (B,) → (B,)

    >>> import torch
    >>> import spreadout as so
    >>> so.losses.positive_hinge(torch.tensor([1.0, 0.5]), margin=0.75)  # 0, and (0.75 − 0.5)²
    tensor([0.0000, 0.0625])
    """
    return F.relu(margin - s).square()


def positive_square(s: Tensor) -> Tensor:
    """`(1 − s)²`, the positive part of the cosine contrastive loss (Eq. 12). (B,) → (B,)

    >>> import torch
    >>> import spreadout as so
    >>> so.losses.positive_square(torch.tensor([1.0, 0.5]))
    tensor([0.0000, 0.2500])
    """
    return (1 - s).square()


def contrastive(
    distance: Tensor, label: Tensor, *, alpha: float = 1.0, beta: float = 1.0, margin: float
) -> Tensor:
    """Contrastive loss with all other classes as negatives (Eq. 6).

    distance: (B, C) from each example to each class; label: (B,); margin is ν. → (B,)

    >>> import torch
    >>> import spreadout as so
    >>> distance = torch.tensor([[0.5, 1.0, 2.0]])
    >>> so.losses.contrastive(distance, torch.tensor([0]), margin=1.5)  # 0.5² + (1.5 − 1)² + 0
    tensor([0.5000])
    """
    own = F.one_hot(label, distance.shape[-1]).bool()
    attract = distance.square().masked_fill(~own, 0).sum(-1)
    repel = F.relu(margin - distance).square().masked_fill(own, 0).sum(-1)
    return alpha * attract + beta * repel


def cosine_contrastive(scores: Tensor, label: Tensor, *, margin: float) -> Tensor:
    """The cosine contrastive loss (Eqs. 11 and 12). scores: (B, C) → (B,)

    >>> import torch
    >>> import spreadout as so
    >>> scores = torch.tensor([[0.5, 0.0, -1.0]])  # at the distances 0.5, 1 and 2
    >>> so.losses.cosine_contrastive(scores, torch.tensor([0]), margin=1.5)  # 0.5² + (1.5 − 1)² + 0
    tensor([0.5000])
    """
    return contrastive(1 - scores, label, margin=margin)


def spreadout_surrogate(scores: Tensor, label: Tensor, class_rows: Tensor, *, margin: float) -> Tensor:
    """ℓ_sp (Eq. 17): what FedAwS minimises, as a loss per example, class rows in place of negatives.

    >>> import torch
    >>> import spreadout as so
    >>> scores, rows = torch.tensor([[0.5, 0.0]]), torch.eye(2)  # the rows are at a distance of 1
    >>> so.losses.spreadout_surrogate(scores, torch.tensor([0]), rows, margin=2)  # 0.5² + (2 − 1)²
    tensor([1.2500])
    """
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
    margin: Tensor | None = None,
) -> Tensor:
    """Cross-entropy of scaled cosine logits over the rows a client holds.

    scores: (B, m); label: (B,) places among the rows; present: (m,) or (B, m) bool, False for rows that
    do not count; correction: (m,) taken off the logits: the log of how often each row is expected in
    the sample (FedSS, Eq. 3), None: all are there; margin: (m,) taken off a row's score where it is the
    right one (LDAM). → (B,)

    >>> import torch
    >>> import spreadout as so
    >>> scores, present = torch.zeros(1, 3), torch.tensor([True, True, False])
    >>> so.losses.softmax(scores, torch.tensor([0]), present, scale=5)  # one of two: log 2
    tensor([0.6931])
    """
    if margin is not None:
        right = torch.arange(scores.shape[-1], device=scores.device) == label[:, None]  # (B, m)
        scores = torch.where(right, scores - margin, scores)
    logits = scale * scores if correction is None else scale * scores - correction
    logits = torch.where(present, logits, torch.finfo(scores.dtype).min)
    return -logits.log_softmax(-1).gather(-1, label[:, None])[:, 0]


def log_expected(present: Tensor, own: Tensor, chance: Tensor) -> Tensor:
    """log(m q) of the rows a client has sampled: how often each is expected among them (FedSS, Eq. 3).

    present, own: (m,) bool, the rows that are real, and the client's own, which are always there:
    0; chance: (m,) or (), q of each other row. Drawn without replacement, a row is there once at most:
    where q differs from row to row, m·q capped at 1 stands for how likely that is. → (m,)

    >>> import torch
    >>> import spreadout as so
    >>> own, real = torch.tensor([True, False, False, False]), torch.tensor([True, True, True, False])
    >>> so.losses.log_expected(real, own, chance=torch.tensor(0.25)).exp()  # two drawn: 2 · 0.25
    tensor([1.0000, 0.5000, 0.5000, 1.0000])
    """
    drawn = (present & ~own).sum().clamp_min(1)  # m of the paper
    return torch.where(own | ~present, 0.0, torch.log((drawn * chance).clamp(1e-12, 1.0)))


def margin_by_frequency(count: Tensor, most: float) -> Tensor:
    """Δ_c = most · n_c^(−1/4), the larger the rarer a class is (LDAM, Cao et al. 2019, Eq. 12).

    count: n_c of each row; a class that nobody counted has one example. → as count

    >>> import torch
    >>> import spreadout as so
    >>> so.losses.margin_by_frequency(torch.tensor([1.0, 16.0, 10_000.0]), most=0.5)
    tensor([0.5000, 0.2500, 0.0500])
    """
    return most * count.clamp_min(1).pow(-0.25)


def logit_adjustment(count: Tensor, weight: float) -> Tensor:
    """weight · log n_c, added to the logits while training (Menon et al. 2021, Eq. 10). → as count

    The model then learns p(x | class) and no p(class): that is `prior` again when classes are ranked.
    The log of how many examples there are in all is left out: a softmax does not see it.

    >>> import torch
    >>> import spreadout as so
    >>> so.losses.logit_adjustment(torch.tensor([1.0, 100.0]), weight=1).exp().round()
    tensor([  1., 100.])
    """
    return weight * count.clamp_min(0.5).log()


def batch_softmax(scores: Tensor, mask: Tensor, *, scale: float = 1.0) -> Tensor:
    """Cross-entropy with the batch's other items as negatives (003, §2). scores: (B, B) → (B,)

    >>> import torch
    >>> import spreadout as so
    >>> so.losses.batch_softmax(torch.zeros(2, 2), mask=torch.ones(2))  # one of two: log 2
    tensor([0.6931, 0.6931])
    """
    logits = torch.where(mask > 0, scale * scores, torch.finfo(scores.dtype).min)
    return -logits.log_softmax(-1).diagonal()


def label_sets(logits: Tensor, right: Tensor) -> Tensor:
    """Binary cross-entropy, the mean over all outputs, of examples with few right ones.

    logits: (…, B, n); right: (…, B, L) which outputs are right, some maybe twice, −1: none. → (…, B)
    Σ_j log(1 + e^z_j) − Σ over the right j of z_j: no array of targets as large as the logits is made.

    >>> import torch
    >>> import spreadout as so
    >>> logits = torch.tensor([[1.0, -2.0, 0.0]])
    >>> so.losses.label_sets(logits, torch.tensor([[0, 0, -1]]))
    tensor([0.3778])
    >>> torch.nn.functional.binary_cross_entropy_with_logits(logits, torch.tensor([[1.0, 0.0, 0.0]]))
    tensor(0.3778)
    """
    ordered = right.sort(-1).values
    first = torch.cat([ordered[..., :1] >= 0, ordered[..., 1:] > ordered[..., :-1]], -1)
    own = logits.gather(-1, ordered.clamp_min(0)) * first
    return (F.softplus(logits).sum(-1) - own.sum(-1)) / logits.shape[-1]
