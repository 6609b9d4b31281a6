"""Bibtex with one label a client (An et al. 2024, Table VI and Fig. 6): tune, run, keep.

    python benchmarks/fedalc.py --jobs 12

λ and the number of rounds of every arm are chosen on a fifth of the training instances; then all arms
are trained on the whole training set for that many rounds, under every seed, and scored on the test set.
Writes results/fedalc/tuning.json and results/fedalc/bibtex.json.
"""

from __future__ import annotations

import argparse
import itertools
import tempfile
from pathlib import Path
from typing import Any

from record import write
from suite import keep, run_suites

from spreadout.comparison import Suite
from spreadout.experiment import Experiment, overlay, read_toml

ROOT = Path(__file__).resolve().parent.parent
BASE = ROOT / "configs" / "fedalc" / "bibtex-base.toml"
SOFTMAX = {"name": "centralized"}
ARMS: dict[str, tuple[str, dict[str, Any], dict[str, list[Any]]]] = {
    # label, what is fixed, what is swept
    "fedavg": ("FedAvg", {"method": {"name": "baseline-1"}}, {}),
    "fedaws": (
        "FedAwS",
        {"method": {"name": "fedaws", "spreadout_margin": 1.0}},
        {"method.strength": [0.01, 0.03, 0.1]},
    ),
    "fedalc": (
        "FedALC",
        {"method": {"name": "fedalc", "spreadout_margin": 1.0}},
        {"method.strength": [1.0, 3.0, 10.0, 30.0]},
    ),
    "fedavg-fixed": ("FedAvg-fixed", {"method": {"name": "baseline-2"}}, {}),
    "fedalc-fixed": (
        "FedALC-fixed",
        {"method": {"name": "fedalc-fixed"}},
        {"method.pull": [1.0, 5.0, 20.0]},
    ),
    "softmax": (
        "Softmax oracle (centralised)",
        {"method": SOFTMAX, "clients": {"row_lr": 1.0}},
        {"method.scale": [10.0, 20.0]},
    ),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--out", type=Path, default=ROOT / "results" / "fedalc")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--jobs", type=int, default=1, help="runs side by side, a process each")
    parser.add_argument("--rounds", type=int, help="instead of the config's, for a quick look")
    a = parser.parse_args()
    points = sweep(a.rounds)
    held = {"data": {"validation_fraction": 0.2}, "eval": {"split": "validation"}}
    tuned = Suite(
        "tuning", (0,), {n: experiment(n, c, held) for n, (_, c) in points.items()}, named(points)
    )
    chosen: dict[str, dict[str, Any]] = {}
    with tempfile.TemporaryDirectory() as folder:
        (arms,) = run_suites([tuned], Path(folder) / "tuning", a.device, a.jobs)
        found = []
        for found_arm in arms:
            arm, config = points[found_arm.name]
            best = found_arm.summaries[0]["best"]
            found.append({"arm": arm, "point": found_arm.name, **best})
            if arm not in chosen or best["P@1"] > chosen[arm]["best"]["P@1"]:
                chosen[arm] = {"config": config, "best": best}
        write(a.out / "tuning.json", {"base": BASE.name, "fraction": 0.2, "points": found})
        final = {
            arm: experiment(arm, one["config"], {"rounds": max(int(one["best"]["round"]), 1)})
            for arm, one in chosen.items()
        }
        labels = {arm: ARMS[arm][0] for arm in final}
        suite = Suite("bibtex", tuple(range(a.seeds)), final, labels)
        (arms,) = run_suites([suite], Path(folder) / "final", a.device, a.jobs)
    keep(suite, arms, a.out / "bibtex.json")


def sweep(rounds: int | None) -> dict[str, tuple[str, dict[str, Any]]]:
    """Every point of every arm: its name, the arm, and its changes to the base."""
    points = {}
    for arm, (_, fixed, grid) in ARMS.items():
        for values in itertools.product(*grid.values()):
            config = dict(fixed)
            for key, value in zip(grid, values, strict=True):
                section, name = key.split(".")
                config = overlay(config, {section: {**config[section], name: value}})
            if rounds:
                config = overlay(config, {"rounds": rounds})
            points["-".join([arm, *(f"{value:g}" for value in values)])] = (arm, config)
    return points


def experiment(name: str, changes: dict[str, Any], more: dict[str, Any]) -> Experiment:
    return Experiment.of({**overlay(overlay(read_toml(str(BASE)), changes), more), "name": name})


def named(points: dict[str, tuple[str, dict[str, Any]]]) -> dict[str, str]:
    return {name: name for name in points}


if __name__ == "__main__":
    main()
