"""A random search for defaults: drawn configs, each on several data sets, scored on validation parts.

    python -m benchmarks.defaults.search --data ~/mulan ~/data --configs 400 --seconds 78 --workers 16 \
        --out results/defaults/search.json

Runs until all configs are done or the time is up, so how far it gets depends on the machine; which
configs are drawn does not. `--exact-steps` takes the package's steps (see `emulation.py`), the default
those of the committed results. What follows from the results: `benchmarks.defaults.leave_one_out`.
"""

from __future__ import annotations

import multiprocessing
import random
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from benchmarks.common.command import command, parser_of
from benchmarks.common.record import write
from benchmarks.defaults import differences, sets
from benchmarks.defaults.emulation import TAUS, Held, run
from benchmarks.defaults.runs import Run, Values, as_config, to_file
from spreadout.runs.build import pick_device

Choices = Mapping[str, Sequence[Any]]  # a value that stands twice is drawn twice as often
TURNS = ("fedaws", "fedss", "fedaws", "fedalc")  # configs are drawn for these in turn
SHARED: Choices = {
    "server_lr": (0.0003, 0.001, 0.003, 0.01),
    "hidden": ((), (256,), (512,)),
    "dim": (64, 128, 256),
    "input_dropout": (0, 0.2, 0.5),
    "inputs": ("raw", "unit", "layer_norm"),
    "batch": (16, 64),
    "weighting": ("examples", "uniform"),
    "rounds": (100, 200),
    "per_round": (100, 200),
    "selection": ("uniform", "weighted"),
}
SPREAD: Choices = {
    "row_lr": (0.03, 0.1, 0.3, 1.0),
    "spreadout_steps": (1, 1, 3),
    "spreadout_margin": (1.0, 1.1, 1.3),
    "share": (1.0, 1.0, 0.3),
    "margin": (0.9, 0.9, 0.7),
}
SAMPLED: Choices = {
    "row_lr": (0.001, 0.003, 0.01, 0.03),
    "scale": (10.0, 20.0, 40.0),
    "negatives": (10, 100),
    "correct": (True, True, False),
}


def drawn(count: int, seed: int) -> dict[int, Values]:
    """So many configs by their numbers."""
    rng = random.Random(seed)
    found = {}
    for number in range(count):
        method = TURNS[number % len(TURNS)]
        space = {**SHARED, **(SAMPLED if method == "fedss" else SPREAD)}
        found[number] = {"method": method, **{key: rng.choice(values) for key, values in space.items()}}
    return found


@dataclass(frozen=True)
class Work:
    """What one of several processes does."""

    configs: dict[int, Values]
    names: tuple[str, ...]
    folders: tuple[Path, ...]
    place: int  # it takes every `of`-th run, beginning with this one
    of: int
    seconds: float
    device: str
    exact_steps: bool


def work(given: Work) -> list[Run]:
    """Its runs, as far as the time allows."""
    torch.set_num_threads(1)
    device, end = pick_device(given.device), time.monotonic() + given.seconds
    jobs = [(number, name) for number in given.configs for name in given.names]
    held: dict[str, Held] = {}
    done = []
    for number, name in jobs[given.place :: given.of]:
        if time.monotonic() > end:
            break
        if name not in held:
            held[name] = sets.load(name, given.folders, device)
        config = as_config(given.configs[number], exact_steps=given.exact_steps)
        done.append(Run(number, name, run(config, held[name])))
    return done


def search(parts: Sequence[Work]) -> list[Run]:
    """All runs of all processes; a single part is done in this one."""
    if len(parts) == 1:
        return work(parts[0])
    with ProcessPoolExecutor(len(parts), multiprocessing.get_context("spawn")) as pool:
        return [run for runs in pool.map(work, parts) for run in runs]


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--sets", nargs="+", default=list(sets.SETS), metavar="NAME")
    parser.add_argument("--data", nargs="+", type=Path, default=[], help="folders that hold the sets")
    parser.add_argument("--configs", type=int, default=400, help="how many are drawn")
    parser.add_argument("--seconds", type=float, default=600.0, help="no run begins later than this")
    parser.add_argument("--workers", type=int, default=1, help="processes")
    parser.add_argument("--seed", type=int, default=7, help="of the draw of configs")
    parser.add_argument("--exact-steps", action="store_true", help="the package's steps")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--out", type=Path, required=True)
    a = parser.parse_args()
    configs, names, folders = drawn(a.configs, a.seed), tuple(a.sets), tuple(a.data)
    for name in names:  # what is not there should be known at once
        sets.arrays(name, folders)
    shared = (a.workers, a.seconds, a.device, a.exact_steps)
    parts = [Work(configs, names, folders, place, *shared) for place in range(a.workers)]
    began = time.monotonic()
    runs = search(parts)
    about = {
        "seed": a.seed,
        "workers": a.workers,
        "seconds": round(time.monotonic() - began),
        "exact_steps": a.exact_steps,
        "taus": TAUS,
        "differences": (*(() if a.exact_steps else differences.STEPS), *differences.OTHERS),
        "sets": names,
    }
    write(a.out, {**about, **to_file(configs, runs)})


if __name__ == "__main__":
    command(main)
