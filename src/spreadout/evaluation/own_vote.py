"""Scores of examples whose own labels are in the counts of the prior: each is scored without its vote.

With counts n_c of the validation labels, an example of class c scores cosine + τ · log n_c there, and
one of the n_c is itself. By the others alone it would score τ · log (n_c / (n_c − 1)) less. Only the
example's own classes change, so that its best ones are found among a few more than are asked for.
"""

from __future__ import annotations

import torch
from torch import Tensor

from spreadout.core.ragged import Ragged
from spreadout.objectives.neighbours import Nearest


def own_votes(counts: Tensor, tau: float) -> Tensor:
    """What one label of each class is worth: τ · log (n / (n − 1)), 0 for a class nobody has. (C,)

    >>> import torch
    >>> own_votes(torch.tensor([1.0, 2.0, 101.0]), 0.5).round(decimals=3)
    tensor([0.0000, 0.3470, 0.0050])
    """
    return tau * torch.log(counts / (counts - 1).clamp_min(1))


def without_own_votes(best: Nearest, labels: Ragged, votes: Tensor, k: int) -> Nearest:
    """The k best classes when each example's own have lost its votes.

    best: (B, k + the most labels of an example), or all classes: as many own ones may fall out.
    """
    classes, device = len(votes), best.ids.device
    owner = torch.repeat_interleave(torch.arange(len(labels)), labels.lengths)
    pairs = (owner * classes + labels.values)[labels.values < classes].to(device)
    rows = torch.arange(len(best.ids), device=device)[:, None]
    own = torch.isin(rows * classes + best.ids, pairs)
    scores = torch.where(own, best.scores - votes.to(best.scores)[best.ids], best.scores)
    order = torch.argsort(scores, dim=1, descending=True, stable=True)[:, :k]
    return Nearest(scores.gather(1, order), best.ids.gather(1, order))
