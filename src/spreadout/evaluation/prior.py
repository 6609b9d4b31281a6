"""How much the prior over classes counts: τ, chosen on validation examples (see `scoring.py`)."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from spreadout.core.state import ServerState
from spreadout.data.dataset import Examples
from spreadout.evaluation.embed import class_vectors, embed
from spreadout.evaluation.scoring import log_prior, with_one, with_prior
from spreadout.models.embedding import EmbeddingModel

UNKNOWN = 0.03  # τ where there is no validation data to choose it by
TRIED = (0.0, 0.003, 0.01, 0.02, 0.03, 0.05, 0.08, 0.12, 0.2, 0.3, 0.5)
WORK = 2e11  # multiply-adds that a choice may cost
LOOKS_AT = (1, 3, 5)  # τ is chosen by the mean of P@k over these


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
            found[i] += _precision(ranking, right.values, right.offsets, depths)
    return TRIED[int(found.argmax())]


def _precision(ranking: Tensor, labels: Tensor, offsets: Tensor, depths: Sequence[int]) -> float:
    """Σ over examples of the mean of P@k; ranking: (n, k)."""
    count = int(max(int(ranking.max()), int(labels.max()))) + 1
    owner = torch.repeat_interleave(torch.arange(len(ranking)), offsets.diff())
    right = torch.isin(torch.arange(len(ranking))[:, None] * count + ranking, owner * count + labels)
    hits = right.double().cumsum(1)  # (n, k)
    return float(sum((hits[:, k - 1] / k).sum() for k in depths)) / len(depths)
