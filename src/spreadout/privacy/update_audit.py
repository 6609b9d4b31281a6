"""What a server learns about a client's classes from how far the rows it sends back have moved.

A client's own rows are pulled to its examples, its negatives are pushed away: they move by different
lengths and in different directions. An observer scores every row of an update and guesses the highest.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from spreadout.core.rows import Rows

Classes = NDArray[np.int64]
SCORES = ("length", "from the median", "against the mean")


@dataclass(frozen=True)
class Moved:
    """How much of clients' classes is found among the rows that stand out, in the mean over clients."""

    clients: int
    found: float  # share of a client's classes among as many guesses, by the best of the scores
    by: str  # that score
    chance: float  # what guessing among the rows of an update would find


def scores(values: torch.Tensor) -> dict[str, torch.Tensor]:
    """How much each row of an update stands out: (m, d) → (m,) by score."""
    each = values.double()
    lengths = (
        each.norm(dim=1),
        (each - each.median(0).values).norm(dim=1),
        -(each @ each.mean(0)),
    )
    return dict(zip(SCORES, lengths, strict=True))


def moved(updates: Iterable[tuple[Rows, Classes]]) -> Moved:
    """updates: the class rows a client sent back, and the classes that are its own."""
    found: dict[str, list[float]] = {score: [] for score in SCORES}
    chance = []
    for rows, own in updates:
        if not len(own) or not len(rows):
            continue
        for score, value in scores(rows.values).items():
            guesses = rows.ids[value.topk(min(len(own), len(rows))).indices].cpu().numpy()
            found[score].append(float(np.isin(guesses, own).sum() / len(own)))
        chance.append(min(1.0, len(own) / len(rows)))
    if not chance:
        return Moved(0, 0.0, SCORES[0], 0.0)
    best = max(SCORES, key=lambda score: float(np.mean(found[score])))
    return Moved(len(chance), float(np.mean(found[best])), best, float(np.mean(chance)))
