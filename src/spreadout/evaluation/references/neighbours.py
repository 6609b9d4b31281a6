"""Votes of the nearest training instances by the cosine of their features."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from spreadout.core.ragged import Ragged
from spreadout.evaluation.references.features import Features
from spreadout.evaluation.references.scoring import TIE, Scorer
from spreadout.objectives.neighbours import Nearest, nearest

COUNTS = (1, 3, 10, 30, 100)  # neighbours that vote


@dataclass(frozen=True)
class Voters:
    """Training instances on the sphere, and their labels."""

    rows: Tensor  # (n, F) unit vectors
    labels: Ragged

    @classmethod
    def of(cls, features: Features, labels: Ragged, at: Tensor) -> Voters:
        """`features` have rows of length 1."""
        return cls(torch.cat([block for _, block in features.blocks(at)]), labels.select(at))

    def nearest(self, rows: Tensor, count: int) -> Nearest:
        """Of each row the `count` nearest, or as many as there are."""
        return nearest(rows, self.rows, min(count, len(self.rows)))

    def scorer(self, features: Features, prior: Tensor, count: int) -> Scorer:
        """The `count` nearest give each of their labels their cosine; ties go to the more frequent."""
        return lambda at: self.votes(self.nearest(features.rows(at), count), prior)

    def votes(self, near: Nearest, prior: Tensor) -> Tensor:
        """(n, C) double"""
        n, classes = len(near.ids), len(prior)
        ids, cosine = near.ids.cpu().flatten(), near.scores.cpu().double().clamp_min(0).flatten()
        who = torch.arange(n).repeat_interleave(near.ids.shape[1])
        own = self.labels.select(ids)
        pair = torch.repeat_interleave(torch.arange(len(ids)), own.lengths)
        votes = torch.zeros(n * classes, dtype=torch.float64)
        votes.index_add_(0, who[pair] * classes + own.values, cosine[pair])
        return votes.view(n, classes) + TIE * prior
