"""Table 1 of FedAwS on CIFAR-10 and CIFAR-100: Baseline-1, Baseline-2, FedAwS and the softmax oracle.

    python -m benchmarks.papers.cifar --out results/cifar/table1.json --epochs 100 resnet8=200 --jobs 5

`--epochs` and `--tuning-epochs` take a number and exceptions by network, data set or both, or arm:
`100 resnet8=200 cifar-100=80 baseline-1=40`.

Every arm has equally many points to choose from. They are trained for a few epochs on nine tenths of the
training images, on the smaller network of each data set, and scored on the tenth that is held out; the
best is trained for all networks of that set on all training images and scored on the test images, once.
All arms share the recipe below: one step a client and round, momentum and weight decay at the server, a
rate that falls with a cosine, images shifted and mirrored. The rate of class rows, which is the
clients', falls too, and with it that of the encoder falls with the cosine's square, in all arms.

Networks and arms are begun in the order in which they are named. Every result is written as it comes,
and what is in the file is not run again. With `--seconds` no run is begun that would not end in time, by
how long others took and how many ran beside them.
"""

from __future__ import annotations

import multiprocessing
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch

import spreadout as so
from benchmarks.common.command import at_least_one, command, duration, parser_of
from benchmarks.common.record import commit, read, write
from benchmarks.papers.published import figures_of
from spreadout.config.values import overlay
from spreadout.core.errors import UserError
from spreadout.data.load import DataConfig, load_data
from spreadout.data.splits import Splits

Changes = Mapping[str, Mapping[str, Any]]
HELD_OUT = 0.1
IMAGES = 50_000  # of training
NETS = {  # network by network: its data set, and the network its points are tried on
    "cifar-10 resnet8": ("cifar-10", "resnet8"),
    "cifar-10 resnet32": ("cifar-10", "resnet8"),
    "cifar-100 resnet32": ("cifar-100", "resnet32"),
    "cifar-100 resnet56": ("cifar-100", "resnet32"),
}
LONGEST_FIRST = ["cifar-100 resnet56", "cifar-10 resnet32", "cifar-100 resnet32", "cifar-10 resnet8"]
LABELS = {
    "baseline-1": "Baseline-1",
    "baseline-2": "Baseline-2",
    "fedaws": "FedAwS",
    "centralized": "softmax oracle",
    "fedaws-rows": "FedAwS, rows and spreadout tuned",
}
SAME = {"fedaws-rows": "fedaws"}  # the method of an arm, and its row of the paper
CLIENTS = {"cifar-10": (10, 51), "cifar-100": (100, 5)}  # and how many images each brings to a round
SECONDS_A_ROUND = {"resnet8": 0.003, "resnet32": 0.006, "resnet56": 0.011}  # of a device shared by many
ALONE = {"resnet8": 0.007, "resnet32": 0.013, "resnet56": 0.021}  # less it never is
START = 25.0  # seconds a process takes to be ready, and a run to end


def points(steps: Sequence[tuple[float, float]], **more: Mapping[str, Any]) -> list[Changes]:
    """Some rates and weight decays of the server, with what else an arm has."""
    return [{"server": {"lr": lr, "weight_decay": decay}, **more} for lr, decay in steps]


