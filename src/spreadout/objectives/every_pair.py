"""Sums over all pairs of rows (Eq. 7 of FedAwS) and over all that are stored (FedALC, Eqs. 8 to 12).

Values and gradients are computed in blocks: there is never a (C, C) matrix. Where φ is a polynomial of
degree two on all of [−1, 1], the sum has an exact O(C d²) form.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce

import torch
from torch import Tensor

from spreadout.core.rows import Rows
from spreadout.objectives.cooccurrence import PairWeights
from spreadout.objectives.neighbours import DEFAULT_BUDGET
from spreadout.objectives.penalties import HingePenalty, NearPenalty, Penalty
from spreadout.objectives.table_loss import Reduction, TableLoss, of_first


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
    return TableLoss(value, of_first(len(slopes), slopes))


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
    return TableLoss(value, of_first(len(table), gradient))


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
    found[at] = (pairs.both[stored] + pairs.reversed[stored]).to(found)
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
    return TableLoss(value, of_first(len(slopes), slopes))
