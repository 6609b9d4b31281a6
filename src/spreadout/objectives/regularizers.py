"""Server-side table objectives: spreadout over all pairs (Eq. 7 of FedAwS) and over mined pairs (Eq. 8),
with a weight for every class or pair (FedALC, Eqs. 8 to 11), and FedALC's pull and push (Eq. 12).

Both are sums of a penalty φ(s) of the dot product s of two unit rows, over ordered pairs. Values and
gradients are written out by hand and computed in blocks: there is never a (C, C) matrix. Where φ is a
polynomial of degree two on all of [−1, 1], the all-pairs sum has an exact O(C d²) form.

>>> import torch
>>> import spreadout as so
>>> rows = torch.eye(3)  # three classes at right angles: a cosine distance of 1
>>> found = so.regularizers.all_pairs(rows, so.regularizers.HingePenalty(margin=1.5))
>>> found.value  # six ordered pairs, (1.5 − 1)² each
tensor(1.5000)
>>> found.gradient.values.shape
torch.Size([3, 3])
"""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from spreadout.core.rows import Rows
from spreadout.core.tables import Table, added, local_of, places_in
from spreadout.objectives.cooccurrence import PairWeights
from spreadout.objectives.neighbours import DEFAULT_BUDGET, Nearest, nearest
from spreadout.objectives.penalties import Distance, FarPenalty, HingePenalty, NearPenalty, Penalty

__all__ = [
    "Distance",
    "FarPenalty",
    "HingePenalty",
    "NearPenalty",
    "Penalty",
    "Reduction",
    "Search",
    "TableLoss",
    "all_pairs",
    "among",
    "mined_pairs",
    "off_diagonal",
    "pull_and_push",
    "stored_pairs",
    "together",
]

Reduction = Literal["sum", "mean", "row"]
"""Over pairs: their sum; their mean; or for each row the mean over its own pairs, summed over rows. By
the last one a row is pushed equally hard whatever k and however many classes there are."""
Search = Callable[[Tensor, Tensor], Nearest]
"""Neighbours of some rows, given with their ids, which are not their own neighbours."""


class TableLoss(NamedTuple):
    """A table objective's value, and its gradient for the rows it moves.

    >>> import torch
    >>> import spreadout as so
    >>> found = so.regularizers.all_pairs(torch.eye(2), so.regularizers.FarPenalty())
    >>> found.value, found.gradient.ids  # −1² for either order
    (tensor(-2.), tensor([0, 1]))
    """

    value: Tensor  # ()
    gradient: Rows
    neighbours: Tensor | None = None  # (n, k) of each anchor, where pairs were mined


def all_pairs(
    table: Tensor,
    penalty: Penalty,
    *,
    weight: Tensor | PairWeights | None = None,
    clip: float | None = None,
    reduction: Reduction = "sum",
    budget: int = DEFAULT_BUDGET,
    gradient: bool = True,
) -> TableLoss:
    """`Σ_c Σ_{c'≠c} a_cc' φ(w_c·w_c')` over the whole table (Eq. 7).

    weight: one a_c per class (Remark 2), or one per pair (FedALC, Eqs. 8 and 10). clip: the most one
    unordered pair may add to the gradient's norm. gradient: False computes the value alone. Exact in
    O(C d²) when the penalty is a polynomial, else in blocks in O(C² d).

    >>> import torch
    >>> import spreadout as so
    >>> found = so.regularizers.all_pairs(torch.eye(2), so.regularizers.HingePenalty(margin=1.5))
    >>> found.value  # two ordered pairs, (1.5 − 1)² each
    tensor(0.5000)
    >>> found.gradient.values  # 2 · (1.5 − 1) for each, along the other row
    tensor([[0., 2.],
            [2., 0.]])
    """
    coefficients = penalty.polynomial() if clip is None else None
    own = weight if isinstance(weight, PairWeights) else None
    alpha = weight.alone if isinstance(weight, PairWeights) else weight  # (C,), or None: 1 of each
    if coefficients is not None:
        value, slopes = _all_pairs_polynomial(table, alpha, *coefficients, gradient=gradient)
        if own is not None:
            less = stored_pairs(table, own, penalty, budget=budget, gradient=gradient)
            value, slopes = value - less.value, slopes - less.gradient.values
    else:
        value, slopes = _all_pairs_blocked(table, alpha, penalty, own, clip, budget, gradient)
    pairs = len(table) * (len(table) - 1)
    pairs_of = {"sum": 1, "mean": pairs, "row": len(table) - 1}[reduction]
    if pairs_of > 1:
        value, slopes = value * (1.0 / pairs_of), slopes * (1.0 / pairs_of)
    return TableLoss(value, _of_first(len(slopes), slopes))


