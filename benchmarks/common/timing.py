"""Clocks: of one piece of work, of several in turns, of rounds; and work in a process of its own."""

from __future__ import annotations

import multiprocessing
import statistics
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from typing import ParamSpec, TypeVar

import torch

from spreadout.core.state import ServerState
from spreadout.federated.federation import Federation
from spreadout.federated.round import run_round

T = TypeVar("T")
K = TypeVar("K")
P = ParamSpec("P")
CPU = torch.device("cpu")


def wait(device: torch.device) -> None:
    """Until the device has done what it was given."""
    if device.type == "cuda":
        torch.cuda.synchronize()


def timed(work: Callable[[], T], device: torch.device = CPU) -> tuple[T, float]:
    """What the work gives, and the seconds it took."""
    wait(device)
    start = time.perf_counter()
    made = work()
    wait(device)
    return made, time.perf_counter() - start


def in_turns(works: Mapping[K, Callable[[], object]], repeats: int) -> dict[K, float]:
    """Median seconds of each, taken in turns after one to warm up, so that drift hits all alike."""
    for work in works.values():
        work()
    spent: dict[K, list[float]] = {name: [] for name in works}
    for _ in range(repeats):
        for name, work in works.items():
            spent[name].append(timed(work)[1])
    return {name: statistics.median(seconds) for name, seconds in spent.items()}


@dataclass(frozen=True)
class Rounds:
    """Rounds waited for one by one, without the first ones."""

    seconds: list[float]
    losses: list[float]  # of the first ones too
    clients: int  # of the last round

    @property
    def median(self) -> float:
        return statistics.median(self.seconds)


def time_rounds(f: Federation, state: ServerState, count: int, *, skip: int) -> Rounds:
    """`count` rounds, after `skip` in which graphs are captured and caches filled."""
    seconds, losses = [], []
    for _ in range(skip + count):
        report, took = timed(lambda: run_round(f, state), f.device)
        seconds.append(took)
        losses.append(report.loss)
    return Rounds(seconds[skip:], losses, report.accepted)


def alone(work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """The work in a fresh process, so that its peak of memory is its own."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        return pool.submit(work, *args, **kwargs).result()
