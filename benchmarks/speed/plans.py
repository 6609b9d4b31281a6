"""What `spreadout doctor --plan` foretells beside what the run then took.

    python -m benchmarks.speed.plans --out results/plans/cpu.json

Each plan and each run is a process of its own, one after the other.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from benchmarks.common.command import command, parser_of
from benchmarks.common.paths import CONFIGS, RESULTS
from benchmarks.common.processes import spreadout, summary_of
from benchmarks.common.record import write

CASES = {
    "digits, FedAwS": ["digits-fedaws", "rounds=400"],
    "digits, FedALC-fixed": ["digits-fedaws", "method.name=fedalc-fixed", "rounds=100"],
    "Bibtex, FedAwS": [str(CONFIGS / "fedaws" / "bibtex-fedaws.toml"), "rounds=40"],
    "MovieLens-1M, H+S": [str(CONFIGS / "dual_encoder" / "base.toml"), "rounds=60"],
    "Omniglot, FedSS": [
        str(CONFIGS / "fedss" / "omniglot-base.toml"),
        "method.sampled_rows=58",
        "rounds=12",
        "eval.every=12",
    ],
    "a million classes, FedAwS": [
        "digits-fedaws",
        "data.source=synthetic",
        "data.source.classes=1000000",
        "data.source.features=1000",
        "data.source.examples=100000",
        "data.source.test_examples=500",
        "model.hidden=[32]",
        "model.dim=32",
        "method.spreadout_form=topk",
        "method.k=10",
        "clients.per_round=100",
        "clients.selection=nonempty",
        "rounds=20",
        "eval.every=10",
    ],
    "Eurlex's shape, FedMLH": [str(CONFIGS / "fedmlh" / "eurlex.toml"), "rounds=8"],
}


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--out", type=Path, default=RESULTS / "plans" / "cpu.json")
    parser.add_argument("--device", default="auto")
    a = parser.parse_args()
    found = []
    for name, case in CASES.items():
        told = json.loads(spreadout("doctor", "--plan", *case, "--json", "--device", a.device))
        took = summary_of(*case, "--device", a.device)
        one, other = shown(told), taken(took)
        found.append({"case": name, "foretold": one, "taken": other})
        print(name, {key: round(one[key] / max(other[key], 1e-9), 3) for key in one}, flush=True)
    write(a.out, {"results": found})


def shown(told: dict[str, Any]) -> dict[str, float]:
    return {
        "seconds": told["seconds"],
        "peak_memory_bytes": told["peak_memory_bytes"],
        "down_per_client": told["down_per_client"],
        "up_per_client": told["up_per_client"],
    }


def taken(summary: dict[str, Any]) -> dict[str, float]:
    moved = summary["bytes"]
    visits = max(moved["participations"], 1)
    return {
        "seconds": summary["seconds"],
        "peak_memory_bytes": summary["peak_memory_bytes"],
        "down_per_client": (moved["down"] - moved["once_down"]) / visits,
        "up_per_client": (moved["up"] - moved["once_up"]) / visits,
    }


if __name__ == "__main__":
    command(main)
