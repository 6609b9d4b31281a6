"""A deployment of real processes over two hundred rounds, one of whose nodes goes and comes again.

    python -m benchmarks.soak.deployment   # writes results/soak/deployment.json; most of an hour

A SuperLink, two SuperNodes with a client each, a server, all on loopback. Every `--period` rounds a node
is ended, in turns politely and by SIGKILL, and started again half a period later. All rounds must be
done, the steady client's update must count in every one of them, the other's after every return, and the
server must not grow. A message costs a process that loads PyTorch: that is what takes the time.
"""

from __future__ import annotations

import json
import resource
import signal
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.common.command import command, parser_of
from benchmarks.common.paths import RESULTS
from benchmarks.common.record import write
from benchmarks.soak.memory import Course, open_files, resident
from spreadout.config.experiment import Experiment
from spreadout.core.errors import UserError
from spreadout.flower.events import Reader
from spreadout.flower.local import ENVIRONMENT, start_link, start_node, write_connection
from spreadout.flower.processes import Processes, marked
from spreadout.flower.project import write_project

STEADY, FLAPPING = 0, 1  # nodes, and their only clients
MOST_GROWTH = 20_000.0  # bytes a round of the server: a few megabytes over all rounds
PATIENCE = 900.0  # seconds without any event


def config(data: Path, rounds: int, seed: int) -> Experiment:
    return Experiment.of(
        {
            "rounds": rounds,
            "seed": seed,
            "data": {"source": "npz", "path": str(data), "partition": "given"},
            "model": {"hidden": [8], "dim": 4},
            "method": {"name": "fedaws"},
            "clients": {"batch": 4, "lr": 0.05, "local_steps": 2},
            "eval": {"every": 10, "metrics": ["P@1"]},
            "deploy": {"nodes": 2, "timeout": 600, "wait": 600, "takeover": True},
        }
    )


