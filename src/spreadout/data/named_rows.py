"""Which rows of a table examples name: what their clients request."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from spreadout.core.ragged import Ragged
from spreadout.data.columns import Column, Lists, Sparse


def rows_named(columns: Sequence[Column], at: Tensor, owner: Tensor, clients: int) -> Ragged:
    """The distinct ids in some examples of these columns, ascending, for each client that owns them.

    Ids are sorted where the columns lie, and stay there.
    """
    owners, ids = [], []
    for column in columns:
        if isinstance(column, Lists | Sparse):
            lists = column.ragged(at)
            owners.append(torch.repeat_interleave(owner.to(lists.values.device), lists.lengths))
            ids.append(lists.values)
        else:
            found = column.take(at)[:, None].flatten(1)  # (n, ids of an example)
            owners.append(owner.to(found.device)[:, None].expand_as(found).flatten())
            ids.append(found.flatten())
    named = Ragged.from_pairs(torch.cat(owners), torch.cat(ids), clients)
    return Ragged(named.offsets.cpu(), named.values)


def ids_per_example(column: Column, examples: int) -> int:
    """About how many ids an example names in this column."""
    if isinstance(column, Lists):
        length = column.length if column.index is None else column.length[column.index]
        return -(-int(length.sum()) // max(examples, 1))
    if isinstance(column, Sparse):
        return -(-len(column.ids) // max(column.count, 1))
    return max(column.example_bytes // 8, 1)
