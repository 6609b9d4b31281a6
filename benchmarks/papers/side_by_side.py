"""Many runs side by side, within a time limit, each kept as it ends.

A finished run is one line of `FOLDER/SUITE.jsonl`: its config and what a table needs of it. A run with
the same config is not made again, whichever machine made it. Until it ends, a run has a folder
`FOLDER/SUITE/VARIANT/seed-SEED`. One that the limit cut short, or that was killed, goes on there.

A plan says which runs can be made by now: some wait until others have chosen their settings.
"""

from __future__ import annotations

import argparse
import gc
import json
import multiprocessing
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Executor, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Protocol, TypeVar

import torch

from benchmarks.common.command import at_least_one, duration
from benchmarks.common.record import commit, hardware
from spreadout.config.experiment import Experiment
from spreadout.config.sound import asks_the_same
from spreadout.core.errors import UserError
from spreadout.core.files import append
from spreadout.runs.claim import SUMS
from spreadout.runs.folder import RunFolder
from spreadout.runs.observer import Interrupted
from spreadout.runs.result import Result
from spreadout.runs.train import resume, run

T = TypeVar("T")
Made = dict[str, Any]
More = Callable[[Result, Experiment], Made]  # what else is to be kept of a finished run
START = 15.0  # seconds before the first round of a run and after its last, at most
AT_END_ONLY = 1_000_000  # rounds: a run that is asked to stop saves itself


@dataclass(frozen=True)
class Job:
    """One run. arm: those whose runs take about as long; rank: lower ones are begun first.

    at_best: its scores are those of its best round by the validation part, not of its last.
    """

    suite: str
    arm: str
    variant: str
    experiment: Experiment  # with its seed
    rank: int = 0
    more: More | None = None
    at_best: bool = False

    @property
    def key(self) -> str:
        return f"{self.variant} {self.experiment.seed}"

    @property
    def name(self) -> str:
        return f"{self.suite} {self.variant} {self.experiment.seed}"

    def place(self, folder: Path) -> Path:
        return folder / self.suite / self.variant / f"seed-{self.experiment.seed}"


class Kept:
    """The finished runs of a suite, in a file that grows by a line for each."""

    def __init__(self, folder: Path, suite: str) -> None:
        self.path, self.runs = folder / f"{suite}.jsonl", dict[str, Made]()
        for line in self.path.read_text(encoding="utf-8").splitlines() if self.path.is_file() else ():
            try:
                found = json.loads(line)
            except ValueError:  # the process died while it wrote
                continue
            self.runs[found["key"]] = found  # a later one with another config counts

    def of(self, job: Job) -> Made | None:
        """The run, if it was made with this very config."""
        found = self.runs.get(job.key)
        return found if found is not None and found["config"] == config_of(job.experiment) else None

    def add(self, job: Job, found: Mapping[str, Any]) -> None:
        about = {"key": job.key, "arm": job.arm, "config": config_of(job.experiment)}
        self.runs[job.key] = {**about, "commit": _commit(), "hardware": _hardware(), **found}
        self.path.parent.mkdir(parents=True, exist_ok=True)
        whole = not self.path.is_file() or self.path.read_bytes()[-1:] in (b"\n", b"")
        line = ("" if whole else "\n") + json.dumps(self.runs[job.key]) + "\n"
        append(self.path, line.encode())

    def seconds(self, job: Job) -> float:
        """How long a run will take, by the slowest of its arm, else of its suite; 0: nobody knows."""
        ended = [one for one in self.runs.values() if "failed" not in one]
        known = [one for one in ended if one["arm"] == job.arm] or ended
        if not known:
            return 0.0
        each = max(float(one["summary"]["seconds"]) / max(_rounds(one), 1) for one in known)
        rounds = job.experiment.rounds
        if job.experiment.eval.patience is not None:  # others of the arm tell where that ends
            rounds = min(rounds, max(map(_rounds, known)))
        return START + each * rounds


