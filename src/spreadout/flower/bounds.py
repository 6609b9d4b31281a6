"""How long a reply may be: as long as an honest one to what was asked, and no longer.

A reply above its bound is not read. The bounds are sums of what clients were sent and asked for, with
room for the names of arrays; they are never below what an honest node sends.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from flwr.app import ArrayRecord, RecordDict
from torch import Tensor

from spreadout.core.ragged import Ragged
from spreadout.core.rows import nbytes
from spreadout.core.tables import Tables, row_bytes
from spreadout.core.types import Tensors

ROOM = 4096  # bytes of a reply that are no arrays of ours
ARRAY = 256  # bytes that say an array's name, type, shape and place, beside the parts of its name
ABOUT = 64  # bytes of an update that say whose it is, and its loss


def updates(dense: Tensors, tables: Tables, requests: Mapping[str, Ragged], members: Tensor) -> int:
    """Bytes of the updates of some clients of a cohort. members: their places in it."""
    names = [*dense, *tables]
    arrays = 2 + len(dense) + 3 * len(tables)  # ids, values and positives of each table
    each = ABOUT + nbytes(dense.values()) + arrays * (ARRAY + max(map(len, names), default=0))
    rows = sum(
        int(requested.select(members).lengths.sum()) * (row_bytes(tables[name]) + 16)
        for name, requested in requests.items()
    )
    return ROOM + len(members) * each + rows


def requests(clients: int, tables: Mapping[str, int], most: int | None) -> int:
    """Bytes of the requests of so many clients. most: rows of a table that each may request."""
    rows = sum(min(count, most or count) for count in tables.values())
    heads = (1 + 2 * len(tables)) * ARRAY + sum(2 * len(name) for name in tables)
    return ROOM + heads + 8 * (clients * (1 + rows) + len(tables) * (clients + 1))


def length(content: RecordDict) -> int:
    """Bytes of a reply."""
    total = 0
    for name, record in content.items():
        held = record.items() if isinstance(record, ArrayRecord) else ()
        bytes_held = sum(len(key) + len(array.data) for key, array in held)
        total += len(name) + (bytes_held if isinstance(record, ArrayRecord) else _plain_bytes(record))
    return total


def _plain_bytes(record: Mapping[str, Any]) -> int:
    """Bytes of a record of plain values; Flower's own count fails where one is an empty list."""
    total = 0
    for key, value in record.items():
        every = value if isinstance(value, list) else [value]
        total += len(key) + sum(len(v) if isinstance(v, str | bytes) else 8 for v in every)
    return total
