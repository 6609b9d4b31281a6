"""A million classes and clients, a hundred thousand clients a round, with evaluation: time and memory.

    python -m benchmarks.soak.scale   # writes results/soak/scale.json; minutes

One class a client with four examples, a 64-32 encoder, rows of 32; FedAwS spreads out the rows of those
who took part among 2,000 drawn candidates. The model is ranked against all classes, and saved.
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
from spreadout.core.errors import UserError
from spreadout.data.columns import Dense
from spreadout.data.dataset import FederatedDataset
from spreadout.data.held_out import Examples
from spreadout.data.splits import Splits

STORED = 1000  # distinct inputs; every example is one of them
EACH = 4  # examples a client


def data(classes: int, test: int, seed: int) -> Splits:
    draw = torch.Generator().manual_seed(seed)
    x = torch.randn(STORED, 64, generator=draw)
    label = torch.arange(classes).repeat_interleave(EACH)
    index = torch.randint(STORED, (classes * EACH,), generator=draw)
    columns = {"x": Dense(x, index=index), "y": Dense(label)}
    train = FederatedDataset(columns, torch.arange(classes + 1) * EACH, classes)
    seen = torch.randint(classes * EACH, (test,), generator=draw)
    judged = Examples.from_arrays(x[index[seen]].numpy(), label[seen].numpy())
    return Splits("soak", train, judged)


def config(rounds: int, clients: int, seed: int) -> dict[str, Any]:
    return {
        "rounds": rounds,
        "seed": seed,
        "model": {"hidden": [32], "dim": 32},
        "method": {"name": "fedaws", "spreadout_form": "topk", "k": 10, "candidates": 2000},
        "clients": {"per_round": clients, "batch": EACH, "local_steps": 2, "lr": 0.1},
        "eval": {"every": 1, "metrics": ["P@1", "P@5"]},
    }


class Clock(so.Observer):
    """Seconds of rounds and of evaluations, each with what is saved after it."""

    def __init__(self) -> None:
        self.spent: dict[str, list[float]] = {"round": [], "evaluation": []}
        self.last = time.perf_counter()

    def _lap(self, part: str) -> None:
        now = time.perf_counter()
        self.spent[part].append(round(now - self.last, 2))
        self.last = now

    def started(self, experiment: so.Experiment, round: int) -> None:
        self.last = time.perf_counter()

    def round_done(self, report: Any) -> None:
        self._lap("round")

    def evaluated(self, record: Any) -> None:
        self._lap("evaluation")


def measure(classes: int, clients: int, rounds: int, test: int, seed: int) -> dict[str, Any]:
    clock, start = Clock(), time.perf_counter()
    splits = data(classes, test, seed)
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "run"
        result = so.run(
            config(rounds, clients, seed), out=out, data=splits, observer=clock, device="cpu"
        )
        size = sum(path.stat().st_size for path in out.rglob("*") if path.is_file())
    return {
        "seconds": round(time.perf_counter() - start, 1),
        "cpu_seconds": round(time.process_time(), 1),  # a machine with other work to do adds none
        "seconds_each": clock.spent,
        "peak_memory_gb": round(result.summary["peak_memory_bytes"] / 2**30, 2),
        "model_gb": round(result.summary["model_bytes"] / 2**30, 3),
        "folder_gb": round(size / 2**30, 3),
        "metrics": result.metrics,
        "evaluations": len(result.history),
        "participations": result.state.traffic.participations,
        "threads": torch.get_num_threads(),
    }


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--out", type=Path, default=RESULTS / "soak" / "scale.json")
    parser.add_argument("--classes", type=int, default=10**6)
    parser.add_argument("--clients", type=int, default=10**5, help="a round")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--test", type=int, default=10_000, help="examples that are ranked")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--most-gb", type=float, default=4.0, help="memory it may take")
    a = parser.parse_args()
    found = alone(measure, a.classes, a.clients, a.rounds, a.test, a.seed)
    print(found)
    size = {"classes": a.classes, "clients_a_round": a.clients, "test_examples": a.test}
    about = {**size, "config": config(a.rounds, a.clients, a.seed), "most_gb": a.most_gb}
    write(a.out, {**about, **found})
    wrong = {
        f"took {found['peak_memory_gb']} GB, more than {a.most_gb:g}": found["peak_memory_gb"]
        > a.most_gb,
        "clients were missing": found["participations"] != a.clients * a.rounds,
        "evaluations were missing": found["evaluations"] != a.rounds + 1,
    }
    if any(wrong.values()):
        raise UserError(f"{a.out}: " + ", ".join(name for name, so in wrong.items() if so))


if __name__ == "__main__":
    command(main)
