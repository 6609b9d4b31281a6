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
    axes = _axes(together)  # (2, d)
    axes = torch.nn.functional.pad(axes, (0, 0, 0, 2 - len(axes)))  # there may be one direction only
    return {
        "classes": _rounded(rows @ axes.T),
        "examples": _rounded(points @ axes.T),
        "labels": label.tolist(),
    }


def _axes(points: torch.Tensor) -> torch.Tensor:
    """The two leading right singular vectors; in double, where squares of large values fit."""
    try:
        axes: torch.Tensor = torch.linalg.svd(points.double(), full_matrices=False).Vh[:2].float()
        return axes
    except RuntimeError:  # it does not converge: values too far apart in size, after too high rates
        return torch.eye(2, points.shape[1])


def _rounded(points: torch.Tensor) -> list[list[float]]:
    return [[round(float(x), 4) for x in point] for point in points]
