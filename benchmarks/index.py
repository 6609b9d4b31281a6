"""Neighbours from an approximate index beside looking at all rows: time and share of neighbours found.

    python benchmarks/index.py --out results/mining/index-cpu.json       # needs the extra [index]

512 participating classes, k = 100, d = 128; tables of rows around family centres, a hundred a family, as
label spaces with near synonyms have them, and of rows at random, where nothing is near anything. Rows
move a little between the making of the index and the search, as they do in the rounds between.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from record import write
from torch import Tensor

from spreadout.core.rows import project_to_sphere
from spreadout.objectives.approximate_neighbours import approximately_nearest, lists_for, snapshot
from spreadout.objectives.neighbours import Nearest, nearest

ANCHORS, K, DIM = 512, 100, 128


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--out", type=Path, default=Path("results/mining/index-cpu.json"))
    parser.add_argument("--classes", type=int, nargs="+", default=[100_000, 1_000_000])
    parser.add_argument("--probes", type=int, nargs="+", default=[4, 16, 64])
    a = parser.parse_args()
    if min(a.classes) <= K:
        parser.error(f"--classes {min(a.classes)}: must be above the {K} neighbours looked for")
    results = []
    for classes in a.classes:
        for kind in ("families", "random"):
            results += compared(kind, classes, a.probes)
    setting = {"anchors": ANCHORS, "k": K, "dim": DIM, "threads": torch.get_num_threads()}
    write(a.out, {"setting": setting, "results": results})


def compared(kind: str, classes: int, several: Sequence[int]) -> list[dict[str, Any]]:
    table = rows_of(kind, classes)
    copy = snapshot(table)
    table = project_to_sphere(table + 0.02 * torch.randn(table.shape))  # they have moved since
    anchors = torch.linspace(0, classes - 1, ANCHORS).long()

    def search(probes: int) -> Nearest:
        return approximately_nearest(table[anchors], table, K, copy, probes=probes, exclude=anchors)

    exact, all_of_them = timed(lambda _: nearest(table[anchors], table, K, exclude=anchors), 0)
    _, made = timed(search, 1)  # makes the index too
    results = []
    for probes in several:
        found, took = timed(search, probes)
        shared = (found.ids[:, :, None] == exact.ids[:, None]).any(-1).float().mean()
        results.append(
            {
                "classes": classes,
                "rows": kind,
                "lists": lists_for(classes),
                "probes": probes,
                "milliseconds": round(1000 * took, 1),
                "exact_milliseconds": round(1000 * all_of_them, 1),
                "recall": round(float(shared), 4),
                "seconds_to_make": round(made, 1),
            }
        )
        print(results[-1], flush=True)
    return results


def rows_of(kind: str, count: int) -> Tensor:
    torch.manual_seed(0)
    rows = torch.randn(count, DIM)
    if kind == "families":
        centres = torch.randn(max(count // 100, 1), DIM)
        rows = centres[torch.randint(len(centres), (count,))] + 0.5 * rows
    return project_to_sphere(rows)


def timed(work: Callable[[int], Nearest], given: int) -> tuple[Nearest, float]:
    start = time.perf_counter()
    found = work(given)
    return found, time.perf_counter() - start


if __name__ == "__main__":
    main()
