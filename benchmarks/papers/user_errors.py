"""How sure a recall is when the test users are a sample of users: examples of one user are alike.

The examples of 604 users are not 81,000 independent ones. A recall is a ratio, hits over examples, both
sums over users; its standard error by users is that of such a ratio.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from spreadout.config.experiment import Experiment
from spreadout.data.dataset import Examples
from spreadout.data.load import load_data
from spreadout.evaluation.embed import ranked
from spreadout.evaluation.metrics import hits
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


def recall_errors(predictor: Predictor, examples: Examples) -> dict[str, float]:
    """Of R@1, R@5 and R@10, in percent."""
    assert examples.user is not None
    best = []
    for some in torch.split(torch.arange(len(examples)), AT_ONCE):
        best.append(ranked(predictor.model, predictor.state, examples, some, max(DEPTHS)).ids.cpu())
    right = hits(torch.cat(best), examples.labels)
    return {f"R@{k}": 100 * error_by_user(right[:, :k].any(1).float(), examples.user) for k in DEPTHS}


def of_run(result: Result, experiment: Experiment) -> dict[str, Any]:
    """Beside the scores of a run whose test examples have users: the error of each recall."""
    splits = load_data(experiment.data, experiment.seed)
    scored = splits.test if experiment.eval.split == "test" else splits.validation
    if scored is None or scored.user is None:
        return {}
    return {"user_errors": recall_errors(result.predictor, scored)}