# Equally many of each, of a rate and a weight decay. Behind a norm it is their product that says how
# far a step turns the weights, and a softmax of scale 20 has gradients some ten times as long as the
# hinge, so its rates are as much lower and its weight decays higher. Of the first four most arms chose
# the largest product; the last two go beyond it.
STEPS = ((0.4, 5e-4), (0.2, 5e-4), (0.4, 1e-3), (0.8, 5e-4), (0.4, 2e-3), (0.8, 1e-3))
SOFTMAX_STEPS = ((0.05, 5e-4), (0.02, 5e-4), (0.05, 2e-3), (0.1, 1e-3), (0.1, 2e-3), (0.1, 4e-3))
# For long runs, which the few epochs of the first six could not choose for: larger products still, and
# for FedAwS slower rows that are pushed harder.
LONG_STEPS = ((0.4, 1e-3), (0.4, 2e-3), (0.8, 1e-3), (0.4, 4e-3), (0.8, 2e-3))
LONG_SOFTMAX_STEPS = ((0.1, 4e-3), (0.2, 2e-3), (0.2, 4e-3), (0.1, 8e-3), (0.2, 8e-3))
LONG_FEDAWS = (  # rates and weight decays of the server, rates of rows, strengths
    (0.4, 1e-3, 0.1, 0.01),
    (0.4, 1e-3, 0.1, 0.1),
    (0.4, 2e-3, 0.1, 0.1),
    (0.4, 2e-3, 0.03, 1.0),
    (0.4, 4e-3, 0.1, 0.1),
)
ARMS: dict[str, list[Changes]] = {
    "baseline-1": points(STEPS + LONG_STEPS, clients={"row_lr": 0.3}),
    "baseline-2": points(STEPS + LONG_STEPS, method={"margin": 0.9}),
    "fedaws": [
        *points(STEPS, clients={"row_lr": 0.3}, method={"strength": 0.01}),
        *(
            one
            for lr, decay, rows, strength in LONG_FEDAWS
            for one in points([(lr, decay)], clients={"row_lr": rows}, method={"strength": strength})
        ),
    ],
    "centralized": points(
        SOFTMAX_STEPS + LONG_SOFTMAX_STEPS, clients={"row_lr": 0.05}, method={"scale": 20.0}
    ),
}
# What the clients' rows and the server's spreadout are worth where classes are many: the rates that
# FedAwS chose there, with other rates of rows, strengths and margins.
ROWS = (
    (0.3, 0.03, 0.9),
    (0.1, 0.01, 0.9),
    (0.03, 0.01, 0.9),
    (0.1, 0.03, 0.9),
    (0.3, 0.01, 0.5),
    (0.1, 0.1, 0.9),
)
OWN: dict[str, list[Changes]] = {
    "fedaws-rows": [
        {
            "server": {"lr": 0.4, "weight_decay": 1e-3},
            "clients": {"row_lr": rate},
            "method": {"strength": strength, "margin": margin},
        }
        for rate, strength, margin in ROWS
    ]
}
EVERY = {**ARMS, **OWN}


@dataclass(frozen=True)
class Job:
    """One run: a point of an arm, scored on held-out images or on the test images."""

    net: str  # a key of NETS
    arm: str
    point: int  # of the arm's
    test: bool
    epochs: int
    seed: int

    @property
    def name(self) -> str:
        scored = "test" if self.test else "validation"
        return f"{self.net}, {self.arm}, point {self.point}, {self.epochs} epochs, {scored}, {self.seed}"

    @property
    def encoder(self) -> str:
        return self.net.split()[1]

    @property
    def rounds(self) -> int:
        clients, batch = CLIENTS[NETS[self.net][0]]
        kept = IMAGES if self.test else round(IMAGES * (1 - HELD_OUT))
        return max(1, round(self.epochs * kept / (clients * batch)))


@dataclass(frozen=True)
class Epochs:
    """So many, but others of some arms, networks and data sets."""

    usual: int
    other: Mapping[str, int]  # by arm, network and data set, network, or data set

    @classmethod
    def read(cls, words: Sequence[str]) -> Epochs:
        """`100 resnet8=200 cifar-100-resnet32=80 baseline-1=40`"""
        named = dict(word.split("=", 1) for word in words if "=" in word)
        known = {*EVERY, *SECONDS_A_ROUND, *CLIENTS, *(net.replace(" ", "-") for net in NETS)}
        if unknown := [name for name in named if name not in known]:
            raise UserError(f"epochs of {unknown[0]!r}: is none of {', '.join(sorted(known))}")
        usual = [word for word in words if "=" not in word]
        for count in (*usual, *named.values()):
            if not count.isdecimal() or not int(count):
                raise UserError(f"epochs {count!r}: must be a whole number above 0")
        return cls(int(usual[-1]) if usual else 60, {name: int(n) for name, n in named.items()})

    def of(self, net: str, arm: str) -> int:
        source, encoder = net.split()
        names = (arm, f"{source}-{encoder}", encoder, source)
        return next((self.other[name] for name in names if name in self.other), self.usual)


