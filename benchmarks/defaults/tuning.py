"""What tuning adds to the defaults: other points, tried on a validation part, and the best one tested.

    python -m benchmarks.defaults.tuning --sets digits,bibtex --methods fedaws,fedss

The points are those of `points.py`, the default first. All points of a set and a method are judged on
the same validation part, with seed 0; the best by its first metric is then run on the test part with
every seed of `--seeds`. No test score is read before that. `--stage validation` stops there. A set that
`--folder` or `--npz` names is a training part alone: the part that a run splits off it is what judges.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import zip_longest
from typing import Any

from benchmarks.common import record
from benchmarks.common.command import at_least_one, command, refuse_unknown
from benchmarks.common.paths import RESULTS
from benchmarks.defaults.jobs import Job, own_sets, pairs_of, parser_for, run_all
from benchmarks.defaults.points import TUNED, points
from benchmarks.defaults.run_file import add, key_of, runs_in

OUT = RESULTS / "defaults" / "tuned.json"
METHODS = ("fedaws", "fedalc", "fedss")


def main(arguments: Sequence[str] | None = None) -> None:
    parser = parser_for(__doc__, sets="digits,bibtex", methods=METHODS, seeds="0,1,2", out=OUT)
    parser.add_argument("--stage", choices=("validation", "test", "both"), default="both")
    parser.add_argument("--points", type=at_least_one, help="so many of each, where time is short")
    given = parser.parse_args(arguments)
    commit = record.commit()
    own = own_sets(given)
    pairs = pairs_of(given, own)
    refuse_unknown("--methods", (method for _, method in pairs), TUNED)
    for split in ("validation", "test"):
        if given.stage not in (split, "both"):
            continue
        done = runs_in(given.out)
        if split == "validation":
            asked = _points(pairs, given.points)
        else:
            asked = _best(pairs, done, given.seeds, given.points)
        known = set() if given.again else {key_of(run) for run in done}
        jobs = [
            replace(job, device=given.device, data=own[job.set], split="test", references=False)
            if job.set in own
            else replace(job, device=given.device)
            for job in asked
            if key_of(_about(job, split)) not in known
        ]
        for job, found in run_all(jobs, given.workers, given.seconds):
            add(given.out, {**found, **_about(job, split), "commit": commit})


def _about(job: Job, split: str) -> dict[str, Any]:
    return {**job.about, "changes": list(job.changes), "split": split}


def _points(pairs: Sequence[tuple[str, str]], most: int | None = None) -> Iterator[Job]:
    """The first point of every pair, then the second: cut off, all have been tried equally often."""
    for place in zip_longest(*(points(name, method)[:most] for name, method in pairs)):
        for (name, method), point in zip(pairs, place, strict=True):
            if point is not None:
                yield Job(name, method, 0, point, "validation")


def _best(
    pairs: Sequence[tuple[str, str]],
    done: Sequence[dict[str, Any]],
    seeds: Sequence[int],
    most: int | None = None,
) -> Iterator[Job]:
    """Of the points that all methods of a set have as many of; the file may hold others."""
    for name, method in pairs:
        own = {tuple(point) for point in points(name, method)[:most]}
        tried = [
            run
            for run in done
            if (run["set"], run["method"], run["split"]) == (name, method, "validation")
            and run.get("metrics")
            and tuple(run["changes"]) in own
        ]
        if tried:
            best = max(tried, key=lambda run: next(iter(run["metrics"].values())))
            yield from (Job(name, method, seed, tuple(best["changes"])) for seed in seeds)


if __name__ == "__main__":
    command(main)
