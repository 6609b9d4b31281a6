"""The nearest rows of a table, found in blocks: a matrix product with a running top-k.

Memory is bounded by `budget` whatever the table's size; time is one pass over the table.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor

from spreadout.core.tables import Sharded, Table, local_of

DEFAULT_BUDGET = 1 << 30  # bytes for one block of scores


class Nearest(NamedTuple):
    """For each query the k highest dot products, highest first, and the rows they belong to."""

    scores: Tensor  # (q, k)
    ids: Tensor  # (q, k)


def nearest(
    queries: Tensor,
    table: Table,
    k: int,
    *,
    exclude: Tensor | None = None,
    candidates: Tensor | None = None,
    budget: int = DEFAULT_BUDGET,
    low_precision: bool = False,
) -> Nearest:
    """Top-k rows of `table` by dot product for each query.

    queries: (q, d); table: (C, d); exclude: (q,) one row id per query never to be returned (a class
    is not its own neighbour); candidates: (c,) ascending ids, the only rows considered. With
    `low_precision`, half as many again are found in bfloat16 and the best of them, scored again in
    full precision, are kept.
    """
    search = partial(_nearest, budget=budget, low_precision=low_precision)
    if isinstance(table, Sharded):
        return _nearest_of_all(search, queries, table, k, exclude, candidates)
    return search(queries, local_of(table), k, exclude, candidates)


def _nearest_of_all(
    search: Callable[..., Nearest],
    queries: Tensor,
    table: Sharded,
    k: int,
    exclude: Tensor | None,
    candidates: Tensor | None,
) -> Nearest:
    """Each process finds the best of its own rows; the best of those are the best of all."""
    if candidates is not None:
        place, here = table.places(candidates)
        candidates = place[here]
    found = queries.new_full((len(queries), k), -torch.inf), queries.new_zeros((len(queries), k)).long()
    if len(table.local if candidates is None else candidates):
        excluded = None if exclude is None else exclude - table.first
        own = search(queries, table.local, k, excluded, candidates)
        found[0][:, : own.scores.shape[1]] = own.scores
        found[1][:, : own.ids.shape[1]] = own.ids + table.first
    parts = []
    for part in found:
        every = [torch.empty_like(part) for _ in range(dist.get_world_size())]
        dist.all_gather(every, part)
        parts.append(torch.cat(every, 1))
    return _top(Nearest(*parts), min(k, len(table)))


def _nearest(
    queries: Tensor,
    table: Tensor,
    k: int,
    exclude: Tensor | None,
    candidates: Tensor | None,
    *,
    budget: int,
    low_precision: bool,
) -> Nearest:
    pool = len(table) if candidates is None else len(candidates)
    spare = 0 if exclude is None else 1  # room for the excluded row, dropped at the end
    spare += k // 2 if low_precision else 0  # rounding shuffles ranks near the k-th: look further
    wanted = min(k + spare, pool)
    compute = torch.bfloat16 if low_precision else queries.dtype
    probe = queries.to(compute)
    element = torch.finfo(compute).bits // 8
    rows_at_once = max(wanted, min(pool, budget // (element * max(len(queries), 1) * 2)))
    best: Nearest | None = None
    for start in range(0, pool, rows_at_once):
        stop = min(start + rows_at_once, pool)
        ids = candidates[start:stop] if candidates is not None else None
        block = (table[start:stop] if ids is None else table[ids]).to(compute)  # (b, d)
        found, place = torch.topk(probe @ block.T, min(wanted, stop - start), dim=1)
        here = Nearest(found, place + start if ids is None else ids[place])
        best = here if best is None else _better(best, here, wanted)
    assert best is not None, "an empty table has no nearest rows"
    if low_precision:
        best = Nearest(_rescored(queries, table, best.ids), best.ids)
    if exclude is not None:
        best = Nearest(best.scores.masked_fill(best.ids == exclude[:, None], -torch.inf), best.ids)
    return _top(best, k)


def best_of(queries: Tensor, table: Tensor, ids: Tensor, k: int, *, exclude: Tensor) -> Nearest:
    """The k best of the rows proposed for each query, (q, m) ids; none where an id is below 0."""
    scores = _rescored(queries, table, ids.clamp_min(0))
    scores = scores.masked_fill((ids < 0) | (ids == exclude[:, None]), -torch.inf)
    return _top(Nearest(scores, ids.clamp_min(0)), k)


def _top(found: Nearest, k: int) -> Nearest:
    scores, order = torch.topk(found.scores, min(k, found.scores.shape[1]), dim=1)
    return Nearest(scores, found.ids.gather(1, order))


def _better(a: Nearest, b: Nearest, k: int) -> Nearest:
    both = Nearest(torch.cat([a.scores, b.scores], 1), torch.cat([a.ids, b.ids], 1))
    return _top(both, k)


def _rescored(queries: Tensor, table: Tensor, ids: Tensor, at_once: int = 1024) -> Tensor:
    """Exact dot products for the pairs found: (q, k)."""
    parts = [
        torch.bmm(table[ids[i : i + at_once]], queries[i : i + at_once, :, None])[:, :, 0]
        for i in range(0, len(queries), at_once)
    ]
    return torch.cat(parts)
