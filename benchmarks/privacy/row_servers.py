"""Private retrieval from two real row servers over HTTP on this machine: bytes on the wire, and time.

    python -m benchmarks.privacy.row_servers       # needs the extra [serve]

Two processes of `spreadout rows-server`, handed a table of 10⁴ or of 10⁶ rows of 64 numbers in single
precision, and a client that fetches 20 rows at a time. Client and servers share the machine, so a real
network adds its own time. Bytes are counted on the sockets, headers included, by a relay before each
server; times are taken without it.
"""

from __future__ import annotations

import os
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.common.command import command, parser_of
from benchmarks.common.paths import RESULTS
from benchmarks.common.record import write
from spreadout.use.rows.client import TwoServers

SIZES = (10_000, 1_000_000)
WIDTH, ROWS = 64, 20  # numbers of a row, rows fetched at a time


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--out", type=Path, default=RESULTS / "privacy" / "row_servers.json")
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES)
    parser.add_argument("--repeats", type=int, default=7)
    a = parser.parse_args()
    about = {"width": WIDTH, "fetched": ROWS, "load_average_before": round(os.getloadavg()[0], 1)}
    with tempfile.TemporaryDirectory() as home, two_servers(Path(home)) as (addresses, key):
        tables = [measured(addresses, key, rows, a.repeats) for rows in a.sizes]
    write(a.out, {**about, "tables": tables})


@contextmanager
def two_servers(folder: Path) -> Iterator[tuple[list[str], bytes]]:
    """Their addresses, and the key with which they take a table."""
    key = folder / "key"
    key.touch(0o600)
    key.write_bytes(os.urandom(32))
    server = [sys.executable, "-m", "spreadout", "rows-server", "--port", "0", "--key-file", str(key)]
    running = [subprocess.Popen(server, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    try:
        said = [process.stdout.readline() for process in running if process.stdout is not None]
        yield [line.split()[2] for line in said], key.read_bytes()
    finally:
        for process in running:
            process.terminate()
        for process in running:
            process.communicate(timeout=60)


def measured(addresses: list[str], key: bytes, rows: int, repeats: int) -> dict[str, Any]:
    """The median of so many fetches of `ROWS` rows, and the bytes of one."""
    rng = np.random.default_rng(0)
    table = rng.standard_normal((rows, WIDTH), dtype=np.float32)
    servers = TwoServers(addresses, seconds=300.0)
    start = time.perf_counter()
    servers.publish(table, key)
    published = time.perf_counter() - start
    fetch(servers, table, rng)  # warm
    took = [fetch(servers, table, rng) for _ in range(repeats)]
    with Relay(addresses[0]) as one, Relay(addresses[1]) as other:
        fetch(TwoServers([one.address, other.address], seconds=300.0), table, rng)
    return {
        "rows": rows,
        "table_bytes": table.nbytes,
        "publish_seconds": published,
        "up_bytes": one.up + other.up,
        "down_bytes": one.down + other.down,
        "fetch_ms": 1000 * statistics.median(took),
        "slowest_ms": 1000 * max(took),
    }


def fetch(servers: TwoServers, table: Any, rng: np.random.Generator) -> float:
    """The seconds that it takes."""
    wanted = rng.integers(0, len(table), ROWS)
    start = time.perf_counter()
    found = servers.fetch(wanted, ROWS)
    took = time.perf_counter() - start
    if not np.array_equal(found, table[wanted]):
        raise AssertionError("other rows than those that were asked for")
    return took


class Relay:
    """Stands before a server and counts the bytes of both directions."""

    def __init__(self, target: str) -> None:
        host, port = target.removeprefix("http://").split(":")
        self._target, self.up, self.down = (host, int(port)), 0, 0
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self._threads: list[threading.Thread] = []

    def __enter__(self) -> Relay:
        threading.Thread(target=self._serve, daemon=True).start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._listener.close()
        for thread in self._threads:
            thread.join(10)

    def _serve(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                server = socket.create_connection(self._target)
                for source, target, way in ((client, server, "up"), (server, client, "down")):
                    copying = threading.Thread(
                        target=self._copy, args=(source, target, way), daemon=True
                    )
                    copying.start()
                    self._threads.append(copying)

    def _copy(self, source: socket.socket, target: socket.socket, way: str) -> None:
        with suppress(OSError):
            while piece := source.recv(1 << 16):
                setattr(self, way, getattr(self, way) + len(piece))
                target.sendall(piece)
            target.shutdown(socket.SHUT_WR)


if __name__ == "__main__":
    command(main)
