"""Ranks of right classes among all classes, rivals in a batch, neighbours among examples.

Everything is counted in blocks of bounded memory.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from spreadout.core import randomness
from spreadout.core.ragged import Ragged
from spreadout.core.rows import project_to_sphere
from spreadout.core.state import ServerState
from spreadout.core.tables import Table
from spreadout.data.held_out import Examples
from spreadout.evaluation.embed import embed
from spreadout.evaluation.metric import Neighbours
from spreadout.models.embedding import EmbeddingModel
from spreadout.objectives.neighbours import nearest

BATCH = 16  # examples of a batch whose items are rivals (003, Fig. 3)
HOST = torch.device("cpu")
RANKED_AT_ONCE = 1 << 26  # scores in memory at once when ranks are counted


def rank_of_right(
    embedded: Tensor, classes: Tensor, labels: Ragged, first: int = 0, votes: Tensor | None = None
) -> Tensor:
    """Where each labelled example's best-placed right class stands among all, from 1.

    Classes with the very same score count half: a collapsed table is ranked in the middle, not first. An
    example whose classes are all untrained stands at infinity. first: the first row's class. votes: (C,)
    what an example's own classes are to lose (`own_vote.py`).
    """
    owner, label = trained_labels(labels, first + len(classes), embedded.device)
    label = label - first
    # Two passes over the same blocks, so that a score is the same number wherever it is compared.
    starts = range(0, len(classes), max(1, RANKED_AT_ONCE // max(len(embedded), 1)))
    blocks = [classes[start : start + starts.step] for start in starts]
    best = torch.full((len(embedded),), -torch.inf, device=embedded.device)

    def scored(start: int, block: Tensor) -> tuple[Tensor, Tensor]:
        """(n, block), and which of the pairs are in it."""
        here, scores = (label >= start) & (label < start + len(block)), embedded @ block.T
        if votes is not None:
            lost = votes.to(scores)[first + label[here]]
            scores[owner[here], label[here] - start] -= lost
        return scores, here

    for start, block in zip(starts, blocks, strict=True):
        scores, here = scored(start, block)
        right = scores[owner[here], label[here] - start]
        best = best.scatter_reduce(0, owner[here], right, "amax")
    above, level = torch.zeros_like(best), torch.zeros_like(best)
    for start, block in zip(starts, blocks, strict=True):
        scores, _ = scored(start, block)
        above += (scores > best[:, None]).sum(1)
        level += (scores == best[:, None]).sum(1)
    rank = torch.where(best > -torch.inf, 1 + above + (level - 1) / 2, torch.inf)
    return rank[(labels.lengths > 0).to(rank.device)]


def batch_rivals(
    model: EmbeddingModel, state: ServerState, examples: Examples, classes: Tensor
) -> Tensor:
    """How many items of its batch stand before each example's own (003, Fig. 3): what training sees.

    Batches are drawn once and for all from the examples in a shuffled order; each example's first label
    counts, and a rival with the very same score counts half.
    """
    first = examples.labels.offsets[:-1].clamp_max(max(len(examples.labels.values) - 1, 0))
    trained = (examples.labels.lengths > 0) & (examples.labels.values[first] < len(classes))
    batch, usable = BATCH, trained.nonzero()[:, 0].numpy()
    bits = randomness.bits(randomness.key(0, "batch recall"), usable)
    order = torch.from_numpy(usable[np.argsort(bits, kind="stable")])
    order = order[: len(order) // batch * batch]
    found = []
    for some in torch.split(order, batch * 256):
        embedded = embed(model, state, examples, some).view(-1, batch, classes.shape[1])
        label = examples.labels.values[first[some]].to(classes.device).view(-1, batch)
        scores = embedded @ classes[label].transpose(1, 2)  # (batches, 16, 16)
        own = torch.diagonal(scores, dim1=1, dim2=2)[..., None]
        other = label[:, :, None] != label[:, None, :]  # the same item again is no rival
        above = ((scores > own) & other).sum(-1) + ((scores == own) & other).sum(-1) / 2
        found.append(above.flatten())
    return torch.cat(found) if found else torch.empty(0)


def neighbours_of(embedded: Tensor, labels: Ragged, depths: Sequence[int | None]) -> Neighbours:
    """Of every example with a label: which of its nearest others share its first one, and how many do.

    depths: how many neighbours each metric looks at; None: as many as the largest class has.
    """
    labelled = (labels.lengths > 0).nonzero()[:, 0]
    label = labels.values[labels.offsets[labelled]]
    _, place, count = torch.unique(label, return_inverse=True, return_counts=True)
    sizes = count[place] - 1
    rows = project_to_sphere(embedded[labelled.to(embedded.device)])
    deepest = max((int(sizes.max()) if k is None else k for k in depths), default=1)
    most = min(deepest, len(rows) - 1)
    every = torch.arange(len(rows), device=rows.device)
    found = nearest(rows, rows, max(most, 1), exclude=every)
    mine = label.to(rows.device)
    right = (mine[found.ids] == mine[:, None]) & (found.scores > -torch.inf)
    return Neighbours(right, sizes.to(rows.device))


def distance_to_own(embedded: Tensor, classes: Table, labels: Ragged) -> Tensor:
    """Euclidean distance of each example to each of its own classes, on the sphere."""
    owner, label = trained_labels(labels, len(classes), classes.device)
    s = (project_to_sphere(embedded)[owner] * project_to_sphere(classes[label])).sum(-1)
    return (2 - 2 * s).clamp_min(0).sqrt()


def trained_labels(
    labels: Ragged, end: int, device: torch.device = HOST, *, first: int = 0
) -> tuple[Tensor, Tensor]:
    """Which example has which label, of those from `first` on and below `end`: others have no row."""
    owner = torch.repeat_interleave(torch.arange(len(labels)), labels.lengths)
    trained = (labels.values >= first) & (labels.values < end)
    return owner[trained].to(device), labels.values[trained].to(device)
