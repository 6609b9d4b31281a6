"""Runs of a table, many side by side: each a process's work, each result handed back as it comes."""

from __future__ import annotations

import multiprocessing
import os
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

import spreadout as so

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
    parser.add_argument("--sets", default=sets)
    parser.add_argument("--methods", default=",".join(methods))
    parser.add_argument("--seeds", default=seeds)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=float("inf"), help="begin no run after these")
    parser.add_argument("--out", type=Path, default=out)
    parser.add_argument("--again", action="store_true", help="replace what the file has")
    parser.add_argument("--folder", action="append", default=[], metavar="NAME=PATH")
    parser.add_argument("--npz", action="append", default=[], metavar="NAME=PATH")
    return parser


def own_sets(given: Namespace) -> dict[str, dict[str, Any]]:
    """`[data]` of the sets that `--folder` and `--npz` name."""
    found = {}
    for source, pairs in (("mulan", given.folder), ("npz", given.npz)):
        for name, _, path in (pair.partition("=") for pair in pairs):
            found[name] = {"source": source, "path": path}
    return found


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
            data["path"] = str(Path(os.environ["SPREADOUT_DATA"]) / data["path"])
        values: dict[str, Any] = {"seed": self.seed, "data": data, "method": {"name": self.method}}
        if self.split == "validation":
            values["data"]["validation_fraction"] = 0.1
            values["eval"] = {"split": "validation", "references": False}
        elif not self.references:
            values["eval"] = {"references": False}
        return so.Experiment.of(values, overrides=self.changes)

    def run(self) -> dict[str, Any]:
        """What it reached; a refusal is a result too."""
        torch.set_num_threads(1)
        started = time.perf_counter()
        try:
            found = so.run(self.experiment(), device=self.device)
        except so.UserError as error:
            result: dict[str, Any] = {"refused": str(error)}
        else:
            summary = found.summary
            result = {
                "metrics": summary["metrics"],
                "references": _scores(summary.get("references") or {}),
                "findings": [one["name"] for one in summary.get("findings", [])],
                "rounds": summary["rounds"],
                "prior": found.history[-1].get("prior"),
                "megabytes": round(sum(summary["bytes"][way] for way in ("down", "up")) / 1e6, 1),
            }
        return {**self.about, **result, "seconds": round(time.perf_counter() - started, 1)}


def _scores(references: Mapping[str, Any]) -> dict[str, Any]:
    return {name: found["metrics"] for name, found in references.items() if found.get("metrics")}


def run_all(jobs: Sequence[Job], workers: int, seconds: float) -> Iterator[tuple[Job, dict[str, Any]]]:
    """Results in the order in which they come; none is begun after so many seconds."""
    if workers == 1:
        end = time.monotonic() + seconds
        for job in jobs:
            if time.monotonic() < end:
                yield job, job.run()
        return
    end = time.time() + seconds
    with multiprocessing.get_context("spawn").Pool(workers) as pool:
        for job, found in pool.imap_unordered(_run_until, ((job, end) for job in jobs)):
            if found is not None:
                yield job, found


def _run_until(asked: tuple[Job, float]) -> tuple[Job, dict[str, Any] | None]:
    job, end = asked
    return job, job.run() if time.time() < end else None
