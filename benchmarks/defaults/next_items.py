"""Next items without a prior and with the default one, on logs in which order says little or much.

    python -m benchmarks.defaults.next_items --out results/defaults/popularity.json

Made-up logs: `staples` (all buy by popularity, with a few favourites each), `tastes` (by popularity,
and what their group likes) and `walks` (what comes next follows from the last item). And a part of
MovieLens-1M: some of the users that train and validate there, with their first ratings of well-known
movies. Each has users of its own to judge by; none of MovieLens-1M's test users is among them.

Real logs that are no part of this repository are named with their files, of columns user, item and time:

    python -m benchmarks.defaults.next_items --sets= --folder groceries=groceries.csv …

`--priors clients` is the one that the default does not ask clients for: `method.prior = "auto"`.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.common import record
from benchmarks.common.command import command, names, refuse_unknown
from benchmarks.common.paths import RESULTS
from benchmarks.defaults.jobs import Job, data_folder, own_sets, parser_for, run_all
from benchmarks.defaults.run_file import add, key_of, runs_in
from spreadout.data.io.archive import opened
from spreadout.data.sources.movielens import ratings

OUT = RESULTS / "defaults" / "popularity.json"
PRIORS = {"none": ("method.prior=0",), "default": (), "clients": ("method.prior=auto",)}
Events = Iterator[tuple[int, int, int]]  # user, item, time


def staples(rng: np.random.Generator) -> Events:
    p = _zipf(160, 1.0)
    for user in range(400):
        favourites = rng.choice(160, 20)
        for time in range(int(rng.integers(6, 18))):
            own = rng.random() < 0.3
            yield user, int(rng.choice(favourites) if own else rng.choice(160, p=p)), time


def tastes(rng: np.random.Generator) -> Events:
    p, group = _zipf(200, 0.8), rng.integers(0, 8, 200)
    for user in range(300):
        liked = p * (1 + 4 * (group == rng.integers(8)))
        for time in range(int(rng.integers(6, 18))):
            yield user, int(rng.choice(200, p=liked / liked.sum())), time


def walks(rng: np.random.Generator) -> Events:
    after = rng.integers(0, 100, (100, 3))
    for user in range(300):
        at = int(rng.integers(100))
        for time in range(15):
            yield user, at, time
            at = int(after[at, rng.integers(3)] if rng.random() < 0.9 else rng.integers(100))


def movies(rng: np.random.Generator) -> Events:
    """First 30 ratings of the 400 movies that are rated most; by 250 who are not test users there."""
    with opened(data_folder() / "ml-1m.zip") as archive:
        found = ratings(archive)
    known = np.unique(found.user)
    users = rng.permutation(known[: int(0.9 * len(known))])[:250]
    inside = np.isin(found.user, known[: int(0.9 * len(known))])
    liked = np.argsort(-np.bincount(found.movie[inside]), kind="stable")[:400]
    for user in users.tolist():
        own = (found.user == user) & np.isin(found.movie, liked)
        order = np.argsort(found.time[own], kind="stable")[:30]
        for movie, time in zip(found.movie[own][order], found.time[own][order], strict=True):
            yield user, int(movie), int(time)


def _zipf(items: int, exponent: float) -> np.ndarray:
    p = np.arange(1, items + 1) ** -exponent
    return np.asarray(p / p.sum())


LOGS: dict[str, Callable[[np.random.Generator], Events]] = {
    "staples": staples,
    "tastes": tastes,
    "walks": walks,
    "movielens-part": movies,
}


def written(name: str, seed: int, place: Path) -> Path:
    """A log of its own for every seed."""
    path = place / f"{name}-{seed}.csv"
    rows = (f"{u},{item},{time}\n" for u, item, time in LOGS[name](np.random.default_rng(seed)))
    path.write_text("user,item,time\n" + "".join(rows))
    return path


def _log(path: Path) -> dict[str, Any]:
    return {"source": "interactions", "path": str(path)}


def main(arguments: Sequence[str] | None = None) -> None:
    parser = parser_for(__doc__, sets=",".join(LOGS), methods=("dual_encoder",), seeds="0,1,2", out=OUT)
    parser.add_argument("--priors", type=names, default="none,default")
    given = parser.parse_args(arguments)
    refuse_unknown("--sets", given.sets, list(LOGS))
    refuse_unknown("--priors", given.priors, list(PRIORS))
    commit = record.commit()
    known = set() if given.again else {key_of(run) for run in runs_in(given.out)}
    with tempfile.TemporaryDirectory() as place:
        jobs, real = [], own_sets(given)
        for seed in given.seeds:
            made = {name: _log(written(name, seed, Path(place))) for name in given.sets}
            for name, data in (made | real).items():
                own = (
                    Job(name, "dual_encoder", seed, PRIORS[prior], data=data) for prior in given.priors
                )
                jobs += [job for job in own if key_of(job.about) not in known]
        jobs = [replace(job, device=given.device) for job in jobs]
        for _, found in run_all(jobs, given.workers, given.seconds):
            add(given.out, {**found, "commit": commit})


if __name__ == "__main__":
    command(main)
