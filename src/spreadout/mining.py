"""The nearest rows of a table, found in blocks: a matrix product with a running top-k.

Memory is bounded by `budget` whatever the table's size; time is one pass over the table.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

DEFAULT_BUDGET = 1 << 30  # bytes for one block of scores


class Nearest(NamedTuple):
    """For each query the k highest dot products, highest first, and the rows they belong to."""

    scores: Tensor  # (q, k)
    ids: Tensor  # (q, k)


def nearest(
    queries: Tensor,
    table: Tensor,
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
