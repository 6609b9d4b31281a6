"""How fast data is read and how little memory it takes, one part per process, on one core.

    python -m benchmarks.speed.reading       # writes results/data/reading.json

MovieLens-1M is read where SPREADOUT_DATA has it; the extreme-classification file and the large
federation are made up and thrown away.
"""

from __future__ import annotations

import os
import resource
import tempfile
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.common.command import command, parser_of
from benchmarks.common.paths import RESULTS
from benchmarks.common.record import write
from benchmarks.common.timing import alone, timed
from spreadout.core.ragged import Ragged, offsets_from_lengths
from spreadout.data.io import building, cache
from spreadout.data.io.building import Chunk
from spreadout.data.sources.movielens import MovieLens
from spreadout.data.sources.synthetic import Synthetic
from spreadout.data.sources.xc_text import XCText
from spreadout.federated.batches import cohort_batches, row_ids
from spreadout.federated.sampling import sample_clients
from spreadout.federated.schedule import Schedule, plan

FEATURES = 16


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--out", type=Path, default=RESULTS / "data" / "reading.json")
    a = parser.parse_args()
    results = {}
    for part in a.parts:
        if part == "movielens-1m" and not os.environ.get("SPREADOUT_DATA"):
            continue
        results[part] = alone(measure, part)
        print(part, results[part], flush=True)
    write(a.out, {"threads": 1, "parts": results})


def measure(part: str) -> dict[str, Any]:
    """A part's own numbers, and the memory its process took beyond what importing takes."""
    torch.set_num_threads(1)
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    before = _anonymous()
    with tempfile.TemporaryDirectory() as folder, _Peak() as peak:
        os.environ["SPREADOUT_CACHE"] = str(Path(folder) / "cache")
        found = PARTS[part](Path(folder))
    mapped = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return {**found, "own_memory_mb": (peak.most - before) >> 20, "with_mapped_files_mb": mapped >> 20}


class _Peak:
    """The most anonymous memory seen: mapped files are the system's to drop, this is not."""

    def __init__(self) -> None:
        self.most, self._stop = _anonymous(), threading.Event()

    def __enter__(self) -> _Peak:
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()
        return self

    def _watch(self) -> None:
        while not self._stop.wait(0.01):
            self.most = max(self.most, _anonymous())

    def __exit__(self, *exc: object) -> None:
        self._stop.set()
        self._thread.join()


def _anonymous() -> int:
    status = Path("/proc/self/status").read_text(encoding="utf-8")
    return int(status.split("RssAnon:")[1].split()[0]) * 1024


def movielens(folder: Path) -> dict[str, Any]:
    """From the zip to windowed examples in the cache; then out of the cache."""
    source = MovieLens(name="movielens-1m")
    path = source.locate(None)
    found, read = timed(lambda: source.read(path))
    _, again = timed(lambda: source.read(path))
    return {
        "examples": len(found.train),
        "seconds": round(read, 2),
        "seconds_from_cache": round(again, 3),
    }


def xc_text(folder: Path) -> dict[str, Any]:
    """A 100 MB file with the density of Amazon-670K: about 75 features and 5 labels a row."""
    path = folder / "train.txt"
    rng = np.random.default_rng(0)
    rows, lines, size = 0, [], 0
    while size < 100 << 20:
        labels = ",".join(map(str, rng.integers(0, 670_091, 5).tolist()))
        ids = np.sort(rng.integers(0, 135_909, 75)).tolist()
        values = rng.random(75).round(6).tolist()
        line = f"{labels} {' '.join(f'{i}:{v:.6f}' for i, v in zip(ids, values, strict=True))}\n"
        lines.append(line)
        size += len(line)
        rows += 1
    path.write_text(f"{rows} 135909 670091\n" + "".join(lines), encoding="utf-8")
    lines.clear()
    source = XCText(name="xc-text")
    found, read = timed(lambda: source.read(path))
    _, hashed = timed(lambda: cache.key([path], ""))
    return {
        "megabytes": round(path.stat().st_size / 2**20, 1),
        "rows": len(found.train),
        "seconds": round(read, 2),
        "seconds_to_hash": round(hashed, 2),
    }


def synthetic(folder: Path) -> dict[str, Any]:
    """A stream of instances over ten million classes."""
    source = Synthetic(classes=10_000_000, features=1_000_000, examples=500_000, test_examples=1_000)
    found, seconds = timed(lambda: source.read(None))
    return {"examples": len(found.train), "classes": source.classes, "seconds": round(seconds, 2)}


def federation(examples: int, clients: int) -> Callable[[Path], dict[str, Any]]:
    """A stream in random order, sorted to its clients on disk, then sampled in cohorts."""

    def part(folder: Path) -> dict[str, Any]:
        stream = partial(_stream, examples, clients)
        data, built = timed(
            lambda: building.build(folder / "big", stream, clients=clients, classes=1_000_000)
        )
        schedule, device = Schedule(steps=2, batch=8), torch.device("cpu")

        def gather(turn: int) -> None:
            cohort = sample_clients("uniform", data.sizes, 1000, seed=0, round=turn)
            steps = plan(schedule, data.sizes[cohort.numpy()], cohort.numpy(), seed=0, round=turn)
            cohort_batches(data, cohort, steps, row_ids(data.rows_of(cohort), device), device)

        times = [timed(partial(gather, turn))[1] for turn in range(50)]
        size = sum(file.stat().st_size for file in (folder / "big").iterdir())
        return {
            "examples": data.examples,
            "clients": data.clients,
            "megabytes_on_disk": size >> 20,
            "seconds_to_build": round(built, 1),
            "milliseconds_a_cohort_of_1000": round(float(np.median(times)) * 1000, 1),
        }

    return part


def _stream(examples: int, clients: int) -> Iterator[Chunk]:
    for start in range(0, examples, 1 << 17):
        rng = np.random.default_rng(start)
        n = min(1 << 17, examples - start)
        lengths = torch.from_numpy(rng.integers(0, 11, n))
        offsets = offsets_from_lengths(lengths)
        items = torch.from_numpy(rng.integers(1, 1_000_000, int(offsets[-1])))
        yield Chunk(
            rng.integers(0, clients, n),
            {
                "x": rng.random((n, FEATURES), dtype=np.float32),
                "history": Ragged(offsets, items),
                "y": rng.integers(0, 1_000_000, n),
            },
        )


PARTS: dict[str, Callable[[Path], dict[str, Any]]] = {
    "movielens-1m": movielens,
    "xc-text-100mb": xc_text,
    "synthetic-10m-classes": synthetic,
    "federation-1m-examples": federation(1_000_000, 100_000),
    "federation-10m-examples": federation(10_000_000, 1_000_000),
}

if __name__ == "__main__":
    command(main)
