"""How far a model is trusted that may say no more than the prior: always the most frequent classes.

score = cosine + τ · log n_c is the prior alone as τ grows. Where little can be learnt from few examples,
that is better than a model that knows a little and is sure of too much. A model keeps its τ if it puts
more validation examples right than the prior does, by more than two standard errors of the difference,
example by example: the model that is kept and its τ are the best of many on the same examples. Of label
sets it is enough to be better in the mean of P@1, P@3 and P@5; a next item is right among the first ten.
Else τ is the likeliest one, which trusts the model as far as it was right; and where that is no likelier
than the prior, beyond chance, the prior ranks alone, and the cosine decides between classes that are as
frequent. Where the prior is right on fewer than six in ten, any gain is enough: a model has more
to gain there than to lose, and a dozen examples hardly tell it from chance. So it is for losses of a
client's own class; softmaxes over others' were no better by it (docs/defaults_found.md). Examples of
classes that nobody trains say nothing, and a prior that is right less than half as often never takes the
model's place.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from spreadout.core.state import ServerState
from spreadout.data.held_out import Examples
from spreadout.evaluation import cautious_prior
from spreadout.evaluation.embed import class_vectors, embed
from spreadout.evaluation.metrics import hits
from spreadout.evaluation.own_vote import own_votes, without_own_votes
from spreadout.evaluation.scoring import log_prior, with_one, with_prior
from spreadout.evaluation.standings import trained_labels
from spreadout.models.embedding import EmbeddingModel

ALONE = 100.0  # τ by which a cosine decides only between classes that are equally frequent, but for 2 %
LOOKS_AT = (1, 3, 5)  # places in the ranking of label sets
NEXT_ITEMS = 10  # places that a right one may have: what comes next is seldom in the first
FEWEST = 10  # examples, below which nothing is said
MOST = 2000  # that are looked at
ERRORS = 2  # standard errors by which a model is to be better
SELDOM = 0.6  # of the examples: a prior that is right less often is not worth much caution


@dataclass(frozen=True)
class Compared:
    """A model beside the prior alone, on the same examples."""

    better: bool  # whether the model surely is, or that cannot be told
    seldom: bool = False  # whether the prior is right on fewer than `SELDOM`; never of next items


def weighed(
    model: EmbeddingModel,
    state: ServerState,
    counts: Tensor,
    examples: Examples,
    tau: float,
    *,
    own: bool,
    learnt: bool = False,
) -> float:
    """τ as it is, the likeliest one if that is larger, or ALONE; own: as below.

    learnt: whether the model has learnt what is frequent (`cautious_prior.likeliest`).
    """
    found = compared(model, state, counts, examples, tau, own=own)
    if found.better:
        return tau
    likeliest = cautious_prior.likeliest(
        model,
        state,
        counts,
        examples,
        own=own,
        learnt=learnt,
        beyond=0.0 if found.seldom and not learnt else cautious_prior.LIKELIER,
    )
    return ALONE if likeliest is None else max(tau, likeliest)  # it is trusted no more than before


@torch.no_grad()
def compared(
    model: EmbeddingModel,
    state: ServerState,
    counts: Tensor,
    examples: Examples,
    tau: float,
    *,
    own: bool,
) -> Compared:
    """Whether a model with τ surely ranks these examples better than the prior.

    own: whether counts are of these very examples, so that each one's labels are in them.
    """
    prior = log_prior(counts)
    last = model.first_class + model.class_count
    owner, _ = trained_labels(examples.labels, last, first=model.first_class)
    labelled = torch.unique(owner)
    if len(labelled) < FEWEST or not bool((prior[model.first_class :] < prior.max()).any()):
        return Compared(better=True)
    chosen = labelled[:: max(1, -(-len(labelled) // MOST))]  # evenly: a file may be sorted
    rules = [(with_prior(class_vectors(model, state), t * prior), t) for t in (tau, ALONE)]
    sets = int(examples.labels.lengths.max()) > 1
    wanted = [NEXT_ITEMS] if model.takes_histories else list(LOOKS_AT) if sets else [1]
    depths = [k for k in wanted if k <= model.class_count] or [model.class_count]
    places = max(depths)
    found, right = [], torch.zeros(2)
    for part in torch.split(chosen, 256):
        embedded, labels = with_one(embed(model, state, examples, part)), examples.labels.select(part)
        wide = min(places + int(labels.lengths.max()), model.class_count)
        reached = []
        for table, weight in rules:
            best = model.best_classes(embedded, table, wide if own else places)
            if own:
                best = without_own_votes(best, labels, own_votes(counts, weight), places)
            reached.append(hits(best.ids.cpu(), labels).float().cumsum(1))
        found.append(reached[0] - reached[1])
        right += torch.stack([one[:, depths[0] - 1].sum() for one in reached])
    if not may_replace(*right.tolist()):
        return Compared(better=True)
    gained = torch.cat(found)  # (n, places), up to each place
    deep = torch.stack([gained[:, k - 1] / k for k in depths]).mean(0)
    more = is_more(gained[:, depths[0] - 1]) or is_more(deep)
    seldom = not model.takes_histories and float(right[1]) < SELDOM * len(chosen)
    return Compared(more, seldom)


def may_replace(model: float, prior: float) -> bool:
    """Whether the prior is right often enough: half as often as the model, or more.

    Of ten examples of a hundred classes, a model that is right once has shown more than a prior that
    never is, though not beyond an error.

    >>> may_replace(model=1, prior=0), may_replace(model=7, prior=6)
    (False, True)
    """
    return prior >= model / 2


def is_more(gained: Tensor) -> bool:
    """Whether the mean is above 0 by more than two standard errors; as if one more were lost.

    >>> import torch
    >>> is_more(torch.tensor([1.0] * 6 + [0.0] * 14)), is_more(torch.tensor([1.0] * 3 + [0.0] * 17))
    (True, False)
    """
    n, mean = len(gained), gained.double().mean()
    error = math.sqrt((float((gained.double() - mean).square().sum()) + 1) / (n * (n - 1)))
    return float(mean) > ERRORS * error
