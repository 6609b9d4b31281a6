"""What comes next in a history, by counting: popularity, successors, items that meet."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from spreadout.data.columns import Lists
from spreadout.evaluation.pooled import Pool
from spreadout.evaluation.references.scoring import TIE, Clock, Scorer

MOST_ITEMS = 1 << 13  # whose meetings are counted, (items, items) at once
AT_ONCE = 1 << 18  # histories looked at in one go


@dataclass(frozen=True)
class Pairs:
    """How often each item was followed by each other: rows of a sparse matrix."""

    start: Tensor  # (C + 1,)
    after: Tensor  # (pairs,) the item that followed
    count: Tensor  # (pairs,)


def last_items(histories: Lists, at: Tensor) -> Tensor:
    """The item before the next one; −1 of an empty history. (n,)"""
    own = histories.ragged(at)
    last = own.offsets[1:] - 1
    found = own.values[last.clamp_min(0)] if len(own.values) else torch.zeros_like(last)
    return torch.where(own.lengths > 0, found, -1)


def successors(pool: Pool, histories: Lists) -> Pairs:
    """What followed each item in training, and how often."""
    last = last_items(histories, torch.arange(len(pool)))
    owner = torch.repeat_interleave(torch.arange(len(pool)), pool.labels.lengths)
    before, after = last[owner], pool.labels.values
    known = before >= 0
    pair, count = torch.unique(before[known] * pool.classes + after[known], return_counts=True)
    start = torch.searchsorted(pair, torch.arange(pool.classes + 1) * pool.classes)
    return Pairs(start, pair % pool.classes, count)


def successor_scorer(pairs: Pairs, histories: Lists, prior: Tensor) -> Scorer:
    """The commonest successor of the last item first; level ones, and all others, by popularity."""

    def scores(at: Tensor) -> Tensor:
        last = last_items(histories, at)
        first = pairs.start[last.clamp_min(0)]
        many = torch.where(last >= 0, pairs.start[last.clamp_min(0) + 1] - first, 0)
        who = torch.repeat_interleave(torch.arange(len(at)), many)
        place = first[who] + torch.arange(len(who)) - (many.cumsum(0) - many)[who]
        found = (prior / 2).repeat(len(at), 1)  # below 1: a count decides
        found[who, pairs.after[place]] += pairs.count[place].double()
        return found

    return scores


@dataclass(frozen=True)
class Meetings:
    """Cosine of items by the histories they share: (m, m) of the m most popular items."""

    cosine: Tensor  # (m, m)
    place: Tensor  # (C,) of each item among them; m for others
    items: Tensor  # (m,) which they are
    repeats: float  # share of training examples whose next item was in their history


def meetings(pool: Pool, histories: Lists, clock: Clock) -> Meetings:
    """How often two items are in one window, its next item among them: counts over √(n_i n_j)."""
    items = torch.argsort(pool.prior, descending=True)[:MOST_ITEMS].sort().values
    m = len(items)
    place = torch.full((pool.classes,), m).index_put((items,), torch.arange(m))
    together = torch.zeros(m * m)
    alone = torch.zeros(m)
    repeated = 0
    for some in torch.split(torch.arange(len(pool)), AT_ONCE):
        clock.check()
        own, labels = histories.ragged(some), pool.labels.select(some)
        owner = torch.repeat_interleave(torch.arange(len(some)), own.lengths)
        # Each item of the history with each label of its example.
        many = labels.lengths[owner]
        pair = torch.repeat_interleave(torch.arange(len(owner)), many)
        within = torch.arange(len(pair)) - (many.cumsum(0) - many)[pair]
        before = own.values[pair]
        after = labels.values[labels.offsets[:-1][owner[pair]] + within]
        repeated += int((before == after).sum())
        one, other = place[before], place[after]
        known = (one < m) & (other < m) & (before != after)
        together.index_add_(0, one[known] * m + other[known], torch.ones(int(known.sum())))
        alone += torch.bincount(one[known], minlength=m) + torch.bincount(other[known], minlength=m)
    matrix = together.view(m, m)
    matrix = matrix + matrix.T
    size = alone.clamp_min(1).sqrt()
    return Meetings(matrix / size / size[:, None], place, items, repeated / max(len(pool), 1))


def meeting_scorer(found: Meetings, histories: Lists, prior: Tensor) -> Scorer:
    """The sum of an item's cosines with the items of the history.

    Where nothing ever came twice in training, items of the history come last.
    """

    nobody = len(found.items)  # a row of zeros
    rows = torch.cat([found.cosine, found.cosine.new_zeros(1, nobody)])
    whole = nobody == len(prior)  # every class has a column, in its own place

    def scores(at: Tensor) -> Tensor:
        own = histories.ragged(at)
        near = F.embedding_bag(found.place[own.values], rows, own.offsets[:-1], mode="sum")
        base = (TIE * prior).repeat(len(at), 1)
        if whole:
            base += near
        else:
            base[:, found.items] += near.double()
        if found.repeats < 0.01:
            owner = torch.repeat_interleave(torch.arange(len(at)), own.lengths)
            base[owner, own.values] -= 1e3
        return base

    return scores