def federation(path: Path, seed: int) -> Path:
    """Two clients with three of six classes each."""
    rng = np.random.default_rng(seed)
    y = np.repeat(np.arange(6), 12)
    x = rng.normal(size=(72, 5)) + 2 * np.eye(6, 5)[y]
    np.savez(path, x=x, y=y, client=y // 3, x_test=x[::3], y_test=y[::3])
    return path


@dataclass
class Watch:
    """What happens in a deployment, and what it does to the processes."""

    period: int
    processes: Processes
    port: int
    accepted: list[int] = field(default_factory=list)  # updates that counted, by round
    flaps: list[dict[str, Any]] = field(default_factory=list)
    server: Course = field(default_factory=Course)
    superlink: Course = field(default_factory=Course)
    files: set[int] = field(default_factory=set)  # open ones of the server

    def start(self, node: int) -> None:
        told = {"partition-id": node, "num-partitions": 2}
        start_node(self.processes, f"node{node}", self.port, told)

    def round_done(self, event: dict[str, Any]) -> None:
        number = int(event["round"])
        self.accepted.append(int(event["accepted"]))
        self._sample(number)
        name = f"node{FLAPPING}"
        if number % self.period == self.period // 2:
            how = signal.SIGKILL if len(self.flaps) % 2 else signal.SIGTERM
            self.flaps.append({"signal": how.name, "after": number})
            if how == signal.SIGTERM:
                self.processes.running[name].terminate()
                self.processes.running[name].wait()
            self.processes.kill(name)
        elif number % self.period == 0 and name not in self.processes.running:
            self.start(FLAPPING)
            self.flaps[-1]["started"] = number
        elif self.flaps and "started" in self.flaps[-1] and event["accepted"] == 2:
            self.flaps[-1].setdefault("back", number)

    def _sample(self, number: int) -> None:
        for pid in marked(self.processes.mark):
            words = Path(f"/proc/{pid}/cmdline").read_bytes()
            if b"flwr-serverapp" in words:
                self.server.add(number, resident(pid))
                self.files.add(open_files(pid))
        self.superlink.add(number, resident(self.processes.running["superlink"].pid))


def listen(watch: Watch, events: Path) -> dict[str, Any]:
    """Until the run is done; its summary."""
    reader, last = Reader(events), time.monotonic()
    while True:
        for event in reader.new():
            last = time.monotonic()
            if event["event"] == "round":
                watch.round_done(event)
                print(event["round"], event["accepted"], event["refused"], flush=True)
            elif event["event"] == "failed":
                raise UserError(event["text"])
            elif event["event"] == "done":
                return dict(event["summary"])
        for name in ("superlink", f"node{STEADY}", "run"):
            if watch.processes.ended(name):
                raise UserError(f"{name} ended: {watch.processes.last(name)}")
        if time.monotonic() - last > PATIENCE:
            raise UserError(f"no event for {PATIENCE:g} s: {watch.processes.last('run')}")
        time.sleep(0.2)


def soak(rounds: int, period: int, seed: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as made:
        folder, began = Path(made), time.perf_counter()
        experiment = config(federation(folder / "data.npz", seed), rounds, seed)
        write_project(folder / "project", experiment)
        out, home = folder / "run", folder / "home"
        with Processes(folder / "logs", {**ENVIRONMENT, "FLWR_HOME": str(home)}) as processes:
            watch = Watch(period, processes, start_link(processes, None))
            write_connection(home, watch.port, None)
            for node in (STEADY, FLAPPING):
                watch.start(node)
            run = ["flwr", "run", str(folder / "project"), "here", "--stream"]
            processes.start("run", *run, "--run-config", f'out="{out}"')
            summary = listen(watch, out / "deployment" / "events.jsonl")
        lines = (out / "refusals.jsonl").read_text(encoding="utf-8").splitlines()
        left = processes.survivors()
        seconds = time.perf_counter() - began
    return {
        **judged(watch, [json.loads(line) for line in lines], summary),
        "processes_left": len(left),
        "seconds": round(seconds, 1),
        "cpu_seconds": round(resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime, 1),
        "rounds_done": summary["rounds"],
        "metrics": summary["metrics"],
    }


def judged(watch: Watch, refusals: list[dict[str, Any]], summary: dict[str, Any]) -> dict[str, Any]:
    """What came of it, in numbers."""
    return {
        "rounds_by_updates_counted": {str(n): c for n, c in sorted(Counter(watch.accepted).items())},
        "refused_clients": sorted({record["client"] for record in refusals}),
        "refused": summary["refused_updates"],
        "flaps": watch.flaps,
        "server_memory": watch.server.about(),
        "server_open_files": sorted(watch.files),
        "superlink_memory": watch.superlink.about(),
    }


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--out", type=Path, default=RESULTS / "soak" / "deployment.json")
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--period", type=int, default=20, help="rounds from one leave to the next")
    parser.add_argument("--seed", type=int, default=0)
    a = parser.parse_args()
    import flwr

    found = soak(a.rounds, a.period, a.seed)
    about = {"rounds": a.rounds, "period": a.period, "seed": a.seed, "flwr": flwr.__version__}
    settings = config(Path("data.npz"), a.rounds, a.seed).model_dump(mode="json", exclude_unset=True)
    settings["data"]["path"] = "data.npz"  # wherever it was
    write(a.out, {**about, "config": settings, "most_growth": MOST_GROWTH, **found})
    wrong = {
        "rounds are missing": found["rounds_done"] != a.rounds,
        "the steady client was refused": found["refused_clients"] not in ([], [FLAPPING]),
        "a round had no update": "0" in found["rounds_by_updates_counted"],
        "a node that came back was not used": any(
            "back" not in flap
            for flap in found["flaps"]
            if flap.get("started", a.rounds) < a.rounds - 15
        ),
        "the server grows": found["server_memory"]["growth_bytes_a_round"] > MOST_GROWTH,
        "processes are left": found["processes_left"] > 0,
    }
    if any(wrong.values()):
        raise UserError(f"{a.out}: " + ", ".join(name for name, so in wrong.items() if so))


if __name__ == "__main__":
    command(main)