def _of_first(count: int, values: Tensor) -> Rows:
    """Rows of the first classes: of all, or of none where only a value is asked for."""
    return Rows(torch.arange(count, device=values.device), values)


def _all_pairs_polynomial(
    table: Tensor, alpha: Tensor | None, a: float, b: float, c: float, *, gradient: bool
) -> tuple[Tensor, Tensor]:
    """With m = Σw and G = WᵀW: Σ_{c'} s = w·m and Σ_{c'} s² = wᵀGw, less the pair with itself."""
    alpha = torch.ones_like(table[:, 0]) if alpha is None else alpha
    gram, total = table.T @ table, table.sum(0)  # (d, d), (d,)
    norm2 = table.square().sum(1)  # (C,)
    linear = table @ total - norm2  # (C,) Σ_{c'≠c} s
    projected = table @ gram  # (C, d)
    quadratic = (projected * table).sum(1) - norm2.square()  # (C,) Σ_{c'≠c} s²
    value = (alpha * (a * (len(table) - 1) + b * linear + c * quadratic)).sum()
    if not gradient:
        return value, table[:0]
    weighted = alpha[:, None] * table
    gram_w, total_w = table.T @ weighted, weighted.sum(0)
    own = b * (total - table) + 2 * c * (projected - norm2[:, None] * table)
    others = b * (total_w - weighted) + 2 * c * (table @ gram_w - norm2[:, None] * weighted)
    return value, alpha[:, None] * own + others


def _all_pairs_blocked(
    table: Tensor,
    alpha: Tensor | None,
    penalty: Penalty,
    pairs: PairWeights | None,
    clip: float | None,
    budget: int,
    gradient: bool,
) -> tuple[Tensor, Tensor]:
    def terms(s: Tensor, block: slice) -> tuple[Tensor, Tensor]:
        weight = 2.0 if alpha is None else alpha[block, None] + alpha
        if pairs is not None:
            weight = weight - _meet(pairs, block, s)
        return weight * penalty.value(s), weight * penalty.slope(s) if gradient else s

    return _in_blocks(table, terms, clip, budget, gradient)


def pull_and_push(
    table: Tensor,
    weights: PairWeights,
    away: HingePenalty,
    together: NearPenalty,
    *,
    pull: float,
    push: float,
    clip: float | None = None,
    budget: int = DEFAULT_BUDGET,
) -> TableLoss:
    """FedALC, Eq. 12: `α Σ n_cc'/n d² + β Σ σ_cc' max(0, ν − d)²`; clip: as in `all_pairs`, of both.

    >>> import torch
    >>> import spreadout as so
    >>> from spreadout.objectives.cooccurrence import CoOccurrence
    >>> sets = so.Ragged.from_lists([[0, 1], [0]])  # together in one of two, class 0 alone in the other
    >>> weights = CoOccurrence.of(sets, classes=2).weights()
    >>> away, together = so.regularizers.HingePenalty(margin=2), so.regularizers.NearPenalty()
    >>> found = so.regularizers.pull_and_push(torch.eye(2), weights, away, together, pull=1, push=3)
    >>> found.value  # 1 · 2 · 0.5 · 1² + 3 · 0.5 · (2 − 1)²
    tensor(2.5000)
    """
    if clip is None:  # apart, the pull costs what the pairs that meet cost
        near = stored_pairs(table, weights, together, budget=budget)
        far = all_pairs(table, away, weight=weights, budget=budget)
        gradient = pull * near.gradient.values + push * far.gradient.values
        return TableLoss(pull * near.value + push * far.value, Rows(near.gradient.ids, gradient))

    def terms(s: Tensor, block: slice) -> tuple[Tensor, Tensor]:
        meet = pull * (met := _meet(weights, block, s))
        part = push * (weights.alone[block, None] + weights.alone - met)  # σ_cc' + σ_c'c
        value = meet * together.value(s) + part * away.value(s)
        return value, meet * together.slope(s) + part * away.slope(s)

    value, gradient = _in_blocks(table, terms, clip, budget)
    return TableLoss(value, _of_first(len(table), gradient))


