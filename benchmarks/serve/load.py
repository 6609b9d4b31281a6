"""Clients of a server: each asks again as soon as it has its answer."""

from __future__ import annotations

import http.client
import json
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit


@contextmanager
def serving(folder: Path, *options: str) -> Iterator[str]:
    """`spreadout serve` in a process of its own, on a free port; its address."""
    command = [sys.executable, "-m", "spreadout", "serve", str(folder), "--port", "0", *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        said = process.stdout.readline()
        try:
            if not said.startswith("listening on "):
                raise RuntimeError(f"the server did not start: {said!r}")
            yield said.split()[2]
        finally:
            process.terminate()


def under_load(
    address: str, bodies: Sequence[bytes], *, clients: int, seconds: float
) -> dict[str, float]:
    """Median and 99th percentile of a request in milliseconds, and requests a second."""
    begin = threading.Barrier(clients + 1)
    times: list[list[float]] = [[] for _ in range(clients)]
    problems: list[str] = []
    where = urlsplit(address)
    stop = threading.Event()

    def ask(number: int) -> None:
        connection = http.client.HTTPConnection(where.hostname or "", where.port, timeout=60)
        begin.wait()
        at = number
        while not stop.is_set():
            start = time.perf_counter()
            connection.request("POST", "/predict", bodies[at % len(bodies)])
            answer = connection.getresponse()
            found = answer.read()
            times[number].append(time.perf_counter() - start)
            if answer.status != 200:
                problems.append(found.decode())
                return
            at += clients

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(clients)]
    for thread in threads:
        thread.start()
    begin.wait()
    start = time.perf_counter()
    stop.wait(seconds)
    stop.set()
    for thread in threads:
        thread.join()
    took = time.perf_counter() - start
    if problems:
        raise RuntimeError(f"a request was refused: {problems[0][:200]}")
    every = sorted(one for own in times for one in own)
    return {
        "requests": len(every),
        "p50_ms": round(1000 * statistics.median(every), 2),
        "p99_ms": round(1000 * every[min(len(every) - 1, int(0.99 * len(every)))], 2),
        "requests_a_second": round(len(every) / took, 1),
    }


def bodies_of(inputs: Sequence[Sequence[float]], top: int) -> list[bytes]:
    """One request for each input."""
    return [json.dumps({"inputs": [list(one)], "top": top}).encode() for one in inputs]
