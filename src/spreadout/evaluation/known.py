"""Classes by the labels of the nearest known examples, as SLEEC decodes (Bhatia et al. 2015).

A class table has one vector a class. Labels that depend on each other are not always found by that: an
input near to examples with {a, b, c} probably has all three. Who holds labelled examples and may embed
them, as a server may with those it holds out, can let the nearest of them vote.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from spreadout.core.ragged import Ragged
from spreadout.core.state import ServerState
from spreadout.data.held_out import Examples
from spreadout.evaluation.config import Decode, EvalConfig
from spreadout.evaluation.embed import blocks, embed
from spreadout.models.embedding import EmbeddingModel
from spreadout.objectives.neighbours import Nearest, nearest

TIE = 1e-6  # of a class's own score, where votes are level
BOTH = 3.0  # of it, where both count: the best of 0.3, 1 and 3 on Bibtex's validation instances


@dataclass(frozen=True)
class KnownExamples:
    """Embeddings of labelled examples, and how they vote.

    >>> import torch
    >>> import spreadout as so
    >>> from spreadout.evaluation.known import KnownExamples
    >>> known = KnownExamples(torch.eye(2), so.Ragged.from_lists([[0, 2], [1]]), neighbours=1)
    >>> table = torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.0, 0.5]])
    >>> best = Nearest(torch.tensor([[0.9, 0.4]]), torch.tensor([[0, 1]]))
    >>> known.best(torch.tensor([[0.9, 0.4]]), table, best).ids  # 0 and 2 have the nearest one's vote
    tensor([[0, 2]])
    """

    rows: Tensor  # (n, dim)
    labels: Ragged
    neighbours: int
    own: float = TIE  # weight of a class's own score beside the votes, which are shares of 1

    @classmethod
    def of(
        cls,
        model: EmbeddingModel,
        state: ServerState,
        examples: Examples,
        decode: Decode,
        neighbours: int,
    ) -> KnownExamples:
        """Embed those of the examples that have labels that can be ranked."""
        ranked = _within(examples.labels, model.first_class, model.tables["classes"].count)
        labelled = (ranked.lengths > 0).nonzero()[:, 0]
        parts = [embed(model, state, examples, some) for some in blocks(examples, model.outputs)]
        rows = torch.cat(parts)[labelled.to(parts[0].device)]
        labels = ranked.select(labelled)
        return cls(rows, labels, neighbours, BOTH if decode == "both" else TIE)

    def votes(self, embedded: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """What the nearest say: the example that is asked about, a label, and its share of the votes.

        embedded: (B, dim) → three of (votes,); a label may come several times. A neighbour's vote is its
        similarity, if that is above 0, as a part of the sum over all that vote.
        """
        near = nearest(embedded, self.rows, min(self.neighbours, len(self.rows)))
        weight = near.scores.clamp_min(0)
        weight = weight / weight.sum(1, keepdim=True).clamp_min(1e-12)  # (B, k)
        sets = self.labels.select(near.ids.flatten().cpu())
        each = sets.lengths.to(embedded.device)
        asked = torch.arange(len(embedded), device=embedded.device)
        asked = torch.repeat_interleave(asked, near.ids.shape[1])
        asked, share = (torch.repeat_interleave(one, each) for one in (asked, weight.flatten()))
        return asked, sets.values.to(embedded.device), share

    def best(self, embedded: Tensor, table: Tensor, by_class: Nearest) -> Nearest:
        """The best classes of each input, as many as `by_class` has by their vectors alone.

        embedded: (B, dim), maybe with a 1 behind for the prior; table: (C, dim) like it. Only classes
        that a neighbour votes for, or that are best by their vectors, are looked at.
        """
        k, classes = by_class.ids.shape[1], len(table)
        asked, label, share = self.votes(embedded[:, : self.rows.shape[1]])
        every = torch.arange(len(embedded), device=embedded.device)
        keys = torch.cat([asked * classes + label, (every[:, None] * classes + by_class.ids).flatten()])
        keys, place = torch.unique(keys, return_inverse=True)
        voted = torch.zeros(len(keys), device=embedded.device)
        voted.index_add_(0, place[: len(share)], share)
        asked, label = keys // classes, keys % classes
        score = voted + self.own * (embedded[asked] * table[label]).sum(1)
        order = torch.argsort(score, descending=True, stable=True)
        order = order[torch.argsort(asked[order], stable=True)]  # by input, the best first
        first = torch.searchsorted(asked, every)  # every input has at least its k
        chosen = order[first[:, None] + torch.arange(k, device=embedded.device)]
        return Nearest(score[chosen], label[chosen])


def _within(labels: Ragged, first: int, classes: int) -> Ragged:
    """The same without labels that have no row in the table."""
    kept = (labels.values >= first) & (labels.values < classes)
    before = torch.cat([kept.new_zeros(1, dtype=torch.int64), kept.cumsum(0)])
    return Ragged(before[labels.offsets], labels.values[kept])


def known_examples(
    config: EvalConfig, model: EmbeddingModel, state: ServerState, held: Examples | None
) -> KnownExamples | None:
    """The validation examples as the model sees them now; None where they do not vote."""
    if config.decode == "classes" or held is None:
        return None
    return KnownExamples.of(model, state, held, config.decode, config.neighbours)
