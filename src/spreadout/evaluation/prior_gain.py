"""What the prior over classes gains and what it costs: scores with it and without, by frequency.

A prior ranks frequent classes higher. It may buy P@k by forgetting rare ones: their share of P@k and
PSP@k, where a rare class counts more, tell.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from torch import Tensor

from spreadout.core.state import ServerState
from spreadout.data.held_out import Examples
from spreadout.evaluation.by_class import looked_at
from spreadout.evaluation.evaluate import evaluate
from spreadout.evaluation.frequencies import Frequencies
from spreadout.models.embedding import EmbeddingModel

DEPTHS = (1, 3, 5)
KINDS = ("P@{}", "P@{} frequent", "P@{} infrequent", "PSP@{}")


def with_and_without(
    model: EmbeddingModel,
    state: ServerState,
    held_out: Examples,
    tau: float,
    propensity: tuple[float, float],
    counts: Tensor,
    votes: Tensor | None = None,
) -> dict[str, Any] | None:
    """For `summary.json`: the same metrics of the same examples, ranked with the prior and without.

    state: with the model's prior; counts: n_c of the training data. None where no example has a trained
    class. votes: what labels of these very examples have added to the prior (`own_vote.py`).
    """
    some = looked_at(model, held_out, len(counts))
    if not len(some):
        return None
    columns = {name: column.select(some) for name, column in held_out.inputs.items()}
    scored = Examples(columns, held_out.labels.select(some))
    many = frequent_count(counts)
    seen = Frequencies(counts.cpu(), int(counts.sum()), many, propensity)
    names = [kind.format(k) for kind in KINDS for k in DEPTHS if k <= model.class_count]
    alone = replace(state, scoring={})
    found = {
        how: evaluate(model, its, scored, names, seen=seen, votes=own).metrics
        for how, its, own in (("with_prior", state, votes), ("without", alone, None))
    }
    return {"weight": tau, "frequent_classes": many, "examples": len(scored), **found}


def frequent_count(counts: Tensor) -> int:
    """How many classes count as frequent: the fewest that have half of all labels.

    >>> import torch
    >>> frequent_count(torch.tensor([5.0, 1.0, 3.0, 2.0]))  # 5 and 3 of 11
    2
    """
    falling = counts.double().sort(descending=True).values.cumsum(0)
    return int((falling < falling[-1] / 2).sum()) + 1
