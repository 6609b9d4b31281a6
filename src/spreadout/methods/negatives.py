"""Negatives that a client draws by itself: the rows it requests besides its own."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from spreadout.core import randomness
from spreadout.core.ragged import Ragged
from spreadout.core.randomness import Ints
from spreadout.core.types import RowInfo
from spreadout.data.dataset import FederatedDataset

AT_ONCE = 1 << 22  # draws that are in memory together
FEW_OWN = 8  # rows of its own up to which a client's draws are compared with each of them


def request_with_negatives(
    data: FederatedDataset, clients: Tensor, counts: int | Ints, *, seed: int, round: int
) -> dict[str, Ragged]:
    """Each client's own rows, and of classes so many others drawn uniformly, anew in every round."""
    own = data.rows_of(clients)
    stream = randomness.key(seed, "negatives", round)
    bounds, numbers = (data.first_class, data.classes), data.number_of(clients)
    return {**own, "classes": with_negatives(own["classes"], counts, bounds, stream, numbers)}


def uniform_chance(info: RowInfo) -> Tensor:
    """q: how likely a uniform draw is to be each class that is not the client's own. → ()"""
    return 1 / (info.size["classes"] - info.own["classes"].sum()).clamp_min(1)


def too_many_negatives(negatives: int, data: FederatedDataset) -> str | None:
    """Why so many cannot be drawn; None if they can."""
    most = data.classes - data.first_class
    if not negatives or negatives < most:
        return None
    return (
        f"method.negatives = {negatives}: there are only {most} classes, and a client has some of its "
        'own; take fewer, or name = "fedavg" for the full softmax'
    )


def with_negatives(
    own: Ragged, counts: int | Ints, bounds: tuple[int, int], stream: int, numbers: Ints
) -> Ragged:
    """Each client's own rows and so many distinct others of [first, end) drawn uniformly, ascending.

    A draw is a function of (stream, client): a client makes it alone. Where fewer others are left, it
    gets all of them.
    """
    block = max(1, AT_ONCE // (2 * int(np.max(counts, initial=0)) + 16))
    if len(own) > block:
        every = np.broadcast_to(counts, len(own))
        return Ragged.concatenated(
            [
                with_negatives(own.select(torch.from_numpy(at)), every[at], bounds, stream, numbers[at])
                for at in np.split(np.arange(len(own)), range(block, len(own), block))
            ]
        )
    most = int(np.max(counts, initial=0))
    for draws in (most + most // 8 + 4, 2 * most + 16):  # a few too many are nearly always enough
        if (together := _at_once(own, counts, bounds, stream, numbers, draws)) is not None:
            return together
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


def _at_once(
    own: Ragged,
    counts: int | Ints,
    bounds: tuple[int, int],
    stream: int,
    numbers: Ints,
    draws: int,
) -> Ragged | None:
    """The same draws for all clients together; None where some client needs more than its first ones."""
    first, end = bounds
    every = np.unique(counts)
    if len(every) != 1 or not len(own) or int(own.lengths.max()) > FEW_OWN:
        return None
    count = int(every[0])
    bits = randomness.bits(stream, numbers[:, None], np.arange(draws))
    drawn = first + (bits % np.uint64(end - first)).astype(np.int64)  # (n, draws)
    order = np.argsort(drawn, axis=1, kind="stable")
    ranked = np.take_along_axis(drawn, order, 1)
    again = np.zeros(drawn.shape, dtype=bool)  # drawn before by the same client
    np.put_along_axis(again, order[:, 1:], ranked[:, 1:] == ranked[:, :-1], 1)
    mine = (drawn[:, :, None] == own.padded(fill=-1).numpy()[:, None, :]).any(2)
    fresh = ~(again | mine)
    place = fresh.cumsum(1)
    if (place[:, -1] < count).any():
        return None
    whose, which = np.nonzero(fresh & (place <= count))
    owner = torch.repeat_interleave(torch.arange(len(own)), own.lengths)
    return Ragged.from_pairs(
        torch.cat([owner, torch.from_numpy(whose)]),
        torch.cat([own.values, torch.from_numpy(drawn[whose, which])]),
        len(own),
    )


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
