"""The embedding space on a plane: classes and some examples on their two principal axes."""

from __future__ import annotations

from typing import Any

import torch

from spreadout.core.state import ServerState
from spreadout.core.tables import local_of
from spreadout.data.dataset import Examples
from spreadout.evaluation.embed import embed
from spreadout.models.embedding import EmbeddingModel

MOST_CLASSES, MOST_EXAMPLES = 200, 400


@torch.no_grad()
def projection_of(model: EmbeddingModel, state: ServerState, examples: Examples) -> dict[str, Any]:
    """Class rows and examples projected on the two leading principal axes of both, uncentred.

    Uncentred, so that a collapsed space looks collapsed: everything lands on one spot far from 0.
    """
    labelled = (examples.labels.lengths > 0).nonzero()[:, 0]
    stride = max(1, len(labelled) // MOST_EXAMPLES)
    some = labelled[::stride][:MOST_EXAMPLES]
    rows = local_of(state.tables["classes"])[:MOST_CLASSES].float().cpu()
    points = embed(model, state, examples, some).float().cpu()
    label = examples.labels.values[examples.labels.offsets[some]]  # each example's first label
    together = torch.cat([rows, points])
    axes = torch.linalg.svd(together, full_matrices=False).Vh[:2]  # (2, d)
    return {
        "classes": _rounded(rows @ axes.T),
        "examples": _rounded(points @ axes.T),
        "labels": label.tolist(),
    }


def _rounded(points: torch.Tensor) -> list[list[float]]:
    return [[round(float(x), 4) for x in point] for point in points]
