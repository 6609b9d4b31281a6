"""spreadout beside its peers on two fixed workloads: the same work, the same losses, seconds a round.

    python -m benchmarks.peers.compare --setup       # the peers' environments, once; a few minutes
    python -m benchmarks.peers.compare --rounds 12 --repeat 3

Contenders run one after another in an order that turns from repetition to repetition; all must end at
the losses of the plain loop. Flower's simulation and pfl in two processes open sockets, and run in a
network namespace that has loopback only. Writes results/peers/cpu.json.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.common.command import command, parser_of
from benchmarks.common.paths import RESULTS, ROOT
from benchmarks.common.record import write
from benchmarks.peers import work
from spreadout.config.experiment import Experiment
from spreadout.data.load import load_data

PINNED = {"pfl": ["pfl[pytorch]==0.6.0"], "flower": ["flwr[simulation]==1.41.0"]}
QUIET = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
    "RAY_USAGE_STATS_ENABLED": "0",
    "UV_OFFLINE": "1",
    "GLOO_SOCKET_IFNAME": "lo",
    "OMP_NUM_THREADS": "1",  # unless a contender says otherwise
}
TOLERANCE = 2e-4  # of the loss, relative: sums in another order
CONTENDERS = {
    "spreadout-1": "spreadout, 1 thread",
    "spreadout-2": "spreadout, 2 threads",
    "plain-1": "plain loop, 1 process",
    "plain-2": "plain loop, 2 processes",
    "pfl-1": "pfl 0.6, 1 process",
    "pfl-2": "pfl 0.6, 2 processes",
    "flower-all": "Flower 1.41, a node per client",
    "flower-100": "Flower 1.41, 100 nodes",
}


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--setup", action="store_true", help="make the peers' environments and stop")
    parser.add_argument("--only", nargs="+", choices=CONTENDERS, default=list(CONTENDERS))
    parser.add_argument("--workloads", nargs="+", choices=("A", "B"), default=["A", "B"])
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--out", type=Path, default=RESULTS / "peers" / "cpu.json")
    a = parser.parse_args()
    if a.rounds <= 2:
        parser.error(f"--rounds {a.rounds}: the first two are not counted; take more")
    work.WORK.mkdir(parents=True, exist_ok=True)
    if a.setup:
        for peer in PINNED:
            environment(peer)
        return
    write_work()
    names = ["plain-1", *(name for name in a.only if name != "plain-1")]  # what the others are held to
    found: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for turn in range(a.repeat):
        jobs = [(name, which) for which in a.workloads for name in names]
        jobs = jobs[turn * 3 % len(jobs) :] + jobs[: turn * 3 % len(jobs)]
        for name, which in jobs:
            made = run(name, which, a.rounds)
            found.setdefault((which, name), []).append(made)
            middle = statistics.median(made["seconds"][2:])
            print(f"{turn + 1}/{a.repeat} {which} {name:12} {1000 * middle:8.0f} ms a round", flush=True)
    write(a.out, {"rounds": a.rounds, "repeat": a.repeat, "workloads": summed_up(found, a.workloads)})


def summed_up(found: dict[tuple[str, str], list[dict[str, Any]]], workloads: list[str]) -> Any:
    """Medians over all rounds but the first two, the loss reached, and ratios to spreadout."""
    table = {}
    for which in workloads:
        data = work.Data(which)
        rows, aim = [], None
        for (other, name), runs in found.items():
            if other != which:
                continue
            loss = runs[-1]["loss"]
            aim = loss if name == "plain-1" else aim
            pooled = [second for made in runs for second in made["seconds"][2:]]
            peak = max(made["peak_kib"] + made["peak_child_kib"] for made in runs) / 2**20
            middle = statistics.median(pooled)
            rows.append({"name": name, "seconds": middle, "loss": loss, "peak_gib": round(peak, 2)})
        for row in rows:
            if aim is not None and abs(row["loss"] - aim) > TOLERANCE * abs(aim):
                raise SystemExit(
                    f"{which}: {row['name']} ends at loss {row['loss']}, the plain loop at {aim}"
                )
        ours = next((row["seconds"] for row in rows if row["name"] == "spreadout-1"), None)
        for row in sorted(rows, key=lambda row: row["seconds"]):
            row["label"] = CONTENDERS[row["name"]]
            row["times"] = None if ours is None else round(row["seconds"] / ours, 2)
            times = "" if ours is None else f"  x{row['times']}"
            shown = f"{1000 * row['seconds']:8.1f} ms  loss {row['loss']:.6f}{times}"
            print(f"{which} {row['label']:32} {shown}")
        table[which] = {"start": work.reached(data, data.start), "contenders": rows}
    return table


def run(name: str, which: str, rounds: int) -> dict[str, Any]:
    """One contender in a process of its own; what it left, with the loss of the model it reached."""
    kind, _, size = name.partition("-")
    nodes = {"all": "4832" if which == "A" else "159"}.get(size, size)
    module = "plain" if kind == "plain" else f"with_{kind}"
    python = sys.executable if kind in ("plain", "spreadout") else str(environment(kind))
    arguments = [which, str(rounds), *([nodes] if kind != "pfl" else [])]
    line = [python, "-m", f"benchmarks.peers.{module}", *arguments]
    settings = {**os.environ, **QUIET, "PEERS_WORK": str(work.WORK.resolve()), "PYTHONPATH": str(ROOT)}
    settings["FLWR_HOME"] = str(work.WORK.resolve() / "flower-home")
    left = f"{kind}-{nodes}-{which}"
    (work.WORK / "out" / f"{left}.json").unlink(missing_ok=True)
    if name == "pfl-2":
        settings["PFL_WORKER_ADDRESSES"] = "127.0.0.1:29611,127.0.0.1:29612"
        one = " ".join(line)
        line = ["bash", "-c", f"PFL_WORKER_RANK=1 {one} & PFL_WORKER_RANK=0 {one}; wait"]
    if kind == "flower" or name == "pfl-2":
        apart = ["unshare", "-n", "bash", "-c", 'ip link set lo up; exec "$@"', "apart"]
        line = [*apart, *line]
    done = subprocess.run(line, env=settings, capture_output=True, text=True, check=False)
    if not (work.WORK / "out" / f"{left}.json").is_file():
        raise SystemExit(f"{name}, workload {which}: failed\n{done.stderr[-2000:]}")
    made = json.loads((work.WORK / "out" / f"{left}.json").read_bytes())
    params = torch.load(work.WORK / "out" / f"{left}.pt")
    return {**made, "loss": work.reached(work.Data(which), params)}


def environment(peer: str) -> Path:
    """The Python of a peer's own environment, made where it is missing."""
    folder = (work.WORK / peer).resolve()
    python = folder / "bin" / "python"
    if not (folder / ".ready").is_file():
        print(f"making {folder}", flush=True)
        subprocess.run([sys.executable, "-m", "venv", "--clear", folder], check=True)
        for wanted in (["torch==2.13.0"], PINNED[peer]):
            subprocess.run([python, "-m", "pip", "install", "-qq", *wanted], check=True)
        (folder / ".ready").touch()
    return python


