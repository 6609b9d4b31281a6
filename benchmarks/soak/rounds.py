"""Ten thousand rounds, with evaluation, checkpoints and logs: memory and open files stay flat.

    python -m benchmarks.soak.rounds   # writes results/soak/rounds.json; minutes

Digits, ten clients, a small encoder, SCAFFOLD, so that clients keep a state too.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Any

import torch

import spreadout as so
from benchmarks.common.command import command, parser_of
from benchmarks.common.paths import RESULTS
from benchmarks.common.record import write
from benchmarks.common.timing import alone
from benchmarks.soak.memory import Course, open_files, resident
from spreadout.core.errors import UserError

MOST_GROWTH = 100.0  # bytes a round: a megabyte over ten thousand
EVERY = 50  # rounds between two samples, evaluations and checkpoints


class Sampler(so.Observer):
    """Looks at the process that a run is in."""

    def __init__(self) -> None:
        self.memory, self.files = Course(), Course()

    def round_done(self, report: Any) -> None:
        if report.round % EVERY == 0:
            self.memory.add(report.round, resident())
            self.files.add(report.round, open_files())


def config(rounds: int, seed: int) -> dict[str, Any]:
    return {
        "rounds": rounds,
        "seed": seed,
        "model": {"hidden": [16], "dim": 8},
        "method": {"name": "fedaws"},
        "clients": {"per_round": 5, "local_steps": 2, "batch": 8, "lr": 0.05, "drift": "scaffold"},
        "eval": {"every": EVERY, "metrics": ["P@1"]},
        "run": {"checkpoint_every": EVERY, "log_requests": True},
    }


def measure(rounds: int, seed: int) -> dict[str, Any]:
    torch.set_num_threads(1)
    sampler = Sampler()
    with tempfile.TemporaryDirectory() as folder:
        start = time.perf_counter()
        result = so.run(config(rounds, seed), out=Path(folder) / "run", observer=sampler, device="cpu")
        seconds = time.perf_counter() - start
        size = sum(path.stat().st_size for path in Path(folder).rglob("*") if path.is_file())
    return {
        "seconds": round(seconds, 1),
        "evaluations": len(result.history),
        "metrics": result.metrics,
        "memory": sampler.memory.about(),
        "open_files": sorted(set(sampler.files.bytes)),
        "folder_mb": round(size / 2**20, 2),
    }


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--out", type=Path, default=RESULTS / "soak" / "rounds.json")
    parser.add_argument("--rounds", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    a = parser.parse_args()
    found = alone(measure, a.rounds, a.seed)
    print({name: found[name] for name in ("seconds", "metrics", "open_files", "folder_mb")})
    growth = found["memory"]["growth_bytes_a_round"]
    print(f"memory grows by {growth:g} bytes a round")
    write(a.out, {"config": config(a.rounds, a.seed), "most_growth": MOST_GROWTH, **found})
    if growth > MOST_GROWTH or len(found["open_files"]) > 2:
        raise UserError(f"{a.out}: memory or open files grow with the rounds")


if __name__ == "__main__":
    command(main)
