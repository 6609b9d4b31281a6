"""τ of a prior over classes where validation examples are few, and a prior from their labels alone.

By likelihood, p(c | x) ∝ n_c · exp(κ · cosine) with τ = 1/κ as in `prior.py`, and not by rank: of twenty
examples a rank is mostly luck. Of all κ that chance cannot tell from the likeliest the largest is taken,
which trusts the model the most and the counts the least. A prior under which fewer examples have a right
class in first place than under none is not taken: a softmax over sampled classes has learnt what is
frequent, and would count it twice.

Where clients hide their classes among others (FedSS), their counts would tell what the samples hide,
while the server holds the validation labels anyway. Then n_c is how often a class is a label there. No
example votes for its own labels, and every class counts once more than it was seen.

A model that does not surely put more examples right than the counts alone (`prior_alone.py`) is trusted
no more than the likeliest κ says; and not at all where chance cannot tell that from the counts alone.
Cosines of a softmax over other classes, too, hold some of what is frequent, and nobody knows how much:
after all training it is all of it, at its start none. There p(c | x) ∝ √n_c · exp(κ · cosine), between
the two, and τ = 1/2κ. To count n_c whole would be to count it twice (docs/defaults_found.md).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from spreadout.core.state import ServerState
from spreadout.core.tables import whole_of
from spreadout.data.held_out import Examples
from spreadout.evaluation.embed import class_vectors, embed
from spreadout.evaluation.scoring import log_prior
from spreadout.evaluation.standings import trained_labels
from spreadout.models.embedding import EmbeddingModel

# From counts alone to the model alone: a cosine's whole range is worth a factor of e to one of e⁸⁰⁰.
STEEPNESS = (0.5, 0.7, 1, 1.5, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 200, 400)
SCORES = 5e6  # numbers that a choice may go through, for each κ
LEARNT = 0.5  # exponent of n_c where cosines may know what is frequent: 0 if they do, 1 if they do not
LIKELIER = 3.84  # twice a gain in log-likelihood; by luck one time in forty (χ², κ = 0 is an edge)


def counted(examples: Examples, classes: int) -> Tensor:
    """How often each class is a label, and once more: (C,) float."""
    known = examples.labels.values.cpu()
    return 1 + torch.bincount(known[known < classes], minlength=classes).float()


@torch.no_grad()
def choose(
    model: EmbeddingModel, state: ServerState, counts: Tensor, examples: Examples, *, own: bool
) -> float:
    """τ = 1/κ; 0 where no example has a trained label, or none is ranked better.

    own: whether counts are `counted` of these very examples, so that each one's labels are in them.
    """
    found = _scored(model, state, counts, examples, own=own)
    return 0.0 if found is None else weight(*found)


@torch.no_grad()
def likeliest(
    model: EmbeddingModel,
    state: ServerState,
    counts: Tensor,
    examples: Examples,
    *,
    own: bool,
    learnt: bool = False,
    beyond: float = LIKELIER,
) -> float | None:
    """τ of the likeliest κ; None where labels are as likely by the counts alone. own: as above.

    learnt: whether the loss compares classes of several clients: cosines then know what is frequent.
    beyond: twice the gain in log-likelihood that is taken for luck.
    """
    found = _scored(model, state, counts, examples, own=own)
    return None if found is None else likelier_weight(*found, LEARNT if learnt else 1.0, beyond)


def _scored(
    model: EmbeddingModel, state: ServerState, counts: Tensor, examples: Examples, *, own: bool
) -> tuple[Tensor, Tensor, Tensor] | None:
    """Cosines of some examples, 1 for their labels, log n_c as each has it: (n, C); None of none."""
    classes, first = whole_of(class_vectors(model, state)), model.first_class
    owner, label = trained_labels(examples.labels, len(classes), first=first)
    labelled = torch.unique(owner)
    if not len(labelled):
        return None
    most = int(min(2000, max(50, SCORES / len(classes))))
    evenly = slice(None, None, max(1, -(-len(labelled) // most)))  # a file may be sorted
    chosen = labelled[evenly].contiguous()  # as searchsorted wants it
    embedded = [embed(model, state, examples, some) for some in torch.split(chosen, 256)]
    scores = (torch.cat(embedded) @ classes.T)[:, first:]
    inside = torch.isin(owner, chosen)
    row = torch.searchsorted(chosen, owner[inside]).to(scores.device)
    right = torch.zeros_like(scores)
    right[row, (label[inside] - first).to(scores.device)] = 1.0
    known = counts[first:].to(scores)
    bias = torch.log(known - right) if own else log_prior(known).expand_as(scores)
    return scores, right, bias


def weight(scores: Tensor, right: Tensor, bias: Tensor) -> float:
    """τ = 1/κ; 0 where every one that may be taken has fewer labels in first place than no prior.

    scores: cosines; right: 1 for a label, else 0; bias: log n_c as each example has it; (n, C) each.
    """
    if not bool(scores.isfinite().all()):  # a model that diverged: nothing to weigh
        return 0.0
    found = first_places(scores, right, bias)
    likely = last_as_good(log_likelihood(scores, right, bias))
    fitting = (k for k in range(likely, len(STEEPNESS)) if found[k] >= found[-1])
    return next((1 / STEEPNESS[k] for k in fitting), 0.0)


def likelier_weight(
    scores: Tensor, right: Tensor, bias: Tensor, exponent: float = 1.0, beyond: float = LIKELIER
) -> float | None:
    """exponent/κ of the likeliest κ; None where counts alone are as likely, as far as chance can tell.

    exponent: of n_c, whose log the bias is. Cosines that know no more than what is frequent make up for
    one below 1, so that counts alone have the better of it and 1.

    >>> import torch
    >>> right, even = torch.eye(2).repeat(10, 1), torch.zeros(20, 2)  # two classes, ten examples each
    >>> mostly = torch.cat([right[:15], 1 - right[15:]])  # 15 of 20 right: log 3 is what it says
    >>> likelier_weight(mostly, right, even), likelier_weight(even, right, even)
    (1.0, None)
    """
    if not bool(scores.isfinite().all()):
        return None
    by_model = log_likelihood(scores, right, exponent * bias).sum(1)
    by_counts = [log_likelihood(scores, right, a * bias, (0,)).sum() for a in {exponent, 1.0}]
    gain = float(by_model.max() - max(by_counts))
    return exponent / STEEPNESS[int(by_model.argmax())] if 2 * gain > beyond else None


def log_likelihood(
    scores: Tensor, right: Tensor, bias: Tensor, steepness: Sequence[float] = STEEPNESS
) -> Tensor:
    """The mean log-likelihood of each example's labels for each κ: (K, n)."""
    found = []
    for kappa in steepness:
        logits = kappa * scores + bias
        each = ((logits - logits.logsumexp(1, keepdim=True)) * right).sum(1) / right.sum(1)
        found.append(each.double().cpu())
    return torch.stack(found)


def first_places(scores: Tensor, right: Tensor, bias: Tensor) -> Tensor:
    """How many examples have a label in first place for each κ, and without a prior: (K + 1,).

    A class that scores as a label does is ahead of it.
    """
    found = []
    for tau in (*(1 / kappa for kappa in STEEPNESS), 0.0):
        ranked = torch.add(scores, bias, alpha=tau)
        best = ranked.masked_fill(right == 0, -math.inf).amax(1, keepdim=True)
        ahead = ((ranked >= best) & (right == 0)).sum(1)
        found.append((ahead == 0).sum())
    return torch.stack(found).cpu()


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
