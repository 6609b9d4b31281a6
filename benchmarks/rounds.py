"""Milliseconds a round takes, for every variant of a suite, alone on the machine.

    python benchmarks/rounds.py configs/dual_encoder/table2.toml --out speed.json

The first rounds are left out: graphs are captured and caches filled in them.
"""

from __future__ import annotations

import argparse
import statistics
import time
from pathlib import Path

import torch
from record import write

from spreadout.assembly import build_federation, pick_device
from spreadout.comparison import Suite
from spreadout.data.splits import load_data
from spreadout.experiment import Experiment
from spreadout.federated.round import run_round
from spreadout.federated.server import ServerState


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("suite")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--set", nargs="+", default=[], metavar="KEY=VALUE")
    a = parser.parse_args()
    suite = Suite.load([a.suite], None, a.set)
    device = pick_device(a.device)
    timed = {name: milliseconds(e, device, a.rounds) for name, e in suite.variants.items()}
    for name, value in timed.items():
        print(f"{name:16} {value:8.1f} ms a round")
    labels = {name: suite.labels[name] for name in suite.variants}
    made = {"suite": suite.name, "threads": torch.get_num_threads(), "rounds_timed": a.rounds}
    write(a.out, {**made, "labels": labels, "milliseconds_a_round": timed})


def milliseconds(experiment: Experiment, device: torch.device, rounds: int) -> float:
    """The median over some rounds, after three that do not count."""
    federation = build_federation(experiment, load_data(experiment.data, experiment.seed), device)
    state = ServerState(0, *federation.model.initial(experiment.seed, device))
    times = []
    for turn in range(rounds + 3):
        start = time.perf_counter()
        run_round(federation, state)
        if device.type == "cuda":
            torch.cuda.synchronize()
        if turn >= 3:
            times.append(time.perf_counter() - start)
    return round(1000 * statistics.median(times), 1)


if __name__ == "__main__":
    main()
