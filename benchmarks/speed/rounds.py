"""Milliseconds a round takes, for every variant of a suite, alone on the machine.

    python benchmarks/rounds.py configs/dual_encoder/table2.toml --out speed.json

The first rounds are left out: graphs are captured and caches filled in them. Losses are kept beside the
times, and the most memory the device has had in use.
"""

from __future__ import annotations

import argparse
import statistics
import time
from pathlib import Path
from typing import Any

import torch
from record import write
from suite import command

from spreadout.config.experiment import Experiment
from spreadout.core.state import ServerState
from spreadout.data.load import load_data
from spreadout.federated.round import run_round
from spreadout.runs.build import build_federation, pick_device
from spreadout.runs.compare import Suite
from spreadout.runs.summary import peak_memory

FIRST = 3  # rounds that are not counted


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("suite")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--rounds", type=int, default=50)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--set", nargs="+", default=[], metavar="KEY=VALUE")
    a = parser.parse_args()
    suite = Suite.load([a.suite], None, a.set)
    device = pick_device(a.device)
    found = []
    for name, experiment in suite.variants.items():
        took = timed(experiment, device, a.rounds)
        config = experiment.model_dump(mode="json", exclude_none=True)
        found.append({"name": name, "label": suite.labels[name], **took, "config": config})
        print({"name": name, **took}, flush=True)
    made = {"suite": suite.name, "threads": torch.get_num_threads(), "rounds_timed": a.rounds}
    write(a.out, {**made, "results": found})


def timed(experiment: Experiment, device: torch.device, rounds: int) -> dict[str, Any]:
    """Every round waited for: the median, and the mean, which has new captures of graphs in it."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats()  # what an earlier variant took is not this one's
    federation = build_federation(experiment, load_data(experiment.data, experiment.seed), device)
    state = ServerState(0, *federation.model.initial(experiment.seed, device))
    losses, times = [], []
    for _ in range(rounds + FIRST):
        start = time.perf_counter()
        report = run_round(federation, state)
        if device.type == "cuda":
            torch.cuda.synchronize()
        times.append(1000 * (time.perf_counter() - start))
        losses.append(round(report.loss, 6))
    return {
        "milliseconds": round(statistics.median(times[FIRST:]), 2),
        "mean_milliseconds": round(statistics.mean(times[FIRST:]), 2),
        "clients": report.accepted,
        "losses": losses[:: max(rounds // 10, 1)],
        "peak_gb": round(peak_memory(device) / 2**30, 2),
    }


if __name__ == "__main__":
    command(main)