def write_work() -> None:
    """The workloads' files, from the data sets as spreadout reads them."""
    order = np.random.default_rng(123)
    cohorts = {
        which: np.stack([order.choice(clients, work.CLIENTS, replace=False) for _ in range(100)])
        for which, clients in (("A", 4832), ("B", work.LABELS))
    }
    if not (work.WORK / "A.npz").is_file():
        _prepare_movies(cohorts["A"])
    if not (work.WORK / "B.npz").is_file():
        _prepare_papers(cohorts["B"])


def _prepare_movies(cohorts: Any) -> None:
    config = {"data": {"source": {"name": "movielens-1m", "cap": 300}}}
    held = load_data(Experiment.of(config).data, 0)
    train = held.train
    number = torch.tensor([int(name or 0) for name in held.class_ids or ()])  # of a row: the movie's own
    sizes = train.offsets.diff() // 16 * 16  # whole batches
    starts = train.offsets[:-1]
    at = torch.cat([torch.arange(int(a), int(a + n)) for a, n in zip(starts, sizes, strict=True)])
    torch.manual_seed(0)
    start = {f"start/{k}": v.numpy() for k, v in work.TwoTowers().state_dict().items()}
    np.savez(
        work.WORK / "A.npz",
        cohorts=cohorts,
        history=number[train.columns["history"].take(at)].numpy(),
        item=number[train.columns["y"].take(at)].numpy(),
        offsets=np.concatenate([[0], np.cumsum(sizes.numpy())]),
        **start,
    )


def _prepare_papers(cohorts: Any) -> None:
    train = load_data(Experiment.of({"data": {"source": "bibtex"}}).data, 0).train
    x = train.columns["x"]
    assert x.index is not None
    every = train.offsets.tolist()
    clients = [x.index[a:b] for a, b in pairwise(every)]
    held = torch.stack([mine[torch.arange(160) % len(mine)] for mine in clients])
    stored = type(x)(**{**x.tensors(), **x.options(), "index": None})
    row, feature = stored.take(torch.arange(len(stored))).nonzero().unbind(1)
    torch.manual_seed(0)
    model = {k: v for k, v in work.OneLabel().state_dict().items() if k != "row"}
    torch.manual_seed(1)
    rows = torch.nn.functional.normalize(torch.randn(work.LABELS, 128), dim=1)
    start = {f"start/{k}": v.numpy() for k, v in {**model, "rows": rows}.items()}
    np.savez(
        work.WORK / "B.npz",
        cohorts=cohorts,
        rows=len(stored),
        row=row.numpy(),
        feature=feature.numpy(),
        held=held.numpy(),
        **start,
    )


if __name__ == "__main__":
    command(main)
