"""Choose hyper-parameters on validation splits of the training data; the test part is never scored.

    python -m benchmarks.papers.tune digits-fedaws --grid clients.lr=0.1,0.2 method.strength=0.1,0.3 \
        --set method.name=fedaws --splits 8 --out results/digits/tuning-fedaws.json

Every point of the grid is run once per split: split v cuts off its own validation part, draws its own
test part (which nobody looks at) and starts from its own seed. Prints the points, best first.
"""

from __future__ import annotations

import itertools
import multiprocessing
import statistics
from pathlib import Path
from typing import Any

import torch

import spreadout as so
from benchmarks.common.command import command, parser_of
from benchmarks.common.record import write


def score(job: tuple[str, list[str], int, str, int]) -> dict[str, float]:
    config, overrides, split, device, threads = job
    if threads:
        torch.set_num_threads(threads)
    held = [f"data.validation_seed={split}", f"seed={split}", "eval.split=validation"]
    result = so.run(so.Experiment.load(config, [*overrides, *held]), device=device)
    best = result.summary["best"]
    at_best = {f"best {name}": best[name] for name in result.metrics}
    cosine = result.summary["geometry"]["max_cosine"]
    return {**result.metrics, **at_best, "best round": best["round"], "max_cosine": cosine}


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("config")
    parser.add_argument("--grid", nargs="+", default=[], metavar="KEY=V1,V2")
    parser.add_argument("--set", nargs="+", default=[], metavar="KEY=VALUE")
    parser.add_argument("--splits", type=int, default=8)
    parser.add_argument(
        "--fraction", type=float, default=0.2, help="share of training data to validate on"
    )
    parser.add_argument("--device", default="auto")
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--out", type=Path)
    a = parser.parse_args()

    keys = [axis.partition("=")[0] for axis in a.grid]
    values = [axis.partition("=")[2].split(",") for axis in a.grid]
    fixed = [*a.set, f"data.validation_fraction={a.fraction}"]
    points = [dict(zip(keys, point, strict=True)) for point in itertools.product(*values)]
    threads = 1 if a.processes > 1 else 0
    jobs = [
        (a.config, [*fixed, *(f"{k}={v}" for k, v in point.items())], split, a.device, threads)
        for point in points
        for split in range(a.splits)
    ]
    scores = []
    with multiprocessing.get_context("spawn").Pool(a.processes) as pool:
        for done in pool.imap(score, jobs) if a.processes > 1 else map(score, jobs):
            scores.append(done)
            point = points[(len(scores) - 1) // a.splits]
            print(f"{len(scores)}/{len(jobs)}", point, next(iter(done.items())), flush=True)
    results: list[dict[str, Any]] = []
    for i, point in enumerate(points):
        mine = scores[i * a.splits : (i + 1) * a.splits]
        results.append({"point": point, **{name: [s[name] for s in mine] for name in mine[0]}})
    metric = next(name for name in results[0] if name != "point")
    results.sort(key=lambda r: -statistics.fmean(r[metric]))
    for r in results:
        error = statistics.stdev(r[metric]) / a.splits**0.5 if a.splits > 1 else 0.0
        found = f"{metric} {statistics.fmean(r[metric]):6.2f} ± {error:.2f}"
        top, when = (statistics.fmean(r[name]) for name in (f"best {metric}", "best round"))
        found += f"  best {top:6.2f} at round {when:.0f}"
        print(f"{found}  largest cosine {statistics.fmean(r['max_cosine']):5.2f}  {r['point']}")
    if a.out:
        write(a.out, {"config": a.config, "set": fixed, "splits": a.splits, "results": results})


if __name__ == "__main__":
    command(main)
