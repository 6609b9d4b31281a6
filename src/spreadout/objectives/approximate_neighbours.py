"""Approximate neighbours of class rows: a faiss inverted file, made anew every few rounds.

The index holds rows as they were when it was made, in half precision. It only proposes: what it finds is
scored again with the rows as they are. It is a function of that old copy, which belongs to the server's
state, so a resumed run finds the same neighbours.
"""

from __future__ import annotations

import importlib.util
import math
from typing import Any

import torch
from torch import Tensor
from torch.utils.weak import WeakTensorKeyDictionary

from spreadout.objectives.neighbours import Nearest, best_of

POINTS = 39, 64  # rows a list that faiss wants at least, and that it is trained on at most
MISSING = 'needs faiss: pip install "spreadout[index]"'
_made: WeakTensorKeyDictionary = WeakTensorKeyDictionary()  # the index of each copy


def available() -> bool:
    return importlib.util.find_spec("faiss") is not None


def snapshot(table: Tensor) -> Tensor:
    """What an index is made of."""
    return table.detach().to("cpu", torch.float16, copy=True)


def approximately_nearest(
    queries: Tensor, table: Tensor, k: int, copy: Tensor, *, probes: int, exclude: Tensor
) -> Nearest:
    """About the k rows of `table` nearest to each query, from those of `probes` of the index's lists.

    copy: the `snapshot` the index is of; exclude: (q,) a row for each query never to be returned. Where
    too few are found, the rest have the score −∞.
    """
    index = _index_of(copy)
    index.nprobe = probes
    wanted = min(k + 1 + k // 2, len(table))  # rows have moved since: look further, as after rounding
    _, found = index.search(queries.detach().float().cpu().numpy(), wanted)
    ids = torch.from_numpy(found).to(table.device)  # (q, wanted), −1 where there are no more
    return best_of(queries, table, ids, k, exclude=exclude)


def lists_for(rows: int) -> int:
    """How many lists an index of so many rows has: the root, so that making it costs C^1.5 d."""
    return max(1, min(math.isqrt(rows), rows // POINTS[0]))


def _index_of(copy: Tensor) -> Any:
    if copy not in _made:
        import faiss

        rows = copy.float().numpy()
        kind = f"IVF{lists_for(len(rows))},SQfp16"
        index: Any = faiss.index_factory(rows.shape[1], kind, faiss.METRIC_INNER_PRODUCT)
        index.cp.niter, index.cp.max_points_per_centroid = 10, POINTS[1]  # it will not last long
        index.train(rows)
        index.add(rows)
        _made[copy] = index
    return _made[copy]
