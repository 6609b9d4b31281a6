"""A prior over classes from the labels of the validation part alone: clients are asked nothing.

For methods whose clients hide their classes among others (FedSS): their counts would tell what the
samples hide, while the server holds the validation labels anyway. They may be few, and three things keep
luck out. No example votes for its own labels. Every class counts once more than it was seen. And τ is
found by likelihood, p(c | x) ∝ n_c · exp(κ · cosine) with τ = 1/κ as in `prior.py`, not by rank: of
twenty examples a rank is mostly luck. Of all κ that chance cannot tell from the likeliest, the largest
is taken, which trusts the model the most and the counts the least.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from spreadout.core.state import ServerState
from spreadout.core.tables import whole_of
from spreadout.data.dataset import Examples
from spreadout.evaluation.embed import class_vectors, embed
from spreadout.models.embedding import EmbeddingModel

# From counts alone to the model alone: a cosine's whole range is worth a factor of e to one of e⁸⁰⁰.
STEEPNESS = (0.5, 0.7, 1, 1.5, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 200, 400)
SCORES = 5e6  # numbers that a choice may go through, for each κ


def counted(examples: Examples, classes: int) -> Tensor:
    """How often each class is a label, and once more: (C,) float."""
    known = examples.labels.values.cpu()
    return 1 + torch.bincount(known[known < classes], minlength=classes).float()


@torch.no_grad()
def choose(model: EmbeddingModel, state: ServerState, counts: Tensor, examples: Examples) -> float:
    """τ = 1/κ; counts: `counted` of these examples. 0 where none of them has a trained label."""
    classes, first = whole_of(class_vectors(model, state)), model.first_class
    owner, label = _pairs(examples, first, len(classes))
    labelled = torch.unique(owner)
    if not len(labelled):
        return 0.0
    most = int(min(2000, max(50, SCORES / len(classes))))
    chosen = labelled[:: max(1, -(-len(labelled) // most))]  # evenly: a file may be sorted
    parts = []
    for some in torch.split(chosen, 256):
        scores = (embed(model, state, examples, some) @ classes.T)[:, first:]
        inside = torch.isin(owner, some)
        row = torch.searchsorted(some, owner[inside]).to(scores.device)
        parts.append(
            log_likelihood(scores, row, label[inside].to(scores.device), counts[first:].to(scores))
        )
    return 1 / STEEPNESS[last_as_good(torch.cat(parts, 1))]


def log_likelihood(scores: Tensor, row: Tensor, label: Tensor, counts: Tensor) -> Tensor:
    """The mean log-likelihood of each example's labels for each κ, those labels not counted: (K, n).

    scores: (n, C) cosines; row, label: (p,) pairs of an example and a class of it; counts: (C,), with
    these labels in them.
    """
    own = torch.zeros_like(scores)
    own[row, label] = 1.0
    bias = torch.log(counts - own)  # at least log 1: every class counts once more
    found = []
    for kappa in STEEPNESS:
        logits = kappa * scores + bias
        right = ((logits - logits.logsumexp(1, keepdim=True)) * own).sum(1) / own.sum(1)
        found.append(right.double().cpu())
    return torch.stack(found)


def last_as_good(values: Tensor) -> int:
    """The last row whose mean is below the best by no more than a standard error of the difference.

    values: (K, n), of the same n examples in every row.

    >>> import torch
    >>> last_as_good(torch.tensor([[0.0, 1.0, 1.0, 1.0], [1.0, 0.0, 0.0, 1.0]]))  # 3 of 4, then 2 of 4
    1
    >>> last_as_good(torch.tensor([[1.0, 1.0, 1.0, 1.0], [0.0, 0.0, 0.0, 1.0]]))
    0
    """
    best = int(values.mean(1).argmax())
    lost = values[best] - values  # (K, n)
    error = lost.std(1, correction=min(1, lost.shape[1] - 1)) / math.sqrt(lost.shape[1])
    return int((lost.mean(1) <= error).nonzero()[-1])


def _pairs(examples: Examples, first: int, classes: int) -> tuple[Tensor, Tensor]:
    """An example, ascending, and a trained class of it, counted from the first one: (p,) each."""
    labels = examples.labels.values.cpu()
    owner = torch.repeat_interleave(torch.arange(len(examples)), examples.labels.lengths.cpu())
    known = (labels >= first) & (labels < classes)
    return owner[known], labels[known] - first
