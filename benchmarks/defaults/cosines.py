"""What a run chooses by: cosines with all classes at every evaluation, and which of them it keeps.

A prior does not change how FedAwS, FedSS and FedAvg train. So a model is trained once, and rules for its
prior are compared afterwards, as the run would have chosen by them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor

import spreadout as so
from benchmarks.defaults.jobs import Job
from spreadout.core.tables import whole_of
from spreadout.data.held_out import Examples
from spreadout.evaluation.embed import class_vectors, embed
from spreadout.runs.session import Session

PATIENCE = 10  # evaluations, as a default run has
PLAIN = ("eval.references=false", "eval.patience=1000", "method.prior=0")  # changes of such a run


def cosines_of(job: Job, dtype: torch.dtype = torch.float32) -> dict[str, Any]:
    """Cosines at every evaluation: `validation` and `test` (E, n, C), their labels, clients' counts."""
    found: dict[str, list[Tensor]] = {"validation": [], "test": []}
    labels: dict[str, Any] = {}
    evaluate = Session._evaluate

    def kept(session: Session) -> None:
        evaluate(session)
        data, model, state = session.data, session.federation.model, session.state
        classes = whole_of(class_vectors(model, state))
        for name, held in (("validation", data.validation), ("test", data.test)):
            assert held is not None
            cosines = embed(model, state, held, torch.arange(len(held))) @ classes.T
            found[name].append(cosines.to(dtype))
            labels[f"{name} labels"] = _labels(held, len(classes))
        named, times = data.train.label_counts
        labels["counts"] = torch.zeros(len(classes)).index_add_(0, named.values, times.values.float())

    with patch.object(Session, "_evaluate", kept):
        so.run(job.experiment(), device="cpu", progress=False)
    return {**{name: torch.stack(each) for name, each in found.items()}, **labels}


def _labels(held: Examples, classes: int) -> Tensor:
    """True where a class is a label: (n, C)."""
    found = torch.zeros(len(held), classes, dtype=torch.bool)
    owner = torch.repeat_interleave(torch.arange(len(held)), held.labels.lengths)
    known = held.labels.values < classes
    found[owner[known], held.labels.values[known]] = True
    return found


def precision(ranking: Tensor, right: Tensor) -> float:
    """P@1 in percent."""
    return 100 * float(right.gather(1, ranking.argmax(1, keepdim=True)).double().mean())


def is_over(scores: Sequence[float]) -> bool:
    """Whether a run with such validation scores stops."""
    return len(scores) - 1 - scores.index(max(scores)) >= PATIENCE


def kept_of(scores: Sequence[float], examples: int) -> int:
    """The last evaluation within a standard error of the best, as `eval.keep` has it."""
    share = max(scores) / 100
    least = max(scores) - 100 * math.sqrt(share * (1 - share) / examples)
    return max(i for i, score in enumerate(scores) if score >= least)
