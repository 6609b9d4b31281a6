"""A sum over each row and its nearest ones (Eq. 8 of FedAwS; FedALC, Eq. 11), found anew or again."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from spreadout.core.rows import Rows
from spreadout.core.tables import Table, added, local_of, places_in
from spreadout.objectives.cooccurrence import PairWeights
from spreadout.objectives.neighbours import DEFAULT_BUDGET, Nearest, nearest
from spreadout.objectives.penalties import Penalty
from spreadout.objectives.table_loss import Reduction, TableLoss

Search = Callable[[Tensor, Tensor], Nearest]
"""Neighbours of some rows, given with their ids, which are not their own neighbours."""


def mined_pairs(
    table: Table,
    anchors: Tensor,
    k: int,
    penalty: Penalty,
    *,
    candidates: Tensor | None = None,
    weight: Tensor | PairWeights | None = None,
    clip: float | None = None,
    reduction: Reduction = "sum",
    budget: int = DEFAULT_BUDGET,
    low_precision: bool = False,
    search: Search | None = None,
    gradient: bool = True,
) -> TableLoss:
    """`Σ_{c∈anchors} Σ_{y∈N_k(c)} a_cy φ(w_c·w_y)` (Eq. 8), N_k(c) the k nearest candidates.

    anchors: (n,) distinct ids, the participating classes; candidates: (c,) ascending ids C′, all
    classes if None; weight: (n,) a_c, or one for every pair (FedALC, Eq. 11); clip: as in `all_pairs`.
    The gradient moves anchors and the neighbours found, no others; of a sharded table, those that are
    here. search: finds neighbours another way than by looking at all. gradient: as in `all_pairs`.

    >>> import torch
    >>> import spreadout as so
    >>> rows, hinge = torch.tensor([[1, 0], [0.5, 0.75**0.5], [-1, 0]]), so.regularizers.HingePenalty(1)
    >>> found = so.regularizers.mined_pairs(rows, anchors=torch.tensor([0]), k=1, penalty=hinge)
    >>> found.value, found.gradient.ids  # row 1 is nearest, at a distance of 0.5: (1 − 0.5)²
    (tensor(0.2500), tensor([0, 1]))
    """
    rows = table[anchors]  # (n, d)
    if search is not None:
        s, neighbours = search(rows, anchors)
    else:
        s, neighbours = nearest(
            rows,
            table,
            k,
            exclude=anchors,
            candidates=candidates,
            budget=budget,
            low_precision=low_precision,
        )  # (n, k)
    real = s > -torch.inf  # a short candidate list can leave only the anchor itself
    s = s.masked_fill(~real, 0)
    if isinstance(weight, PairWeights):
        alpha = weight.at(anchors, neighbours)
    else:
        alpha = torch.ones_like(s[:, :1]) if weight is None else weight[:, None]
    if reduction == "row":  # of as many neighbours as it has
        alpha = alpha / real.sum(1, keepdim=True).clamp_min(1)
    value = (alpha * penalty.value(s) * real).sum()
    scale = 1.0 / max(int(real.sum()), 1) if reduction == "mean" else 1.0
    mined = neighbours.masked_fill(~real, -1)
    if not gradient:
        return TableLoss(value * scale, Rows(anchors[:0], rows[:0]), mined)
    slope = alpha * penalty.slope(s) * real  # (n, k)
    if clip is not None:  # a pair may be mined from both its ends: half for each
        slope = slope.clamp(-clip / 8**0.5, clip / 8**0.5)
    ids, moved = _gradient_of_pairs(table, anchors, rows, neighbours, slope, real, budget)
    return TableLoss(value * scale, Rows(ids, moved * scale), mined)


def among(table: Table, neighbours: Tensor, budget: int = DEFAULT_BUDGET) -> Search:
    """A search that finds the same neighbours again, with their scores at the table as it then is.

    >>> import torch
    >>> import spreadout as so
    >>> rows, anchors = torch.eye(3), torch.tensor([0])
    >>> search = so.regularizers.among(rows, neighbours=torch.tensor([[2]]))
    >>> rows[2] = torch.tensor([0.6, 0.8, 0.0])
    >>> search(rows[anchors], anchors).scores
    tensor([[0.6000]])
    """

    def search(rows: Tensor, ids: Tensor) -> Nearest:
        here = local_of(table)
        place, mine = places_in(table, neighbours)
        mine = mine & (neighbours >= 0)
        place = place.clamp(0, len(here) - 1)
        scores = rows.new_empty(neighbours.shape)
        at_once = max(1, budget // (rows.element_size() * rows.shape[1] * neighbours.shape[1]))
        for i in range(0, len(rows), at_once):
            part = slice(i, i + at_once)
            scores[part] = torch.einsum("nd,nkd->nk", rows[part], here[place[part]])
        scores = added(scores * mine, table).masked_fill(neighbours < 0, -torch.inf)
        return Nearest(scores, neighbours.clamp_min(0))

    return search


def _gradient_of_pairs(
    table: Table,
    anchors: Tensor,
    rows: Tensor,
    neighbours: Tensor,
    slope: Tensor,
    real: Tensor,
    budget: int,
) -> tuple[Tensor, Tensor]:
    """The rows that mined pairs move, and their gradient.

    rows (n, d): those of the anchors; neighbours, slope, real: (n, k). Of a sharded table each process
    computes the pairs whose neighbour it has. Other pairs, and those that are not real, have no slope
    here and move no row.
    """
    here = local_of(table)
    place, mine = places_in(table, neighbours)
    mine &= real
    slope, place = slope * mine, place.clamp(0, len(here) - 1)
    neighbours = torch.where(mine, neighbours, anchors[:, None])
    ids, slot = torch.unique(torch.cat([anchors, neighbours.flatten()]), return_inverse=True)
    anchor_slot, neighbour_slot = slot[: len(anchors)], slot[len(anchors) :].view_as(neighbours)
    gradient = rows.new_zeros(len(ids), rows.shape[1])
    pulled = torch.zeros_like(rows)
    pairs_at_once = max(1, budget // (2 * rows.element_size() * rows.shape[1] * slope.shape[1]))
    for i in range(0, len(anchors), pairs_at_once):
        part = slice(i, i + pairs_at_once)
        pull = slope[part, :, None]  # (b, k, 1)
        pulled[part] = (pull * here[place[part]]).sum(1)
        towards = (pull * rows[part, None]).flatten(0, 1)  # (b·k, d)
        gradient.index_put_((neighbour_slot[part].flatten(),), towards, accumulate=True)
    gradient[anchor_slot] += added(pulled, table)
    return ids, gradient
