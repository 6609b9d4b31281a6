"""The price of seeing nothing: P@k against the number of rows that a client gets beside its own.

    python -m benchmarks.papers.seen_rows       # Bibtex; writes results/seen_rows/bibtex.json
    python -m benchmarks.papers.seen_rows --data amazoncat-13k wikilshtc-325k --device cuda

With no row beside its own a client trains FedAwS; with some, a softmax over its own class and a random
sample of the others (FedSS, uncorrected); with all, a softmax over all classes (FedAvg). Every arm has
the same number of tuning points, chosen by P@1 on validation examples of one seed, and is then trained
with several seeds and judged once on the test part, with the prior over classes and without it.
"""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.common.command import command, parser_of
from benchmarks.common.paths import RESULTS, ROOT
from benchmarks.common.record import read, write
from benchmarks.papers.drawing import picture
from spreadout.config.experiment import Experiment
from spreadout.data.dataset import Examples
from spreadout.data.load import load_data
from spreadout.evaluation.config import EvalConfig
from spreadout.evaluation.evaluate import evaluate, needed_frequencies
from spreadout.runs.result import Result
from spreadout.runs.train import run

ROWS: tuple[int | str, ...] = (0, 1, 3, 10, 30, 100, "all")
METRICS = ("P@1", "P@3", "P@5", "PSP@1", "PSP@5")
Point = tuple[float, float, str]
POINTS: tuple[Point, ...] = (  # rates of the encoder and of rows on clients; how clients are weighed
    (0.1, 0.5, "uniform"),
    (0.1, 0.5, "examples"),
    (0.3, 1.0, "uniform"),
    (0.3, 1.0, "examples"),
)
BIBTEX: dict[str, Any] = {
    "rounds": 60,
    "data": {"source": "bibtex", "validation_fraction": 0.15},
    "model": {"hidden": [], "dim": 64},
    "clients": {"per_round": "all", "local_steps": 1, "batch": 16, "lr_decay": "linear"},
    "server": {"optimizer": "adam", "lr": 0.003},
}  # fmt: skip
EXTREME: dict[str, Any] = {
    "rounds": 1500,
    "data": {"targets": "one", "validation_fraction": 0.01},
    "model": {"encoder": "lookup", "width": 512, "hidden": [1024, 1024], "dim": 512},
    "clients": {
        "per_round": 4096, "selection": "nonempty", "request_features": "seen", "local_steps": 1,
        "batch": 16, "input_lr": 1.0, "lr_decay": "linear",
    },
    "server": {
        "optimizer": "adagrad", "lr": 0.01, "eps": 1e-8,
        "tables": {"inputs": {"optimizer": "sgd", "lr": 30000.0}},
    },
    "run": {"memory_gb": 24.0, "precision": "bf16", "checkpoint_every": 10_000},
}  # fmt: skip


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--data", nargs="+", default=["bibtex"], help="bibtex, or synthetic shapes")
    parser.add_argument("--rows", nargs="+", default=list(ROWS), type=_rows)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--out", type=Path, default=RESULTS / "seen_rows")
    a = parser.parse_args()
    for name in a.data:
        path = a.out / f"{name}.json"
        arms = dict(read(path).get("arms", {})) if path.exists() else {}
        for rows in a.rows:
            arms[str(rows)] = arm(name, rows, range(a.seeds), a.device)
            arms = {str(key): arms[str(key)] for key in ROWS if str(key) in arms}
            write(path, {"data": name, "seeds": a.seeds, "arms": arms}, quiet=True)
        draw(read(path), ROOT / "docs" / "images" / f"seen-rows-{name}.svg")


def arm(name: str, rows: int | str, seeds: Sequence[int], device: str) -> dict[str, Any]:
    """The best of the tuning points on validation examples, then several seeds on the test part."""
    tuning = {}
    for point in POINTS:
        found = run(experiment(name, rows, point, 0, "validation"), device=device).metrics["P@1"]
        tuning[" ".join(map(str, point))] = found
        print(name, rows, point, f"{found:.2f}", flush=True)
    chosen = POINTS[max(range(len(POINTS)), key=lambda i: list(tuning.values())[i])]
    results = [run(experiment(name, rows, chosen, seed, "test"), device=device) for seed in seeds]
    with_prior = [dict(result.metrics) for result in results]
    clients = [moved(result) for result in results]
    first = experiment(name, rows, chosen, 0, "test")
    test = load_data(first.data, 0).test
    without = [plain(result, test) for result in results]
    return {
        "tuning": tuning,
        "chosen": chosen,
        "prior": _over(with_prior),
        "without": _over(without),
        "bytes": {way: statistics.mean(one[way] for one in clients) for way in ("down", "up")},
        "config": first.model_dump(mode="json", exclude_defaults=True),
    }


def _rows(word: str) -> int | str:
    return word if word == "all" else int(word)


def experiment(name: str, rows: int | str, point: Point, seed: int, split: str) -> Experiment:
    lr, row_lr, weighting = point
    base: Mapping[str, Any] = BIBTEX if name == "bibtex" else EXTREME
    data = dict(base["data"])
    if name != "bibtex":
        data["source"] = {"name": "synthetic", "shape": name}
    method: dict[str, Any] = {"name": "fedaws"}
    if rows == "all":
        method = {"name": "fedavg"}
    elif rows:
        method = {"name": "fedss", "negatives": rows, "correct": False}
    return Experiment.of(
        {
            **base,
            "name": f"{name}-{rows}",
            "seed": seed,
            "chosen": [],
            "data": data,
            "method": {**method, "prior": "auto", "weighting": weighting},
            "clients": {**base["clients"], "lr": lr, "row_lr": row_lr},
            "eval": {"every": base["rounds"], "split": split, "metrics": list(METRICS)},
        }
    )


def plain(result: Result, test: Examples) -> dict[str, float]:
    """What the same model scores without the prior."""
    bare = replace(result.state, scoring={})
    seen = needed_frequencies(result.federation.data, EvalConfig(metrics=METRICS))
    return dict(evaluate(result.federation.model, bare, test, METRICS, seen=seen).metrics)


def moved(result: Result) -> dict[str, float]:
    """Bytes a client and round."""
    told = result.summary["bytes"]
    return {way: told[way] / told["participations"] for way in ("down", "up")}


def _over(scores: Sequence[Mapping[str, float]]) -> dict[str, dict[str, float]]:
    return {
        name: {
            "mean": statistics.mean(one[name] for one in scores),
            "spread": statistics.stdev(one[name] for one in scores) if len(scores) > 1 else 0.0,
        }
        for name in METRICS
    }


def draw(made: Mapping[str, Any], path: Path) -> None:
    """P@1, 3 and 5 by rows, with the prior and without it."""
    arms, lines = made["arms"], {}
    for k, way in itertools.product((1, 3, 5), ("prior", "without")):
        name = f"P@{k}, with the prior" if way == "prior" else f"P@{k}, without"
        lines[name] = [found[way][f"P@{k}"]["mean"] for found in arms.values()]
    title = f"P@k against the rows that a client gets beside its own: {made['data']}"
    picture(path, title, "rows beside its own", list(arms), lines)


if __name__ == "__main__":
    command(main)