def experiment_of(job: Job, norm: str) -> so.Experiment:
    """The recipe that all arms share, with the arm's point on top."""
    clients, batch = CLIENTS[NETS[job.net][0]]
    centralized = job.arm == "centralized"
    values: dict[str, Any] = {
        "seed": job.seed,
        "rounds": job.rounds,
        "data": {"validation_fraction": 0.0 if job.test else HELD_OUT},
        "model": {"encoder": job.encoder, "norm": norm, "dim": 64},
        # Classes are equally frequent: there is no prior to be found.
        "method": {"name": SAME.get(job.arm, job.arm)} | ({} if centralized else {"prior": 0.0}),
        "clients": {
            # In one place there is one client, whose batch is as large as theirs together.
            **{"local_steps": 1, "batch": clients * batch if centralized else batch, "lr": 1.0},
            **{"image_shift": 4, "image_flip": True, "lr_decay": "cosine"},
        },
        "server": {"optimizer": "sgd", "momentum": 0.9, "lr_decay": "cosine"},
        "eval": {
            **{"every": job.rounds, "metrics": ["P@1"], "references": False},
            "split": "test" if job.test else "validation",
        },
        "run": {"precision": "bf16", "memory_gb": 96, "checkpoint_every": job.rounds},
    }
    return so.Experiment.of(overlay(values, EVERY[job.arm][job.point]))


@lru_cache(maxsize=2)
def splits_of(source: str, held_out: float) -> Splits:
    """One client a class; read once in every process."""
    values = {"source": source, "partition": "by_label", "validation_fraction": held_out}
    return load_data(DataConfig.model_validate(values))


