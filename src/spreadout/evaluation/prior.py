"""How much the prior over classes counts: τ, found on validation examples (see `scoring.py`).

By rank: the τ of a grid whose P@1, P@3 and P@5 are best. By likelihood: where the density of a class is
∝ exp(κ · cosine) with one κ for all classes, Bayes' rule says p(c | x) ∝ n_c · exp(κ · cosine), so that
τ = 1/κ; and κ is what makes the labels most likely, the maximum of a concave function of one number.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor

from spreadout.core.ragged import Ragged
from spreadout.core.state import ServerState
from spreadout.core.tables import whole_of
from spreadout.data.held_out import Examples
from spreadout.evaluation import cautious_prior
from spreadout.evaluation.embed import class_vectors, embed
from spreadout.evaluation.metrics import hits
from spreadout.evaluation.scoring import log_prior, with_one, with_prior
from spreadout.evaluation.standings import trained_labels
from spreadout.models.embedding import EmbeddingModel

UNKNOWN = 0.03  # τ where there is no validation data to choose it by
TRIED = (0.0, 0.003, 0.01, 0.02, 0.03, 0.05, 0.08, 0.12, 0.2, 0.3, 0.5)
WORK = 2e11  # multiply-adds that a choice may cost
FEW = 100  # examples, below which "auto" is found by likelihood (docs/defaults_found.md)
LOOKS_AT = (1, 3, 5)  # τ is chosen by the mean of P@k over these
SCORES = 2e7  # numbers that a fit may keep in memory
STEEPEST, FLATTEST = 1000.0, 2.0  # κ is between them
STEPS = 25  # of Newton or bisection; five to eight are enough, as a rule


def found(
    how: Literal["auto", "likelihood"],
    model: EmbeddingModel,
    state: ServerState,
    counts: Tensor,
    examples: Examples | None,
    known: float | None = None,
) -> float:
    """τ by rank or by likelihood; where few examples are there to rank, a rank is luck.

    examples: for validation. known: the τ that follows from the loss: as likely as any can be, and for
    the rank where there are no such examples.
    """
    if how == "likelihood" and known is not None:
        return known
    if examples is None:
        return UNKNOWN if known is None else known
    if how == "likelihood":
        return most_likely(model, state, counts, examples)
    if 0 < int((examples.labels.lengths > 0).sum()) < FEW:
        return cautious_prior.choose(model, state, counts, examples, own=False)
    return choose(model, state, counts, examples)


@torch.no_grad()
def choose(model: EmbeddingModel, state: ServerState, counts: Tensor, examples: Examples) -> float:
    """The τ whose ranking is best on these examples, the smallest of equals.

    Best is the mean of P@1, P@3 and P@5 over some of the examples that have a label.
    """
    labelled = (examples.labels.lengths > 0).nonzero()[:, 0]
    if not len(labelled):
        return UNKNOWN
    classes, scale = class_vectors(model, state), log_prior(counts)
    most = int(WORK / (len(TRIED) * len(classes) * (model.outputs + 1)))
    every = max(1, -(-len(labelled) // max(200, min(most, 2000))))
    chosen = labelled[::every]  # evenly, so that no part of a sorted file is left out
    depths = [k for k in LOOKS_AT if k <= model.class_count]
    found = torch.zeros(len(TRIED), dtype=torch.float64)
    wide = [with_prior(classes, tau * scale) for tau in TRIED] if len(classes) <= 20_000 else None
    for part in torch.split(chosen, 512):
        embedded, right = with_one(embed(model, state, examples, part)), examples.labels.select(part)
        for i, tau in enumerate(TRIED):
            table = wide[i] if wide is not None else with_prior(classes, tau * scale)
            ranking = model.best_classes(embedded, table, max(depths)).ids.cpu()
            found[i] += _precision(ranking, right, depths)
    return TRIED[int(found.argmax())]


@torch.no_grad()
def most_likely(model: EmbeddingModel, state: ServerState, counts: Tensor, examples: Examples) -> float:
    """1/κ for the κ under which the labels of these examples are most likely, each label by itself."""
    classes, first = whole_of(class_vectors(model, state)), model.first_class
    owner, _ = trained_labels(examples.labels, len(classes), first=first)
    labelled = torch.unique(owner)
    if not len(labelled):
        return UNKNOWN
    every = max(1, -(-len(labelled) // int(min(2000, max(50, SCORES / len(classes))))))
    chosen = labelled[::every]
    parts = [embed(model, state, examples, some) @ classes.T for some in torch.split(chosen, 512)]
    right = examples.labels.select(chosen)
    owner, label = trained_labels(right, len(classes), classes.device, first=first)
    return 1 / steepness(
        torch.cat(parts)[:, first:],
        owner,
        label - first,
        log_prior(counts)[first:].to(classes.device),
    )


def steepness(scores: Tensor, owner: Tensor, label: Tensor, bias: Tensor) -> float:
    """The κ that makes Σ log softmax(κ · scores + bias)[owner, label] largest, within bounds.

    scores: (n, C); owner, label: (p,) pairs of an example and a class of it; bias: (C,) log n_c. The sum
    is concave in κ: its slope is Σ (s_y − E s), and falls by the sum of the variances.

    >>> import torch
    >>> scores, ten_times = torch.tensor([[0.1, 0.0], [0.1, 0.0]]), torch.log(torch.tensor([1.0, 10.0]))
    >>> kappa = steepness(scores, torch.tensor([0, 1]), torch.tensor([0, 1]), ten_times)
    >>> round(kappa * 0.1, 3)  # right as often as wrong: what the score says is log 10
    2.303
    """
    reached, times = scores[owner, label].double().sum(), torch.bincount(owner, minlength=len(scores))
    low, high = FLATTEST, STEEPEST
    kappa = 30.0
    for _ in range(STEPS):
        slope, bend = reached, 0.0
        for some in torch.split(torch.arange(len(scores), device=scores.device), 256):
            chance = torch.softmax(kappa * scores[some] + bias, 1)  # (b, C)
            mean = (chance * scores[some]).sum(1).double()
            square = (chance * scores[some].square()).sum(1).double()
            slope = slope - (times[some] * mean).sum()
            bend += float((times[some] * (square - mean.square())).sum())
        low, high = (kappa, high) if float(slope) > 0 else (low, kappa)
        wanted = kappa + float(slope) / bend if bend > 0 else math.inf
        if abs(wanted - kappa) < 1e-4 * kappa:
            break
        kappa = wanted if low < wanted < high else (low * high) ** 0.5
    return kappa


def _precision(ranking: Tensor, labels: Ragged, depths: Sequence[int]) -> float:
    """Σ over examples of the mean of P@k; ranking: (n, k)."""
    reached = hits(ranking, labels).double().cumsum(1)  # (n, k)
    return float(sum((reached[:, k - 1] / k).sum() for k in depths)) / len(depths)
