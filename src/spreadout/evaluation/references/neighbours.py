"""Votes of the nearest training instances by the cosine of their features."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from spreadout.core.ragged import Ragged
from spreadout.evaluation.references.features import Features
from spreadout.evaluation.references.scoring import TIE, Scorer
from spreadout.objectives.neighbours import nearest

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

    def scorer(self, features: Features, prior: Tensor, count: int) -> Scorer:
        """The `count` nearest give each of their labels their cosine; ties go to the more frequent."""
        lengths, starts = self.labels.lengths, self.labels.offsets[:-1]

        def scores(at: Tensor) -> Tensor:
            near = nearest(features.rows(at), self.rows, min(count, len(self.rows)))
            ids, cosine = near.ids.cpu().flatten(), near.scores.cpu().double().clamp_min(0).flatten()
            who = torch.arange(len(at)).repeat_interleave(near.ids.shape[1])
            each = lengths[ids]
            pair = torch.repeat_interleave(torch.arange(len(ids)), each)
            within = torch.arange(len(pair)) - (each.cumsum(0) - each)[pair]
            label = self.labels.values[starts[ids][pair] + within]
            found = (TIE * prior).repeat(len(at), 1)
            votes = torch.zeros(len(at) * len(prior), dtype=torch.float64)
            votes.index_add_(0, who[pair] * len(prior) + label, cosine[pair])
            return found + votes.view(len(at), -1)

        return scores
