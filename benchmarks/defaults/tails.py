"""From which tail on a feature's root is taken: default runs with several rules, on validation rows.

    python -m benchmarks.defaults.tails --folder htru=HTRU_2.csv --folder sick=sick.arff

Every set is run as if it were standardised, and with `model.input_scaling = "roots"` for every `LONG` of
`spreadout/data/tails.py` that is tried. Three rows of ten are held out and scored; test parts are not
looked at. Rules that take the same roots of a set share a run, and a set of which none takes any is left
out. `--made-up` adds tables of log-normal numbers, and their logarithms. Results are added to
`results/defaults/roots.json`; what is there is not run again.
"""

from __future__ import annotations

import multiprocessing
from argparse import Namespace
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch

import spreadout as so
from benchmarks.common import record
from benchmarks.common.command import command
from benchmarks.common.paths import RESULTS
from benchmarks.defaults.jobs import SETS, Job, own_sets, parser_for
from benchmarks.defaults.run_file import add, key_of, runs_in
from spreadout.data import tails
from spreadout.data.moments import moments

OUT = RESULTS / "defaults" / "roots.json"
RULES = (2.7, 4.0, 10.0)  # an exponential's tail; a log-normal's with σ = 1, 1.3
HELD = "data.validation_fraction=0.3"
SIGMAS, LOGARITHMS = (0.0, 1.0, 1.5, 2.0, 3.0), "their logarithms"  # of made-up tables
STANDARD, ROOTS = "model.input_scaling=standard", "model.input_scaling=roots"


@dataclass(frozen=True)
class Case:
    """A run, and the rules that it is a run of; none: features are standardised."""

    job: Job
    rules: tuple[float, ...]

    @property
    def about(self) -> dict[str, Any]:
        named = {**self.job.about, "split": self.job.split}
        if self.rules:
            named["changes"] = [*self.job.changes, f"LONG={self.rules[0]:g}"]
        return named

    def run(self) -> dict[str, Any]:
        if self.rules:
            tails.LONG = self.rules[0]
        return {**(self.job.run() or {}), **self.about, "rules": list(self.rules)}


def main(arguments: Sequence[str] | None = None) -> None:
    parser = parser_for(__doc__, sets="", methods=("fedaws", "fedss"), seeds="0,1,2", out=OUT)
    parser.add_argument("--rules", type=float, nargs="*", default=RULES)
    parser.add_argument("--made-up", action="store_true")
    given = parser.parse_args(arguments)
    with TemporaryDirectory() as folder:
        sets = own_sets(given) | (made_up(Path(folder)) if given.made_up else {})
        _run(given, sets)


def _run(given: Namespace, sets: Mapping[str, Mapping[str, Any]]) -> None:
    commit = record.commit()
    known = set() if given.again else {key_of(run) for run in runs_in(given.out)}
    asked = [case for case in _cases(given, sets) if key_of(case.about) not in known]
    with multiprocessing.get_context("spawn").Pool(given.workers) as pool:
        for found in pool.imap_unordered(Case.run, asked):
            add(given.out, {**found, "commit": commit})


def made_up(folder: Path) -> dict[str, dict[str, Any]]:
    """`[data]` of tables of five classes, whose logarithms are normal around a centre for each."""
    rng = np.random.default_rng(0)
    y = rng.integers(0, 5, 1500)
    normal = 0.7 * rng.normal(size=(5, 8))[y] + rng.normal(size=(1500, 8))
    found = {}
    for sigma in SIGMAS:
        name = f"log-normal, σ = {sigma:g}" if sigma else LOGARITHMS
        path = folder / f"{sigma:g}.npz"
        np.savez(path, x=(np.exp(sigma * normal) if sigma else normal).astype(np.float32), y=y)
        found[name] = {"source": "npz", "path": str(path)}
    return found


def _cases(given: Namespace, sets: Mapping[str, Mapping[str, Any]]) -> Iterator[Case]:
    for seed in given.seeds:
        for name in dict.fromkeys((*given.sets, *sets)):
            data = sets.get(name, SETS.get(name, {}))
            plain = Job(name, "fedaws", seed, (HELD, STANDARD), "validation", "cpu", data)
            shared = _same_roots(plain, given.rules)
            for method in given.methods if shared or name == LOGARITHMS else ():
                one = replace(plain, method=method)
                yield Case(one, ())
                for rules in shared:
                    yield Case(replace(one, changes=(HELD, ROOTS)), rules)


def _same_roots(job: Job, rules: Sequence[float]) -> list[tuple[float, ...]]:
    """The rules in groups that take the same roots; those that take none are left out."""
    x = so.load_data(job.experiment().data, job.seed).train.columns["x"]
    found = moments(x, torch.arange(len(x)), tails.with_roots)
    groups: dict[tuple[float, ...], list[float]] = {}
    for rule in rules:
        tails.LONG = rule
        power, _, _ = tails.shortened(*found)
        if bool((power < 1).any()):
            groups.setdefault(tuple(power.tolist()), []).append(rule)
    return [tuple(alike) for alike in groups.values()]


if __name__ == "__main__":
    command(main)
