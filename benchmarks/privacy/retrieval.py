"""Private retrieval of one class row from two servers: bytes and time, beside the whole table.

    python -m benchmarks.privacy.retrieval

Tables of 10⁴ and 10⁶ rows of 64 numbers in single precision. Times are of one server and one client on
this machine, without a network.
"""

from __future__ import annotations

import statistics
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.common.command import command, parser_of
from benchmarks.common.paths import RESULTS
from benchmarks.common.record import write
from spreadout.privacy.keystream import KeyStream
from spreadout.privacy.retrieval import Layout, RowServer, queries, retrieved

SIZES = (10_000, 1_000_000)
WIDTH = 64
ROWS = 20  # retrieved each time


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--out", type=Path, default=RESULTS / "privacy" / "retrieval.json")
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES)
    parser.add_argument("--repeats", type=int, default=5)
    a = parser.parse_args()
    layouts = [Layout.balanced(n, 4 * WIDTH) for n in a.sizes]
    layouts += [Layout(n, 4 * WIDTH, 1) for n in a.sizes]
    write(a.out, {"width": WIDTH, "tables": [measured(layout, a.repeats) for layout in layouts]})


def measured(layout: Layout, repeats: int) -> dict[str, Any]:
    """Bytes and milliseconds of one row; the median of so many repeats of `ROWS`."""
    rng = np.random.default_rng(0)
    table = rng.standard_normal((layout.rows, WIDTH), dtype=np.float32)
    servers = RowServer(table, layout), RowServer(table, layout)
    servers[0].answers(queries(layout, np.zeros(1, np.int64), KeyStream())[0])  # warm
    asking, answering, reading = [], [], []
    for _ in range(repeats):
        rows = rng.integers(0, layout.rows, ROWS)
        times = [time.perf_counter()]
        asked = queries(layout, rows, KeyStream())
        times.append(time.perf_counter())
        one = servers[0].answers(asked[0])
        times.append(time.perf_counter())
        other = servers[1].answers(asked[1])
        between = time.perf_counter()
        found = retrieved(layout, rows, one, other)
        reading.append(time.perf_counter() - between)
        asking.append(times[1] - times[0])
        answering.append(times[2] - times[1])
        if not np.array_equal(np.ascontiguousarray(found).view(np.float32), table[rows]):
            raise AssertionError("other rows than those that were asked for")
    return {
        "rows": layout.rows,
        "group": layout.group,
        "table_bytes": table.nbytes,
        "up_bytes": 2 * layout.query_bytes,
        "down_bytes": 2 * layout.answer_bytes,
        "query_ms": 1000 * statistics.median(asking) / ROWS,
        "answer_ms": 1000 * statistics.median(answering) / ROWS,
        "read_ms": 1000 * statistics.median(reading) / ROWS,
    }


if __name__ == "__main__":
    command(main)