def _in_blocks(
    table: Tensor,
    terms: Callable[[Tensor, slice], tuple[Tensor, Tensor]],
    clip: float | None,
    budget: int,
    gradient: bool = True,
) -> tuple[Tensor, Tensor]:
    """A sum over all unordered pairs of different rows, and its gradient, some rows at a time.

    terms: of scores (b, C) and which rows they are, the pairs' values and slopes, both orders together.
    """
    rows_at_once = max(1, budget // (5 * table.element_size() * len(table)))
    values, slopes = [], torch.empty_like(table) if gradient else table[:0]
    for start in range(0, len(table), rows_at_once):
        block = slice(start, min(start + rows_at_once, len(table)))
        each, slope = terms(table[block] @ table.T, block)  # (b, C)
        each.diagonal(start).zero_()
        values.append(each.sum() / 2)  # each pair is met from both its rows
        if not gradient:
            continue
        slope.diagonal(start).zero_()
        if clip is not None:  # of unit rows, a pair's part of the gradient has the norm √2·|slope|
            slope = slope.clamp(-clip / 2**0.5, clip / 2**0.5)
        slopes[block] = slope @ table
    return reduce(torch.add, values), slopes


def _meet(pairs: PairWeights, block: slice, like: Tensor) -> Tensor:
    """both_cc' + both_c'c of some rows against all, zeros where nothing is stored: (b, C)."""
    stored = slice(int(pairs.offsets[block.start]), int(pairs.offsets[block.stop]))
    found = torch.zeros_like(like)
    at = pairs.first[stored] - block.start, pairs.second[stored]
    found[at] = pairs.both[stored] + pairs.reversed[stored]
    return found


def stored_pairs(
    table: Tensor,
    pairs: PairWeights,
    penalty: Penalty | NearPenalty,
    *,
    budget: int = DEFAULT_BUDGET,
    gradient: bool = True,
) -> TableLoss:
    """`Σ both_cc' φ(w_c·w_c')` over the pairs that are stored, a block of them at a time.

    gradient: as in `all_pairs`.

    >>> import torch
    >>> import spreadout as so
    >>> from spreadout.objectives.cooccurrence import CoOccurrence
    >>> sets = so.Ragged.from_lists([[0, 1], [0]])  # both classes in one of two instances
    >>> weights = CoOccurrence.of(sets, classes=2).weights()
    >>> so.regularizers.stored_pairs(torch.eye(2), weights, so.regularizers.NearPenalty()).value
    tensor(1.)
    """
    value = table.new_zeros(())
    slopes = torch.zeros_like(table if gradient else table[:0])
    pairs_at_once = max(1, budget // (4 * table.element_size() * table.shape[1]))
    for start in range(0, len(pairs.first), pairs_at_once):
        some = slice(start, start + pairs_at_once)
        first, second = pairs.first[some], pairs.second[some]
        s = (table[first] * table[second]).sum(-1)
        value += (pairs.both[some] * penalty.value(s)).sum()
        if not gradient:
            continue
        # Both directions are stored: what one does to its second class, the other does to its first.
        pull = (pairs.both[some] + pairs.reversed[some]) * penalty.slope(s)
        slopes.index_put_((first,), pull[:, None] * table[second], accumulate=True)
    return TableLoss(value, _of_first(len(slopes), slopes))


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


def together(all_of: TableLoss, mined: TableLoss, share: float) -> TableLoss:
    """(1 − share) of a loss over all pairs and share of one over mined pairs, as one loss.

    >>> import torch
    >>> import spreadout as so
    >>> rows, hinge = torch.eye(3), so.regularizers.HingePenalty(margin=1.5)
    >>> every = so.regularizers.all_pairs(rows, hinge)  # 1.5
    >>> near = so.regularizers.mined_pairs(rows, torch.tensor([0]), k=1, penalty=hinge)  # 0.25
    >>> so.regularizers.together(every, near, share=0.5).value
    tensor(0.8750)
    """
    gradient = (1 - share) * all_of.gradient.values  # of all rows, in their order
    gradient.index_add_(0, mined.gradient.ids, share * mined.gradient.values)
    value = (1 - share) * all_of.value + share * mined.value
    return TableLoss(value, Rows(all_of.gradient.ids, gradient), mined.neighbours)


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


def off_diagonal(left: Tensor, right: Tensor, real: Tensor) -> Tensor:
    """‖offdiag(L Rᵀ)‖_F over the real rows (003, §3.1), without the (n, n) matrix: O(n d²).

    left, right: (n, d); real: (n,) bool. ‖L Rᵀ‖²_F = ⟨LᵀL, RᵀR⟩, and the diagonal's squares come off.

    >>> import torch
    >>> import spreadout as so
    >>> left, right = torch.eye(2), torch.tensor([[1.0, 3.0], [4.0, 1.0]])  # L Rᵀ is the transpose of R
    >>> so.regularizers.off_diagonal(left, right, real=torch.tensor([True, True]))  # √(3² + 4²)
    tensor(5.)
    """
    same = left is right  # then one Gram matrix does
    with torch.autocast(left.device.type, enabled=False):  # a difference of large sums
        keep = real[:, None]
        left = left * keep
        right = left if same else right * keep
        gram = left.T @ left
        whole = gram.square().sum() if same else (gram * (right.T @ right)).sum()
        diagonal = (left * right).sum(-1).square().sum()
    # Rounding may leave a hair below 0; the root's slope must stay finite where nothing overlaps.
    return (whole - diagonal).clamp_min(1e-12).sqrt()
