"""Milliseconds a round takes, for every variant of a suite, alone on the machine.

    python -m benchmarks.speed.rounds configs/dual_encoder/table2.toml --out speed.json

The first rounds are left out: graphs are captured and caches filled in them. Losses are kept beside the
times, and the most memory the device has had in use.
"""

from __future__ import annotations

import statistics
from pathlib import Path
from typing import Any

import torch

from benchmarks.common.command import command, parser_of
from benchmarks.common.record import write
from benchmarks.common.start import start
from benchmarks.common.timing import time_rounds
from spreadout.config.experiment import Experiment
from spreadout.runs.build import pick_device
from spreadout.runs.compare import Suite
from spreadout.runs.summary import peak_memory

FIRST = 3  # rounds that are not counted


def main() -> None:
    parser = parser_of(__doc__)
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
        took = measure(experiment, device, a.rounds)
        config = experiment.model_dump(mode="json", exclude_none=True)
        found.append({"name": name, "label": suite.labels[name], **took, "config": config})
        print({"name": name, **took}, flush=True)
    made = {"suite": suite.name, "threads": torch.get_num_threads(), "rounds_timed": a.rounds}
    write(a.out, {**made, "results": found})


def measure(experiment: Experiment, device: torch.device, rounds: int) -> dict[str, Any]:
    """Every round waited for: the median, and the mean, which has new captures of graphs in it."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats()  # what an earlier variant took is not this one's
    found = time_rounds(*start(experiment, device), rounds, skip=FIRST)
    return {
        "milliseconds": round(1000 * found.median, 2),
        "mean_milliseconds": round(1000 * statistics.mean(found.seconds), 2),
        "clients": found.clients,
        "losses": [round(loss, 6) for loss in found.losses[:: max(rounds // 10, 1)]],
        "peak_gb": round(peak_memory(device) / 2**30, 2),
    }


if __name__ == "__main__":
    command(main)