def train(job: Job, norm: str, device: str) -> dict[str, Any]:
    """The run's score, and what it took."""
    torch.set_num_threads(max(1, (os.cpu_count() or 2) // 8))
    torch.backends.cudnn.benchmark = True
    experiment = experiment_of(job, norm)
    data = splits_of(NETS[job.net][0], 0.0 if job.test else HELD_OUT)
    start = time.perf_counter()
    experiment = experiment.model_copy(update={"data": DataConfig()})
    if not job.test:
        held = DataConfig.model_validate({"validation_fraction": HELD_OUT})
        experiment = experiment.model_copy(update={"data": held})
    result = so.run(experiment, data=data, device=device, progress=False)
    seconds = time.perf_counter() - start
    return {
        **asdict(job),
        "settings": EVERY[job.arm][job.point],
        "P@1": result.metrics["P@1"],
        "loss": result.history[-1].get("loss"),
        "rounds": job.rounds,
        "seconds": round(seconds, 1),
    }


def failed(job: Job) -> dict[str, Any]:
    """A point whose training diverged."""
    settings = EVERY[job.arm][job.point]
    return {
        **asdict(job),
        **{"settings": settings, "P@1": 0.0, "loss": None, "rounds": job.rounds, "seconds": 0.0},
    }


class Results:
    """What was found so far, in a file."""

    def __init__(self, path: Path, about: Mapping[str, Any]) -> None:
        self.path, self.about = path, dict(about)
        self.runs: list[dict[str, Any]] = []
        if path.exists():
            known = read(path)
            if known.get("norm") != about["norm"]:
                raise UserError(
                    f"{path}: has runs with norm = {known.get('norm')!r}; take another --out"
                )
            self.runs = [{"commit": known["commit"], **run} for run in known["runs"]]

    def has(self, job: Job) -> bool:
        return any(_job(run) == job for run in self.runs)

    def add(self, run: Mapping[str, Any]) -> None:
        self.runs.append({**run, "commit": commit()})
        write(self.path, {**self.about, "table": self.table(), "runs": self.runs}, quiet=True)

    def chosen(self, net: str, arm: str, jobs: Sequence[Job]) -> int | None:
        """The arm's best point on the network its data set is tuned on; None while one is missing."""
        tuned = f"{NETS[net][0]} {NETS[net][1]}"
        wanted = [job for job in jobs if job.net == tuned and job.arm == arm]
        found = [run for run in self.runs if _job(run) in wanted]
        if len(found) < len(wanted) or not found:
            return None
        return int(max(found, key=lambda run: (run["P@1"], -run["point"]))["point"])

    def seconds(self, job: Job, at_once: float = 1.0) -> float:
        """How long a run will take if so many run at once, by the last one of the same network."""
        ended = [run for run in self.runs if run["seconds"] and _job(run).encoder == job.encoder]
        shares = [run["seconds"] / run["rounds"] / run.get("at_once", 5.0) for run in ended]
        each = (shares[-1] if shares else SECONDS_A_ROUND[job.encoder]) * at_once
        return START + max(each, ALONE[job.encoder]) * job.rounds

    def table(self) -> list[dict[str, Any]]:
        """Scores on test images beside the paper's, the mean over seeds."""
        found: dict[tuple[str, str, int], list[float]] = {}
        for run in self.runs:
            if run["test"]:
                found.setdefault((run["net"], run["arm"], run["epochs"]), []).append(run["P@1"])
        return [
            {
                **{"net": net, "arm": arm, "epochs": epochs, "seeds": len(scores)},
                **{"P@1": round(sum(scores) / len(scores), 2), "paper": paper(net, arm)},
            }
            for (net, arm, epochs), scores in found.items()
        ]


def called(net: str) -> str:
    """A network as the paper's table has it."""
    source, encoder = net.split()
    return f"{source.upper()}, ResNet-{encoder.removeprefix('resnet')}"


def paper(net: str, arm: str) -> float:
    return figures_of("fedaws-table1")[f"{called(net)}, {LABELS[SAME.get(arm, arm)]}"][0]


def _job(run: Mapping[str, Any]) -> Job:
    return Job(**{name: run[name] for name in ("net", "arm", "point", "test", "epochs", "seed")})


def tuning_jobs(
    nets: Sequence[str], arms: Sequence[str], points: Sequence[int], epochs: Epochs
) -> list[Job]:
    """Every point of every arm, on the network that each data set is tuned on."""
    smaller = dict.fromkeys(f"{NETS[net][0]} {NETS[net][1]}" for net in nets)
    return [
        Job(net, arm, i, False, epochs.of(net, arm), 0)
        for net in smaller
        for arm in arms
        for i in points
    ]


def final_jobs(
    results: Results,
    nets: Sequence[str],
    arms: Sequence[str],
    tuning: Sequence[Job],
    epochs: Epochs,
    seeds: int,
) -> Iterator[Job]:
    """The best point of every arm whose points are all tried; without tuning the first."""
    for seed in range(seeds):
        for net in nets:
            for arm in arms:
                best = results.chosen(net, arm, tuning) if tuning else 0
                if best is not None:
                    yield Job(net, arm, best, True, epochs.of(net, arm), seed)


class Load:
    """How many runs there were at once, in the mean over the time of each."""

    def __init__(self) -> None:
        self.since, self.count, self.sum = time.monotonic(), 0, 0.0
        self.begun: dict[Job, tuple[float, float]] = {}

    def _now(self, count: int) -> tuple[float, float]:
        now = time.monotonic()
        self.sum += self.count * (now - self.since)
        self.since, self.count = now, count
        return now, self.sum

    def begin(self, job: Job, count: int) -> None:
        """count: those that run from now on."""
        self.begun[job] = self._now(count)

    def end(self, job: Job, count: int) -> float:
        (first, before), beside = self.begun.pop(job), self.count
        now, after = self._now(count)
        return (after - before) / (now - first) if now > first else float(beside)


def run_all(
    wanted: Callable[[], Sequence[Job]],
    results: Results,
    workers: int,
    norm: str,
    device: str,
    deadline: float,
) -> None:
    """All jobs that end in time, so many at once; each is kept as it ends.

    wanted: jobs in the order in which they are begun, asked again whenever one has ended.
    """
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(workers, mp_context=context) as pool:
        running: dict[Future[dict[str, Any]], Job] = {}
        begun: set[Job] = set()
        load = Load()
        while True:
            left = [job for job in wanted() if job not in begun and not results.has(job)]
            while left and len(running) < workers:
                job = left.pop(0)
                begun.add(job)
                if time.monotonic() + results.seconds(job, len(running) + 1) > deadline:
                    print(f"no time for {job.name}", flush=True)
                    continue
                running[pool.submit(train, job, norm, device)] = job
                load.begin(job, len(running))
            if not running:
                return
            done, _ = wait(running, return_when=FIRST_COMPLETED)
            for one in done:
                job = running.pop(one)
                at_once = load.end(job, len(running))
                try:
                    run = one.result()
                except BrokenProcessPool:
                    raise UserError(f"{job.name}: its process died; memory may not suffice") from None
                except (UserError, RuntimeError) as error:
                    print(f"{job.name}: {str(error).splitlines()[0]}", flush=True)
                    if job.test or not str(error).startswith("diverged"):
                        continue
                    run = failed(job)  # that is what is known of this point
                results.add({**run, "at_once": round(at_once, 1)})
                print(f"{run['P@1']:5.1f} in {run['seconds']:5.1f} s: {job.name}", flush=True)


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--nets", nargs="+", choices=NETS, default=LONGEST_FIRST, metavar="NET")
    parser.add_argument("--arms", nargs="+", choices=EVERY, default=list(ARMS), metavar="ARM")
    told = "of a run that is scored on test images; NAME: an arm or a network"
    parser.add_argument("--epochs", nargs="+", default=["60"], metavar="N|NAME=N", help=told)
    told = "of a run that is scored on held-out images"
    parser.add_argument("--tuning-epochs", nargs="+", default=["10"], metavar="N|NAME=N", help=told)
    parser.add_argument("--points", type=int, default=4, help="to choose from, 0: the first, untuned")
    parser.add_argument("--from", type=int, default=0, dest="first", help="leave out so many points")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--jobs", type=at_least_one, default=4, help="runs at once, each in a process")
    parser.add_argument("--seconds", type=duration, default=float("inf"))
    parser.add_argument("--norm", choices=["batch", "group"], default="batch")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--out", type=Path, required=True)
    a = parser.parse_args()
    deadline = time.monotonic() + a.seconds
    most = min(len(EVERY[arm]) for arm in a.arms)
    if not 0 <= a.first <= a.first + a.points <= most:
        raise UserError(f"--from {a.first} --points {a.points}: every arm has {most} in all")
    tuning_epochs = Epochs.read(a.tuning_epochs)
    about = {
        "norm": a.norm,
        "tuning epochs": " ".join(a.tuning_epochs),
        "points": a.points,
        "from": a.first,
    }
    results = Results(a.out, about)
    tried = range(a.first, a.first + a.points)
    tuning = tuning_jobs(a.nets, a.arms, tried, tuning_epochs)
    epochs = Epochs.read(a.epochs)

    def wanted() -> list[Job]:
        final = final_jobs(results, a.nets, a.arms, tuning, epochs, a.seeds)
        return [*tuning, *final]

    run_all(wanted, results, a.jobs, a.norm, a.device, deadline)
    for row in results.table():
        print("{net:<20} {arm:<12} {P@1:6.2f}   paper {paper:5.1f}   {epochs} epochs".format(**row))


if __name__ == "__main__":
    command(main)
