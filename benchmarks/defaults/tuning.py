"""What tuning adds to the defaults: configs drawn, tried on a validation part, and the best one tested.

    python -m benchmarks.defaults.tuning --sets digits,bibtex --methods fedaws,fedss --points 12

The default is the first point, the others are drawn from SPACE. All points of a set and a method are
judged on the same validation part, with seed 0; the best by its first metric is then run on the test
part with every seed of `--seeds`. No test score is read before that.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from benchmarks.common import record
from benchmarks.common.paths import RESULTS
from benchmarks.defaults.__main__ import add
from benchmarks.defaults.jobs import ONLY, SETS, Job, parser_for, run_all
from spreadout.core.randomness import key

OUT = RESULTS / "defaults" / "tuned.json"
METHODS = ("fedaws", "fedalc", "fedss")
RATES = ("server.lr=0.001", "server.lr=0.003", "server.lr=0.01", "server.lr=0.03")
ADAM = ("server.optimizer=adam", "server.eps=1e-8", "server.lr_decay=cosine")  # as the default has it
EVERY: dict[str, tuple[str, ...]] = {  # values of a key; an empty one leaves it to the default
    "rounds": ("", "rounds=600", "rounds=1000"),
    "batch": ("", "clients.batch=64", "clients.batch=128"),
}
ON_FEATURES = {
    "hidden": ("", "model.hidden=[]", "model.hidden=[512]", "model.hidden=[1024]"),
    "dropout": ("", "clients.input_dropout=0", "clients.input_dropout=0.4"),
}
POSITIVES = {
    "row_lr": ("", "clients.row_lr=0.1", "clients.row_lr=0.3", "clients.row_lr=3"),
    "margin": ("", "method.margin=0.7", "method.margin=0.8"),
    "spread": ("", "method.spreadout_margin=0.9", "method.spreadout_margin=1.3"),
    "weighting": ("", "method.weighting=examples"),
}
SPACE: dict[str, dict[str, tuple[str, ...]]] = {
    "fedaws": POSITIVES,
    "fedalc": POSITIVES,
    "fedss": {
        "scale": ("", "method.scale=5", "method.scale=20"),
        "correct": ("", "method.correct=false"),
        "weighting": ("", "method.weighting=uniform"),
    },
    "dual_encoder": {"scale": ("", "method.scale=5", "method.scale=20")},
}
LOCAL = ("clients.lr=0.1", "clients.local_steps=1", "clients.lr_decay=cosine")  # … of positives alone
IMAGES = frozenset({"omniglot", "cifar-10"})


def drawn(name: str, method: str, points: int) -> list[tuple[str, ...]]:
    """The overrides of each point; the first has none."""
    space = {**EVERY, **SPACE[method]}
    if name not in IMAGES | set(ONLY):
        space |= ON_FEATURES
    found: list[tuple[str, ...]] = [()]
    draw = np.random.default_rng(key(0, "tuning", name, method))
    while len(found) < points:
        chosen = [str(draw.choice(values)) for values in space.values()]
        changes = [one for one in chosen if one]
        if method != "dual_encoder":
            changes += [str(draw.choice(RATES)), *ADAM]
        if any(one.startswith("clients.row_lr") for one in changes):
            changes += LOCAL  # who sets one of the clients' rates chooses all of them
        if tuple(changes) not in found:
            found.append(tuple(changes))
    return found


def main(arguments: Sequence[str] | None = None) -> None:
    parser = parser_for(__doc__, sets="digits,bibtex", methods=METHODS, seeds="0,1,2", out=OUT)
    parser.add_argument("--points", type=int, default=12)
    given = parser.parse_args(arguments)
    commit = record.commit()
    pairs = [
        (name, method)
        for name in given.sets.split(",")
        for method in ONLY.get(name, tuple(given.methods.split(",")))
    ]
    assert all(name in SETS for name, _ in pairs), f"known: {', '.join(SETS)}"
    for split in ("validation", "test"):
        done = record.read(given.out)["runs"] if given.out.exists() else []
        seeds = [int(seed) for seed in given.seeds.split(",")]
        asked = _points(pairs, given.points) if split == "validation" else _best(pairs, done, seeds)
        known = {_named(run) for run in done}
        jobs = [replace(job, device=given.device) for job in asked if _named(_about(job)) not in known]
        for job, found in run_all(jobs, given.workers, given.seconds):
            add(given.out, {**found, **_about(job), "commit": commit})


def _about(job: Job) -> dict[str, Any]:
    return {**job.about, "changes": list(job.changes), "split": job.split}


def _named(run: dict[str, Any]) -> tuple[Any, ...]:
    return run["set"], run["method"], run["seed"], run["split"], *run["changes"]


def _points(pairs: Sequence[tuple[str, str]], points: int) -> Iterator[Job]:
    for i in range(points):
        for name, method in pairs:
            yield Job(name, method, 0, drawn(name, method, points)[i], "validation")


def _best(
    pairs: Sequence[tuple[str, str]], done: Sequence[dict[str, Any]], seeds: Sequence[int]
) -> Iterator[Job]:
    for name, method in pairs:
        tried = [
            run
            for run in done
            if (run["set"], run["method"], run["split"]) == (name, method, "validation")
            and run.get("metrics")
        ]
        if tried:
            best = max(tried, key=lambda run: next(iter(run["metrics"].values())))
            yield from (Job(name, method, seed, tuple(best["changes"])) for seed in seeds)


if __name__ == "__main__":
    main()
