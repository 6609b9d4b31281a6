"""Choose the demo's hyper-parameters on a validation split of the training digits; test is not read.

    python benchmarks/tune_digits.py            # prints the grid, writes results/digits/tuning.json

The federated arms of the demo share one setting of the client's rates. With the hinge loss of Eq. 23,
how far Baseline-1 collapses depends on how fast class rows move against the encoder: once every
example is within the margin of its class, nothing pulls any more. The setting taken is one where
Baseline-1 does collapse (largest cosine above 0.9) and FedAwS is within 0.5 of its best.
"""

from __future__ import annotations

import itertools
import json
import statistics
from pathlib import Path
from typing import Any

import spreadout as so

SEEDS = (0, 1, 2)
BASE = ["data.validation_fraction=0.2", "eval.split=validation", "eval.every=100"]
RATES: dict[str, tuple[Any, ...]] = {
    "clients.lr": (0.1, 0.2, 0.5),
    "clients.row_lr": (0.5, 1.0, 2.0),
}
GRIDS: dict[str, dict[str, tuple[Any, ...]]] = {
    "baseline-1": RATES,
    "baseline-2": {"clients.lr": RATES["clients.lr"]},
    "fedaws": {**RATES, "method.strength": (0.03, 0.1, 0.3)},
    "centralized": {
        "clients.lr": (0.02, 0.05, 0.1, 0.2, 0.5),
        "method.scale": (5, 10, 20),
        "server.momentum": (0.0, 0.9),
        "clients.batch": (320,),
    },
}


def main() -> None:
    results = []
    for method, grid in GRIDS.items():
        for values in itertools.product(*grid.values()):
            chosen = dict(zip(grid, values, strict=True))
            overrides = [f"method.name={method}", *BASE, *(f"{k}={v}" for k, v in chosen.items())]
            scores, cosines = [], []
            for seed in SEEDS:
                experiment = so.Experiment.load("digits-fedaws", [*overrides, f"seed={seed}"])
                result = so.run(experiment, device="cpu")
                scores.append(result.metrics["P@1"])
                cosines.append(result.summary["gauges"]["max_cosine"])
            results.append({"method": method, **chosen, "P@1": scores, "max_cosine": cosines})
        ranked = sorted((r for r in results if r["method"] == method), key=_mean, reverse=True)
        for r in ranked[:12]:
            settings = {key: value for key, value in r.items() if key in grid}
            cosine = statistics.fmean(r["max_cosine"])
            print(f"{method:12} {_mean(r):6.2f}  largest cosine {cosine:5.2f}  {settings}", flush=True)
    out = Path("results/digits/tuning.json")
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps({"seeds": SEEDS, "split": "validation", "results": results}, indent=1))


def _mean(result: dict[str, Any]) -> float:
    return statistics.fmean(result["P@1"])


if __name__ == "__main__":
    main()
