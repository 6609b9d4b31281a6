"""Sound by default: every method on every set with nothing but data and method named.

    python -m benchmarks.defaults --sets digits,bibtex --methods fedaws,fedss --seeds 0,1,2

Results are added to `results/defaults/table.json` one by one; what is there already is not run again.
`--folder NAME=PATH` adds a folder in one of the published formats (Mulan's ARFF, xc text) as a set.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

import spreadout as so
from benchmarks.common import record
from benchmarks.common.paths import RESULTS

COMMIT = record.commit()  # of the code that runs, not of what the tree holds when a run ends
OUT = RESULTS / "defaults" / "table.json"
METHODS = ("fedaws", "fedalc", "fedss", "flag", "fedavg", "fedmlh", "centralized")
SETS: dict[str, dict[str, Any]] = {
    "digits": {"source": "digits"},
    "bibtex": {"source": "bibtex"},
    "delicious": {"source": "mulan", "path": "delicious"},
    "omniglot": {"source": "omniglot"},
    "movielens-1m": {"source": "movielens-1m"},
    "synthetic-100": {
        "source": {"name": "synthetic", "classes": 100, "features": 500, "examples": 10_000}
    },
    "synthetic-1000": {
        "source": {"name": "synthetic", "classes": 1000, "features": 2000, "examples": 20_000}
    },
    "synthetic-20000": {
        "source": {"name": "synthetic", "classes": 20_000, "features": 5000, "examples": 60_000}
    },
}
ONLY = {"movielens-1m": ("dual_encoder",)}  # histories are for one method


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sets", default="digits,bibtex,delicious")
    parser.add_argument("--folder", action="append", default=[], metavar="NAME=PATH")
    parser.add_argument("--methods", default=",".join(METHODS))
    parser.add_argument("--seeds", default="0")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--out", type=Path, default=OUT)
    given = parser.parse_args(arguments)
    torch.set_num_threads(1)
    sets = {name: SETS[name] for name in given.sets.split(",") if name}
    for name, _, path in (pair.partition("=") for pair in given.folder):
        sets[name] = {"source": "mulan", "path": path}
    for name, method, seed in _runs(sets, given.methods.split(","), given.seeds.split(",")):
        _add(given.out, name, method, seed, sets[name], given.device)


def _runs(
    sets: Mapping[str, Any], methods: Sequence[str], seeds: Sequence[str]
) -> Iterator[tuple[str, str, int]]:
    for seed in seeds:
        for name in sets:
            for method in ONLY.get(name, tuple(methods)):
                yield name, method, int(seed)


def _add(out: Path, name: str, method: str, seed: int, data: Mapping[str, Any], device: str) -> None:
    """One run and what it reached, if it is not there yet."""
    done = record.read(out)["runs"] if out.exists() else []
    if any((r["set"], r["method"], r["seed"]) == (name, method, seed) for r in done):
        return
    print(f"{name} {method} seed {seed} …", flush=True)
    started = time.perf_counter()
    data = dict(data)
    if "path" in data and not Path(data["path"]).is_absolute():
        data["path"] = str(Path(os.environ["SPREADOUT_DATA"]) / data["path"])
    try:
        found = so.run({"seed": seed, "data": data, "method": {"name": method}}, device=device)
    except so.UserError as error:
        result: dict[str, Any] = {"refused": str(error)}
    else:
        summary = found.summary
        result = {
            "metrics": summary["metrics"],
            "references": _scores(summary.get("references") or {}),
            "rounds": summary["rounds"],
            "prior": found.history[-1].get("prior"),
            "megabytes": round(sum(summary["bytes"][way] for way in ("down", "up")) / 1e6, 1),
        }
    seconds = round(time.perf_counter() - started, 1)
    run = {"set": name, "method": method, "seed": seed, **result, "seconds": seconds}
    run["commit"] = COMMIT
    done = record.read(out)["runs"] if out.exists() else []  # another process may have added some
    record.write(out, {"runs": sorted([*done, run], key=lambda r: (r["set"], r["method"], r["seed"]))})
    print(json.dumps({key: value for key, value in run.items() if key != "references"}), flush=True)


def _scores(references: Mapping[str, Any]) -> dict[str, Any]:
    return {name: found["metrics"] for name, found in references.items() if found.get("metrics")}


if __name__ == "__main__":
    main()
