"""The embedding space on a plane: classes and some examples on their two principal axes."""

from __future__ import annotations

import base64
from typing import Any

import torch

from spreadout.core.state import ServerState
from spreadout.core.tables import local_of
from spreadout.data.held_out import Examples
from spreadout.evaluation.embed import embed
from spreadout.models.embedding import EmbeddingModel

MOST_CLASSES, MOST_EXAMPLES = 100_000, 400
KEPT = 64  # leading axes of which classes keep their coordinates, to find neighbours by
EXACT = 20_000  # points of which axes are found by their singular values, not by their squares


@torch.no_grad()
def projection_of(model: EmbeddingModel, state: ServerState, examples: Examples) -> dict[str, Any]:
    """Class rows and examples projected on the two leading principal axes of both, uncentred.

    Uncentred, so that a collapsed space looks collapsed: everything lands on one spot far from 0. Of
    very many classes some are taken, evenly spread; `ids` says which.
    """
    labelled = (examples.labels.lengths > 0).nonzero()[:, 0]
    stride = max(1, len(labelled) // MOST_EXAMPLES)
    some = labelled[::stride][:MOST_EXAMPLES]
    table = local_of(state.tables["classes"])
    first, last = model.first_class, len(table) - 1  # rows below the first are padding
    count = min(MOST_CLASSES, last + 1 - first)
    every = torch.linspace(first, last, count, dtype=torch.float64).long()
    rows = table[every.to(table.device)].float().cpu()
    points = embed(model, state, examples, some).float().cpu()
    label = examples.labels.values[examples.labels.offsets[some]]  # each example's first label
    axes = _axes(torch.cat([rows, points]), max(2, min(KEPT, rows.shape[1])))  # (≤ KEPT, d)
    plane = torch.nn.functional.pad(axes[:2], (0, 0, 0, max(0, 2 - len(axes))))  # there may be but one
    return {
        "classes": _rounded(rows @ plane.T),
        "examples": _rounded(points @ plane.T),
        "labels": label.tolist(),
        "ids": every.tolist() if len(every) < len(table) else None,
        "vectors": _small(rows @ axes.T),
    }


def _axes(points: torch.Tensor, count: int = 2) -> torch.Tensor:
    """The leading right singular vectors; in double, where squares of large values fit."""
    try:
        if len(points) <= EXACT:
            found: torch.Tensor = torch.linalg.svd(points.double(), full_matrices=False).Vh
            return found[:count].float()
        gram = torch.zeros(points.shape[1], points.shape[1], dtype=torch.float64)
        for part in torch.split(points, EXACT):
            gram += part.double().T @ part.double()
        leading: torch.Tensor = torch.linalg.eigh(gram).eigenvectors.T.flip(0)
        return leading[:count].float()
    except RuntimeError:  # it does not converge: values too far apart in size, after too high rates
        return torch.eye(count, points.shape[1])


def _small(points: torch.Tensor) -> dict[str, Any]:
    """Rows as bytes, each scaled by its largest coordinate: cosines between them stay right to 0.01."""
    scale = points.abs().amax(1, keepdim=True)
    whole = torch.where(scale > 0, points / scale * 127, torch.zeros(())).nan_to_num(0, 0, 0)
    data = base64.b64encode(whole.round().to(torch.int8).numpy().tobytes()).decode()
    return {"dims": points.shape[1], "data": data}


def _rounded(points: torch.Tensor) -> list[list[float]]:
    return [[round(x, 4) for x in point] for point in points.double().tolist()]