def _rounds(found: Made) -> int:
    return int(found["history"][-1]["round"])


def config_of(experiment: Experiment) -> Made:
    return experiment.model_dump(mode="json", exclude_none=True)


_commit, _hardware = cache(commit), cache(hardware)


class Plan(Protocol):
    """The runs of a suite."""

    @property
    def suite(self) -> str: ...

    def jobs(self, kept: Kept) -> Sequence[Job]:
        """All that can be made by now, those that were made too."""
        ...


@dataclass(frozen=True)
class Running:
    """Where runs are kept, how many there are at once, and until when."""

    folder: Path
    device: str = "auto"
    jobs: int = 1
    seconds: float = float("inf")
    begun: float = 0.0  # by `time.time`, which all processes share
    folders_stay: bool = False  # those of finished runs
    settles: bool = False  # runs that are scored at their best round end where time does
    in_parts: bool = False  # runs are begun that will not end in time

    @property
    def end(self) -> float:
        return self.begun + self.seconds


def add_running(parser: argparse.ArgumentParser) -> None:
    """The options of every command that makes many runs."""
    parser.add_argument("--device", default="auto")
    parser.add_argument("--jobs", type=at_least_one, default=1, help="runs side by side, a process each")
    parser.add_argument("--runs", type=Path, help="keep runs here, and go on with those there")
    parser.add_argument(
        "--seconds",
        type=duration,
        default=float("inf"),
        help="begin no run that would not end in time, and stop after these; 0: write what is kept",
    )
    parser.add_argument(
        "--in-parts",
        action="store_true",
        help="begin runs that will not end in time too, to go on later",
    )
    parser.add_argument(
        "--settle",
        action="store_true",
        help="runs that choose their own round end when time is up: scored at their best round so far",
    )


@contextmanager
def running_of(given: argparse.Namespace) -> Iterator[Running]:
    """As the options say; without --runs, what is kept goes with the command."""
    about = {"device": given.device, "jobs": given.jobs, "seconds": given.seconds, "begun": time.time()}
    about |= {"settles": given.settle, "in_parts": given.in_parts}
    if given.runs is not None:
        yield Running(given.runs, **about)
        return
    with tempfile.TemporaryDirectory() as folder:
        yield Running(Path(folder), **about)


def run_plans(plans: Sequence[Plan], running: Running) -> list[Kept]:
    """All runs of all plans that end in time; what is kept of each plan's."""
    kept = {plan.suite: Kept(running.folder, plan.suite) for plan in plans}
    refused = set[str]()
    with _workers(running.jobs) as pool:
        begun: dict[Future[Made | None], Job] = {}
        while True:
            going = {job.name for job in begun.values()}
            for job in _waiting(plans, kept, running.folder):
                if len(begun) >= running.jobs:
                    break
                if job.name not in going | refused and _in_time(job, kept[job.suite], running):
                    going.add(job.name)
                    begun[pool.submit(_made, job, running)] = job
            if not begun:
                break
            for done in wait(begun, return_when=FIRST_COMPLETED).done:
                job = begun.pop(done)
                if not _keep(job, done, kept[job.suite]):
                    refused.add(job.name)
    left = sum(len(_open(plan, kept[plan.suite])) for plan in plans)
    if left:
        print(f"{left} runs are left for another time", flush=True)
    return [kept[plan.suite] for plan in plans]


class _Here(Executor):
    """For one run at a time: this process, with all its threads."""

    def submit(self, work: Callable[..., T], /, *given: Any, **named: Any) -> Future[T]:
        done: Future[T] = Future()
        try:
            done.set_result(work(*given, **named))
        except Exception as error:
            done.set_exception(error)
        return done


def _workers(jobs: int) -> Executor:
    if jobs == 1:
        return _Here()
    # Of several processes each has one thread: the others are at work too.
    return ProcessPoolExecutor(jobs, multiprocessing.get_context("spawn"), torch.set_num_threads, (1,))


