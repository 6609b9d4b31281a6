"""Runs of a table, many side by side: each a process's work, each result handed back as it comes."""

from __future__ import annotations

import multiprocessing
import os
import shutil
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

import spreadout as so
from benchmarks.common.command import at_least_one, duration, names, refuse_unknown, whole_numbers
from spreadout.config.guess import guessed
from spreadout.config.sound import asks_the_same
from spreadout.core.errors import UserError
from spreadout.methods import METHODS as KNOWN
from spreadout.runs.folder import RunFolder

SETS: dict[str, dict[str, Any]] = {
    "digits": {"source": "digits"},
    "bibtex": {"source": "bibtex"},
    "delicious": {"source": "mulan", "path": "delicious"},
    "omniglot": {"source": "omniglot"},
    "movielens-1m": {"source": "movielens-1m"},
    "cifar-10": {"source": "cifar-10"},
    "cifar-100": {"source": "cifar-100"},
    "mnist": {"source": "mnist"},
    "fashion-mnist": {"source": "fashion-mnist"},
    "synthetic-100": {
        "source": {"name": "synthetic", "classes": 100, "features": 500, "examples": 10_000}
    },
    "synthetic-1000": {
        "source": {"name": "synthetic", "classes": 1000, "features": 2000, "examples": 20_000}
    },
    "synthetic-20000": {
        "source": {"name": "synthetic", "classes": 20_000, "features": 5000, "examples": 60_000}
    },
}
METHODS = (
    "fedaws",
    "fedalc",
    "fedss",
    "flag",
    "fedavg",
    "fedmlh",
    "centralized",
    "centralized-sets",
)
PICTURES = {  # pixels a side of those that are images
    "omniglot": 28,
    "cifar-10": 32,
    "cifar-100": 32,
    "mnist": 28,
    "fashion-mnist": 28,
}
ONLY = {"movielens-1m": ("dual_encoder",)}  # histories are for one method


def parser_for(
    about: str | None, *, sets: str, methods: Sequence[str], seeds: str, out: Path
) -> ArgumentParser:
    """The arguments that every command over sets and methods has, with its defaults."""
    parser = ArgumentParser(description=about)
    parser.add_argument("--sets", type=names, default=sets)
    parser.add_argument("--methods", type=names, default=",".join(methods))
    parser.add_argument("--seeds", type=whole_numbers, default=seeds)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--workers", type=at_least_one, default=1)
    parser.add_argument("--seconds", type=duration, default=float("inf"), help="begin none after these")
    parser.add_argument("--out", type=Path, default=out)
    parser.add_argument("--again", action="store_true", help="replace what the file has")
    parser.add_argument("--folder", action="append", default=[], metavar="NAME=PATH")
    parser.add_argument("--npz", action="append", default=[], metavar="NAME=PATH")
    return parser


def own_sets(given: Namespace) -> dict[str, dict[str, Any]]:
    """`[data]` of the sets that `--folder` and `--npz` name."""
    found = {}
    for key, source in (("folder", "mulan"), ("npz", "npz")):
        for pair in getattr(given, key):
            name, _, path = pair.partition("=")
            if not name or not path:
                raise UserError(f"--{key} {pair}: write it as NAME=PATH")
            there = Path(path) if Path(path).is_absolute() else data_folder() / path
            if not there.exists():
                raise UserError(f"--{key} {pair}: no such file or folder")
            table = there.suffix.lower() == ".csv"
            found[name] = guessed(str(there)) if table else {"source": source, "path": str(there)}
    return found


