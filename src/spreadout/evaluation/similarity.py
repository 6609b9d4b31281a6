"""How alike classes are, before training and after: a histogram of cosines between pairs of them."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from spreadout.core.rows import project_to_sphere
from spreadout.core.state import ServerState
from spreadout.core.tables import table_bytes, whole_of
from spreadout.evaluation.embed import class_vectors
from spreadout.models.embedding import EmbeddingModel

BINS = 80  # from −1 to 1
MOST = 1000  # classes, evenly spread, whose pairs are looked at
MOST_BYTES = 1 << 28  # of a table that is drawn again, to see it as it was


def similarity_of(model: EmbeddingModel, state: ServerState, seed: int) -> dict[str, Any] | None:
    """Shares of pairs by their cosine; None where there are no two classes with rows.

    before: None where the table is too large to be drawn again.
    """
    if not model.has_class_table or model.class_count < 2:
        return None
    before = None
    if sum(map(table_bytes, state.tables.values())) <= MOST_BYTES:
        fresh = ServerState(0, *model.initial(seed, torch.device("cpu")))
        before = histogram(_some(model, fresh))
    return {"before": before, "after": histogram(_some(model, state))}


def histogram(rows: Tensor) -> list[float]:
    """Of unit rows (m, d): the share of pairs in each of `BINS` equal bins.

    >>> found = histogram(torch.eye(3))
    >>> found.index(1.0), BINS // 2
    (40, 40)
    """
    upper = torch.ones(len(rows), len(rows), dtype=torch.bool).triu(1)
    cosines = (rows @ rows.T)[upper].clamp(-1, 1)
    counts = torch.histc(cosines, BINS, -1, 1)
    return [round(float(v), 6) for v in counts / max(len(cosines), 1)]


def _some(model: EmbeddingModel, state: ServerState) -> Tensor:
    rows = model.ranked_rows(whole_of(class_vectors(model, state)))
    every = torch.linspace(0, len(rows) - 1, min(MOST, len(rows)), dtype=torch.float64).long()
    picked: Tensor = rows[every].float().cpu()
    return project_to_sphere(picked)
