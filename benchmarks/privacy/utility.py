"""What is left of a method's scores at ε = 1, 2, 4, 8, with noise on the server's sum or on each client.

    python -m benchmarks.privacy.utility --workers 15 --seconds 380

Every cell (data, method, who adds the noise, ε) has as many tuning points, pairs of a clip and
a server's rate; without noise as many rates. All are judged on one validation part with seed 0. The best
is run on the test part with every seed. Models are small and clients many: noise grows with the square
root of the one and falls with the number of the other. δ = 1e-5.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from scipy.optimize import brentq

from benchmarks.common import record
from benchmarks.common.command import command, names, refuse_unknown
from benchmarks.common.paths import RESULTS
from benchmarks.defaults.jobs import Job, parser_for, run_all
from spreadout.config.effect import idle_keys
from spreadout.privacy.accounting import least_noise
from spreadout.privacy.renyi import renyi_epsilon

OUT = RESULTS / "privacy" / "utility.json"
DELTA = 1e-5
EPSILONS = (1.0, 2.0, 4.0, 8.0)
MODELS = ("central", "local")
ROWS = 10  # central: how much faster class rows move than the dense part; a row has fewer holders
FEW = '{name="few_classes", examples=%d, classes=%d}'
ROUNDS = {"digits": 60, "bibtex": 40, "movielens-1m": 20}
COHORT = {"movielens-1m": (1200, 4832)}  # drawn by Poisson; elsewhere everyone is in every round
SMALL = ("model.hidden=[]", "model.dim=16", "clients.per_round=all", "clients.local_epochs=1")
FIXED: dict[str, tuple[str, ...]] = {
    "digits": (f"data.partition={FEW % (4, 2)}", *SMALL, "clients.batch=full", "clients.lr=0.5"),
    "bibtex": (f"data.partition={FEW % (20, 5)}", *SMALL, "clients.batch=full", "clients.lr=0.5"),
    "movielens-1m": (
        'data.source={name="movielens-1m", cap=50}', "model.encoder=mean", "model.dim=16",
        "clients.per_round=1200", "clients.local_steps=1", "clients.batch=16", "clients.lr=0.5",
    ),
}  # fmt: skip
ARMS: dict[str, dict[str, tuple[str, tuple[str, ...]]]] = {  # by set: arm → (method, its keys)
    "digits": {
        "FedAwS": ("fedaws", ()),
        "FedSS": ("fedss", ("method.negatives=4",)),
        "FedMLH": ("fedmlh", ("method.hash_tables=3", "method.buckets=5")),
    },
    "bibtex": {
        "FedAwS": ("fedaws", ()),
        "FedSS": ("fedss", ("method.negatives=40",)),
        "FedMLH": ("fedmlh", ("method.hash_tables=3", "method.buckets=32")),
    },
    "movielens-1m": {
        "sampled softmax": (
            "dual_encoder",
            ("method.loss_form=sampled_softmax", "method.scale=10", "method.negatives=32"),
        ),
    },
}
POINTS = {  # a clip, and the server's rate times that: how far a round goes at most
    "central": ((0.1, 0.3), (0.1, 1.0), (0.1, 3.0), (1.0, 1.0)),
    "local": ((0.1, 0.03), (0.1, 0.1), (0.1, 1.0), (1.0, 0.1)),
}
RATES = (0.3, 1.0, 3.0, 10.0)  # without noise
ADAM = frozenset({"movielens-1m"})  # plain steps hardly train items that few clients hold
ADAM_POINTS = ((0.02, 0.02), (0.02, 0.06), (0.1, 0.02), (0.1, 0.06))  # a clip, and the server's rate
ADAM_RATES = (0.03, 0.06, 0.1, 0.2)
SELF = ("server.lr_decay=none", "clients.lr_decay=none", "clients.row_lr=0.5")
METRIC = {"digits": "P@1", "bibtex": "P@1", "movielens-1m": "R@10"}


@lru_cache
def noise_for(name: str, model: str, epsilon: float) -> float:
    """In clips; on clients, for one that is in every round, or in as many as hardly any is in more."""
    rounds = ROUNDS[name]
    cohort, population = COHORT.get(name, (1, 1))
    rate = cohort / population
    if model == "local":
        visits = rounds if rate >= 1 else math.ceil(rounds * rate + 5 * math.sqrt(rounds * rate))
        return math.ceil(1e4 * least_noise(epsilon, visits, DELTA)) / 1e4
    if rate >= 1:
        return math.ceil(1e4 * least_noise(epsilon, rounds, DELTA, 1.0)) / 1e4
    found = brentq(lambda z: renyi_epsilon(z, rate, rounds, DELTA) - epsilon, 0.3, 100.0)
    return math.ceil(1e4 * found) / 1e4


def points(name: str, method: str, model: str, epsilon: float | None) -> list[tuple[str, ...]]:
    """What is tried in one cell: the overrides of each point."""
    adam = name in ADAM
    tables = () if adam or method == "fedmlh" else ("server.tables.classes.lr={}",)
    if epsilon is None and adam:
        return [(f"server.lr={rate}",) for rate in ADAM_RATES]
    if epsilon is None:
        # Where merges divide by who came, rows move as far as their clients say.
        return [(f"server.lr={rate}", *(one.format(rate) for one in tables)) for rate in RATES]
    keys = (
        f"privacy.model={model}",
        f"privacy.noise={noise_for(name, model, epsilon)}",
        f"privacy.delta={DELTA}",
    )
    if adam:
        return [(*keys, f"privacy.clip={clip}", f"server.lr={rate}") for clip, rate in ADAM_POINTS]
    faster = ROWS if model == "central" else 1
    return [
        (
            *keys,
            f"privacy.clip={clip}",
            f"server.lr={step / clip:g}",
            *(one.format(f"{faster * step / clip:g}") for one in tables),
        )
        for clip, step in POINTS[model]
    ]


Cell = tuple[str, str, str, float | None]  # set, arm, who adds the noise, ε; None: no noise


def cells(sets: Sequence[str], models: Sequence[str] = MODELS) -> Iterator[Cell]:
    for name in sets:
        for arm in ARMS[name]:
            yield name, arm, "none", None
        for epsilon in reversed(EPSILONS):
            for arm in ARMS[name]:
                yield from ((name, arm, model, epsilon) for model in models)


def job_of(cell: Cell, point: Sequence[str], seed: int, split: str) -> Job:
    name, arm, _, _ = cell
    method, keys = ARMS[name][arm]
    rounds = ROUNDS[name]
    shape = (f"rounds={rounds}", f"eval.every={rounds}", "eval.references=false")
    judged = (f'eval.metrics=["{METRIC[name]}"]',)
    rule = ("server.optimizer=adam", "server.eps=1e-8") if name in ADAM else ("server.optimizer=sgd",)
    changes = (*FIXED[name], *SELF, *rule, *keys, *shape, *judged, *point)
    job = Job(name, method, seed, changes, split)
    # Some methods have no class rows, or replace them: what is said of their rates is left out.
    idle = idle_keys(job.experiment())
    return replace(job, changes=tuple(one for one in changes if one.partition("=")[0] not in idle))


def main(arguments: Sequence[str] | None = None) -> None:
    parser = parser_for(__doc__, sets=",".join(ARMS), methods=(), seeds="0,1,2", out=OUT)
    parser.add_argument("--models", type=names, default=",".join(MODELS), help="who adds the noise")
    parser.add_argument("--share", type=float, default=0.55, help="of the seconds, for tuning")
    given = parser.parse_args(arguments)
    started, commit = time.monotonic(), record.commit()
    refuse_unknown("--sets", given.sets, list(ARMS))
    refuse_unknown("--models", given.models, list(MODELS))
    asked = list(cells(given.sets, given.models))
    for split, end in (("validation", given.share * given.seconds), ("test", given.seconds)):
        done = runs_in(given.out)
        wanted = _tried(asked) if split == "validation" else _best(asked, done, given.seeds)
        known = {key_of(run) for run in done}
        jobs, about = [], {}
        for cell, point, seed in wanted:
            said = _about(cell, point, seed, split)
            if key_of(said) not in known:
                small = cell[0] == "digits"  # there a GPU would be slower
                job = job_of(cell, point, seed, split)
                jobs.append(replace(job, device="cpu" if small else given.device))
                about[_named(job)] = said
        left = end - (time.monotonic() - started)
        for job, found in run_all(jobs, given.workers, left):
            add(given.out, {**_scores(found), **about[_named(job)], "commit": commit})


def _tried(asked: Sequence[Cell]) -> Iterator[tuple[Cell, tuple[str, ...], int]]:
    for cell in asked:
        method, _ = ARMS[cell[0]][cell[1]]
        for point in points(cell[0], method, cell[2], cell[3]):
            yield cell, point, 0


def _best(
    asked: Sequence[Cell], done: Sequence[dict[str, Any]], seeds: Sequence[int]
) -> Iterator[tuple[Cell, tuple[str, ...], int]]:
    """Of cells whose points were all tried, the best by validation."""
    for seed in seeds:
        for cell in asked:
            tried = [run for run in done if _cell(run) == cell and run["split"] == "validation"]
            if len(tried) == len(RATES):
                best = max(tried, key=lambda run: run.get("score") or 0.0)
                yield cell, tuple(best["point"]), seed


def _scores(found: dict[str, Any]) -> dict[str, Any]:
    """What it reached; what diverged or was refused has a reason and no score."""
    if "refused" in found:
        return {"score": None, "why": found["refused"], "seconds": found["seconds"]}
    (score,) = found["metrics"].values()
    return {"score": score, "rounds": found["rounds"], "seconds": found["seconds"]}


def _about(cell: Cell, point: Sequence[str], seed: int, split: str) -> dict[str, Any]:
    name, arm, model, epsilon = cell
    named = {"set": name, "arm": arm, "model": model, "epsilon": epsilon}
    return {**named, "seed": seed, "split": split, "point": list(point)}


def _named(job: Job) -> tuple[Any, ...]:
    return job.set, job.method, job.seed, job.split, *job.changes


def _cell(run: dict[str, Any]) -> Cell:
    return run["set"], run["arm"], run["model"], run["epsilon"]


def key_of(run: dict[str, Any]) -> tuple[Any, ...]:
    return *_cell(run), run["seed"], run["split"], *run["point"]


def runs_in(out: Path) -> list[dict[str, Any]]:
    """The results that are in the file."""
    return list(record.read(out)["runs"]) if out.exists() else []


def add(out: Path, run: dict[str, Any]) -> None:
    """One result more in the file, with where it was made: files grow on several machines."""
    made = {**run, "hardware": record.hardware(), "torch": record.versions()["torch"]}
    rows = sorted([*runs_in(out), made], key=lambda one: tuple(map(str, key_of(one))))
    record.write(out, {"delta": DELTA, "metric": METRIC, "runs": rows}, quiet=True)
    print({key: run[key] for key in ("set", "arm", "model", "epsilon", "split", "score")}, flush=True)


if __name__ == "__main__":
    command(main)
