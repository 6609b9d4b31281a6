"""How sure a recall is when the test users are a sample of users: examples of one user are alike.

The examples of 604 users are not 81,000 independent ones. A recall is a ratio, hits over examples, both
sums over users; its standard error by users is that of such a ratio.

Beside it, what the recall is if items of the history are left out, as item-kNN leaves them out: nobody
rates a movie twice.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from spreadout.config.experiment import Experiment
from spreadout.data.columns import Lists
from spreadout.data.held_out import Examples
from spreadout.data.load import load_data
from spreadout.data.splits import Splits
from spreadout.evaluation.embed import ranked
from spreadout.evaluation.metrics import hits
from spreadout.evaluation.pooled import pool_of
from spreadout.evaluation.references import histories
from spreadout.evaluation.references.scoring import Clock, blocks
from spreadout.runs.predict import Predictor
from spreadout.runs.result import Result

DEPTHS = (1, 5, 10)
AT_ONCE = 4096


def error_by_user(right: Tensor, user: Tensor) -> float:
    """The standard error of mean(right) where users are drawn, not examples. right, user: (n,).

    R = Σ_u h_u / Σ_u n_u; to first order its error is that of the mean of h_u − R n_u.
    """
    _, owner = torch.unique(user, return_inverse=True)
    users = int(owner.max()) + 1
    found = torch.zeros(users, dtype=torch.float64).index_add_(0, owner, right.double())
    asked = torch.bincount(owner, minlength=users).double()
    off = found - found.sum() / asked.sum() * asked  # sums to 0
    return float((off.square().sum() * users / (users - 1)).sqrt() / asked.sum())


def best_items(predictor: Predictor, examples: Examples) -> tuple[Tensor, Tensor]:
    """The items ranked first, all, and without those of the history: two (n, deepest)."""
    model, deepest = predictor.model, max(DEPTHS)
    every, unseen = [], []
    for some in torch.split(torch.arange(len(examples)), AT_ONCE):
        histories = examples.inputs[model.inputs[0]].take(some)  # (b, L), then padding
        wide = min(deepest + histories.shape[1], model.class_count)
        best = ranked(model, predictor.state, examples, some, wide).ids.cpu()  # (b, wide)
        every.append(best[:, :deepest])
        unseen.append(without(best, histories)[:, :deepest])
    return torch.cat(every), torch.cat(unseen)


def without(ranking: Tensor, histories: Tensor) -> Tensor:
    """Each row with the items of its history behind all others. ranking: (b, n); histories: (b, L)."""
    known = (ranking[:, :, None] == histories[:, None, :]).any(2)
    return ranking.gather(1, known.to(torch.int8).argsort(dim=1, stable=True))


def by_item_knn(splits: Splits, scored: Examples) -> Tensor:
    """The items that item-kNN ranks first. (n, deepest)"""
    pool = pool_of(splits.train)
    ours, theirs = pool.inputs["history"], scored.inputs["history"]
    assert isinstance(ours, Lists)
    assert isinstance(theirs, Lists)
    met = histories.meetings(pool, ours, Clock(math.inf))
    scores = histories.meeting_scorer(met, theirs, pool.prior)
    some = blocks(len(scored), pool.classes)
    return torch.cat([scores(at).topk(min(max(DEPTHS), pool.classes), 1).indices for at in some])


def of_item_knn(splits: Splits, scored: Examples) -> dict[str, float]:
    """The error of each of item-kNN's recalls, in percent: about that of any model of its height."""
    return _errors(hits(by_item_knn(splits, scored), scored.labels), scored.user)


def _errors(right: Tensor, user: Tensor | None) -> dict[str, float]:
    """right: (n, deepest), whether the item at each place is the next one."""
    assert user is not None
    errors = {k: error_by_user(right[:, :k].any(1).float(), user) for k in DEPTHS}
    return {f"R@{k}": 100 * error for k, error in errors.items()}


def of_run(result: Result, experiment: Experiment) -> dict[str, Any]:
    """Beside the scores of a run whose test examples have users: the error of each recall, in percent,
    and the recalls where items of the history are left out."""
    splits = load_data(experiment.data, experiment.seed)
    scored = splits.test if experiment.eval.split == "test" else splits.validation
    if scored is None or scored.user is None:
        return {}
    every, unseen = (hits(best, scored.labels) for best in best_items(result.predictor, scored))
    return {
        "user_errors": _errors(every, scored.user),
        "unseen": {f"R@{k}": 100 * float(unseen[:, :k].any(1).double().mean()) for k in DEPTHS},
    }
