"""Negatives that a client draws by itself: the rows it requests besides its own."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from spreadout.core import randomness
from spreadout.core.ragged import Ragged
from spreadout.core.randomness import Ints


def with_negatives(
    own: Ragged, counts: int | Ints, bounds: tuple[int, int], stream: int, numbers: Ints
) -> Ragged:
    """Each client's own rows and so many distinct others of [first, end) drawn uniformly, ascending.

    A draw is a function of (stream, client): a client makes it alone. Where fewer others are left, it
    gets all of them.
    """
    first, end = bounds
    lists = []
    for i, (number, count) in enumerate(_each(numbers, counts)):
        mine = own[i].numpy()
        wanted = min(count, end - first - len(mine))
        found, start = mine, 0
        while len(found) < len(mine) + wanted:
            bits = randomness.bits(stream, number, np.arange(start, start + 2 * count + 16))
            start += 2 * count + 16
            drawn = first + (bits % np.uint64(end - first)).astype(np.int64)
            fresh = drawn[~np.isin(drawn, found)]
            _, once = np.unique(fresh, return_index=True)
            fresh = fresh[np.sort(once)][: len(mine) + wanted - len(found)]
            found = np.concatenate([found, fresh])
        lists.append(torch.from_numpy(np.sort(found)))
    return Ragged.from_lists(lists)


def with_popular_negatives(
    own: Ragged, counts: int | Ints, popularity: Tensor, stream: int, numbers: Ints
) -> Ragged:
    """The same with others drawn by their popularity, without replacement; the cost grows with C."""
    weight = popularity.numpy()
    lists = []
    for i, (number, count) in enumerate(_each(numbers, counts)):
        mine = own[i].numpy()
        bits = randomness.bits(stream, number, np.arange(len(weight)))
        share = (bits >> np.uint64(11)).astype(np.float64) * 2.0**-53
        # The largest u^(1/w) of all are a draw by w without replacement (Efraimidis and Spirakis).
        with np.errstate(divide="ignore"):
            key = np.where(weight > 0, np.log(share) / np.maximum(weight, 1e-30), -np.inf)
        key[mine] = -np.inf
        wanted = min(count, int(np.isfinite(key).sum()))
        drawn = np.argsort(-key, kind="stable")[:wanted]
        lists.append(torch.from_numpy(np.sort(np.concatenate([mine, drawn]))))
    return Ragged.from_lists(lists)


def _each(numbers: Ints, counts: int | Ints) -> Iterator[tuple[int, int]]:
    every = np.broadcast_to(np.asarray(counts), numbers.shape)
    return zip(numbers.tolist(), every.tolist(), strict=True)