def pairs_of(given: Namespace, own: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Every set that is asked for, or named with its path, with every method for it."""
    refuse_unknown("--sets", given.sets, [*SETS, *own])
    refuse_unknown("--methods", given.methods, sorted(KNOWN))
    named = dict.fromkeys((*given.sets, *own))
    if any("path" in SETS[name] for name in named if name not in own):
        data_folder()  # said before anything is run, if it is not there
    return [(name, method) for name in named for method in ONLY.get(name, tuple(given.methods))]


def data_folder() -> Path:
    """Where the sets lie that are read from files."""
    if not os.environ.get("SPREADOUT_DATA"):
        raise UserError("SPREADOUT_DATA: is not set; name the folder of the data sets")
    return Path(os.environ["SPREADOUT_DATA"])


@dataclass(frozen=True)
class Job:
    """One run: nothing but data and method, and what is changed of it."""

    set: str
    method: str
    seed: int
    changes: tuple[str, ...] = ()  # overrides of the config
    split: str = "test"
    device: str = "auto"
    data: Mapping[str, Any] = field(default_factory=dict)  # `[data]` of a set that is not in SETS
    references: bool = True

    @property
    def about(self) -> dict[str, Any]:
        named = {"set": self.set, "method": self.method, "seed": self.seed}
        return {**named, "changes": list(self.changes)} if self.changes else named

    def experiment(self) -> so.Experiment:
        data = dict(self.data or SETS[self.set])
        if "path" in data and not Path(data["path"]).is_absolute():
            data["path"] = str(data_folder() / data["path"])
        values: dict[str, Any] = {"seed": self.seed, "data": data, "method": {"name": self.method}}
        if self.split == "validation":
            values["data"]["validation_fraction"] = 0.1
            values["eval"] = {"split": "validation", "references": False}
        elif not self.references:
            values["eval"] = {"references": False}
        return so.Experiment.of(values, overrides=self.changes)

    def place(self, folder: Path) -> Path:
        """Where the run is kept until it ends."""
        return folder / "-".join(
            (*map(str, (self.set, self.method, self.seed, self.split)), *self.changes)
        )

    def run(self, folder: Path | None = None, end: float = float("inf")) -> dict[str, Any] | None:
        """What it reached; a refusal is a result too.

        folder: of runs that are gone on with. At `end`, by `time.time`, the run is saved there and None
        is returned; so is one whose process was killed, up to its last evaluation.
        """
        torch.set_num_threads(1)
        started = time.perf_counter()
        place = None if folder is None else self.place(folder)
        try:
            found = self._result(place, end)
        except so.Interrupted:
            return None
        except so.UserError as error:
            result: dict[str, Any] = {"refused": str(error)}
        else:
            summary = found.summary
            started -= max(0.0, summary["seconds"] - (time.perf_counter() - started))  # of parts before
            result = {
                "metrics": summary["metrics"],
                "references": _scores(summary.get("references") or {}),
                "findings": [one["name"] for one in summary.get("findings", [])],
                "rounds": summary["rounds"],
                "prior": found.history[-1].get("prior"),
                "megabytes": round(sum(summary["bytes"][way] for way in ("down", "up")) / 1e6, 1),
            }
        if place is not None:
            shutil.rmtree(place, ignore_errors=True)
        return {**self.about, **result, "seconds": round(time.perf_counter() - started, 1)}

    def _result(self, place: Path | None, end: float) -> so.Result:
        if place is None:
            return so.run(self.experiment(), device=self.device)
        how: dict[str, Any] = {"device": self.device, "stop": lambda: time.time() > end}
        there, asked = RunFolder(place), self.experiment()
        begun = there.config.is_file() and there.has_checkpoint
        if begun and asks_the_same(asked, so.Experiment.load(there.config)):
            return so.resume(place, **how)
        return so.run(asked, out=place, force=True, **how)


def _scores(references: Mapping[str, Any]) -> dict[str, Any]:
    return {name: found["metrics"] for name, found in references.items() if found.get("metrics")}


def run_all(
    jobs: Sequence[Job], workers: int, seconds: float, folder: Path | None = None
) -> Iterator[tuple[Job, dict[str, Any]]]:
    """Results in the order in which they come; none is begun after so many seconds.

    folder: where runs that still go on then are saved, and gone on with.
    """
    end = time.time() + seconds
    asked = ((job, end, folder) for job in jobs)
    if workers == 1:
        yield from _ended(map(_run_until, asked))
        return
    with multiprocessing.get_context("spawn").Pool(workers) as pool:
        yield from _ended(pool.imap_unordered(_run_until, asked))


def _ended(
    runs: Iterable[tuple[Job, dict[str, Any] | None]],
) -> Iterator[tuple[Job, dict[str, Any]]]:
    for job, found in runs:
        if found is not None:
            yield job, found


def _run_until(asked: tuple[Job, float, Path | None]) -> tuple[Job, dict[str, Any] | None]:
    job, end, folder = asked
    if time.time() >= end:
        return job, None
    return job, job.run() if folder is None else job.run(folder, end)