def _open(plan: Plan, kept: Kept) -> list[Job]:
    return [job for job in plan.jobs(kept) if kept.of(job) is None]


def _waiting(plans: Sequence[Plan], kept: Mapping[str, Kept], folder: Path) -> list[Job]:
    """Runs to be made, those first that were begun before."""
    found = [job for plan in plans for job in _open(plan, kept[plan.suite])]
    return sorted(found, key=lambda job: (not job.place(folder).exists(), job.rank))


def _in_time(job: Job, kept: Kept, running: Running) -> bool:
    """Whether it ends in time; one that is longer than all the time can only be made in parts."""
    left, needed = running.end - time.time(), kept.seconds(job)
    if running.settles and job.at_best:  # what it has come to is scored, however little time there is
        return left > START or _was_begun(job.place(running.folder), job.experiment)
    if running.in_parts:
        return left > START
    return left > 0 and (needed <= left or needed > running.seconds)


def _keep(job: Job, done: Future[Made | None], kept: Kept) -> bool:
    """Note a run that ended; what is wrong with one is said. False: it is not to be tried again now."""
    try:
        found = done.result()
    except BrokenProcessPool:
        raise UserError(f"{job.name}: its process died; memory may not suffice") from None
    except (UserError, RuntimeError) as error:
        if not str(error).startswith("diverged"):  # a config that is refused, or too little memory
            print(f"{job.name}: {str(error).splitlines()[0]}", flush=True)
            return False
        found = {"failed": str(error)}  # that is what is known of this setting
    if found is None:
        print(f"{job.name}: cut short, goes on another time", flush=True)
        return False
    kept.add(job, found)
    said = found.get("failed") or f"{found['summary']['seconds']:.0f} s"
    print(f"{job.name}: {said}", flush=True)
    return True


def _made(job: Job, running: Running) -> Made | None:
    """In a process of its own: the run, or its rest; None if it was cut short."""
    gc.collect()  # graphs of the run before are in cycles
    if torch.cuda.is_available():
        torch.cuda.empty_cache()  # what it had is for all processes
    place, experiment = job.place(running.folder), job.experiment
    if experiment.run.checkpoint_every is None:
        at_end = experiment.run.model_copy(update={"checkpoint_every": AT_END_ONLY})
        experiment = experiment.model_copy(update={"run": at_end})
    how: Made = {
        "device": running.device,
        "progress": False,
        "stop": lambda: time.time() > running.end,
    }
    cut_short = False
    try:
        if _was_begun(place, experiment):
            result = resume(place, **how)
        else:
            result = run(experiment, out=place, force=True, **how)
    except Interrupted as cut:
        if not (running.settles and job.at_best):
            return None
        result, cut_short = _ended_at(place, cut.round, running.device), True
    found: Made = {"summary": dict(result.summary), "history": result.history}
    if cut_short:
        found["cut_short"] = True
    if job.at_best:
        best = result.summary["best"]
        found["summary"]["metrics"] = {name: best[name] for name in result.summary["metrics"]}
    if job.more is not None:
        found["more"] = job.more(result, experiment)
    if not running.folders_stay:
        shutil.rmtree(place, ignore_errors=True)
    return found


def _ended_at(place: Path, rounds: int, device: str) -> Result:
    """What a run that was cut short has come to, as if it had been meant to end there."""
    config = RunFolder(place).config  # with what was chosen from the data
    shorter = Experiment.load(config).model_copy(update={"rounds": rounds})
    config.write_text(shorter.to_toml(), encoding="utf-8")
    (place / SUMS).unlink(missing_ok=True)  # of the config as it was
    return resume(place, device=device, progress=False)


def _was_begun(place: Path, experiment: Experiment) -> bool:
    there = RunFolder(place)
    if not there.config.is_file() or not there.has_checkpoint:
        return False
    return asks_the_same(experiment, Experiment.load(there.config))
