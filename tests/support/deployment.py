"""What tests of deployments share."""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch

from spreadout.config.experiment import Experiment
from spreadout.runs.result import Result

if TYPE_CHECKING:  # Flower need not be there for the rest
    from spreadout.flower.processes import Processes

AS_SIMULATED = {"claim_quantile": 1.0, "robust": "mean"}  # what a deployment guards against, it does not
TOY = {
    "server": AS_SIMULATED,
    "rounds": 3,
    "chosen": [],  # a server sees no data to choose by, and the simulation is to be the same
    "model": {"hidden": [5], "dim": 4},
    "clients": {"batch": 3, "lr": 0.3, "local_steps": 3},
    "eval": {"every": 3, "metrics": ["P@1"]},
}

NODES = 3
METHODS = {
    "fedaws": {"name": "fedaws", "strength": 0.1},
    "fedss": {"name": "fedss", "negatives": 3, "scale": 5.0},
}
LIMIT = 900.0  # seconds after which something is certainly wrong, however slow the machine


def assert_same(simulated: Result, deployed: Result) -> None:
    for part in ("dense", "tables"):
        ours, theirs = getattr(simulated.state, part), getattr(deployed.state, part)
        torch.testing.assert_close(theirs, ours, rtol=1e-4, atol=2e-6)
    assert deployed.state.refused == simulated.state.refused
    assert deployed.metrics == pytest.approx(simulated.metrics)
    assert deployed.history[-1]["loss"] == pytest.approx(
        simulated.history[-1]["loss"], rel=1e-4, nan_ok=True
    )


def federation(path: Path) -> Path:
    """Three clients with two of six classes each, as a file that says who holds what."""
    rng = np.random.default_rng(3)
    y = np.repeat(np.arange(6), 12)
    x = rng.normal(size=(72, 5)) + 2 * np.eye(6, 5)[y]
    np.savez(path, x=x, y=y, client=y // 2, x_test=x[::3], y_test=y[::3])
    return path


def config(data: Path, method: dict[str, object], *overrides: str) -> Experiment:
    """For real processes, which take as long as they take."""
    return Experiment.of(
        {
            "name": str(method["name"]),
            "rounds": 3,
            "data": {"source": "npz", "path": str(data), "partition": "given"},
            "model": {"hidden": [8], "dim": 4},
            "method": method,
            "clients": {"batch": 4, "lr": 0.3, "local_steps": 3},
            "server": AS_SIMULATED,
            "eval": {"every": 3, "metrics": ["P@1"]},
            "deploy": {"nodes": NODES, "timeout": LIMIT, "wait": LIMIT},
        },
        overrides=list(overrides),
    )


def wait_for(what: Callable[[], object], started: Processes | None = None, *living: str) -> None:
    """Until it is so, while these processes live.

    The limit is there for what never comes, not for what comes late.
    """
    until = time.monotonic() + LIMIT
    while not what():
        for name in living:
            assert started is None or not started.ended(name), started.last(name)
        assert time.monotonic() < until, "waited in vain"
        time.sleep(0.1)


class Heard:
    """What a run has told since this was made: its rounds, and how it ended."""

    def __init__(self, out: Path) -> None:
        from spreadout.flower.events import Reader

        self.make = lambda: Reader(out / "deployment" / "events.jsonl")
        self.reader = self.make()
        self.rounds: list[dict[str, Any]] = []
        self.end: str | None = None
        list(self.reader.new())

    def listen(self) -> None:
        if not self.reader.path.exists():  # a resumed run begins a file of its own
            self.reader = self.make()
        for event in self.reader.new():
            assert event["event"] != "failed", event
            if event["event"] == "round":
                self.rounds.append(event)
            elif event["event"] in ("done", "interrupted"):
                self.end = event["event"]

    @property
    def round(self) -> int:
        """The last round that is done."""
        self.listen()
        return int(self.rounds[-1]["round"]) if self.rounds else 0

    @property
    def ended(self) -> str | None:
        self.listen()
        return self.end


def processes_of(folder: Path) -> dict[int, str]:
    """Every living process that has this folder in its environment or its command, and what it is."""
    found = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            told = (entry / "environ").read_bytes() + (entry / "cmdline").read_bytes()
            dead = (entry / "stat").read_text().rpartition(")")[2].split()[0] in "ZX"
            if str(folder).encode() in told and not dead:
                found[int(entry.name)] = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()
        except OSError:
            continue
    return found


def kill_servers(folder: Path) -> None:
    """Kill the server's process outright, as a crash or the system would."""
    servers = [pid for pid, command in processes_of(folder).items() if "flwr-serverapp" in command]
    assert servers
    for pid in servers:
        os.kill(pid, signal.SIGKILL)


def spreadout(*args: str, umask: int = -1) -> subprocess.Popen[str]:
    """The command, in a process that goes on while the test watches it."""
    return subprocess.Popen(
        [sys.executable, "-m", "spreadout", *args],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        umask=umask,
    )


def open_to_others(folder: Path) -> Iterator[str]:
    """Whatever in a folder somebody else could read, write or enter."""
    for path in (folder, *folder.rglob("*")):
        mode = path.lstat().st_mode
        if not stat.S_ISLNK(mode) and mode & 0o077:
            yield f"{path}: {stat.filemode(mode)}"


def refusals(out: Path) -> list[dict[str, Any]]:
    path = out / "refusals.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
