"""The price of seeing nothing: P@k against the number of rows that a client gets beside its own.

    python -m benchmarks.papers.seen_rows       # Bibtex; writes results/seen_rows/bibtex.json

At extreme shapes `benchmarks.papers.extreme --rows` makes the same.

With no row beside its own a client trains FedAwS; with some, a softmax over its own class and a random
sample of the others (FedSS, uncorrected); with all, a softmax over all classes (FedAvg). Every arm has
the same number of tuning points, chosen by P@1 on validation examples of one seed, and is then trained
with several seeds and judged once on the test part, with the prior over classes and without it.
"""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.common.command import command, parser_of
from benchmarks.common.paths import RESULTS, ROOT
from benchmarks.common.record import read, write
from benchmarks.papers.drawing import picture
from spreadout.config.experiment import Experiment
from spreadout.data.held_out import Examples
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


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--rows", nargs="+", default=list(ROWS), type=_rows)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--out", type=Path, default=RESULTS / "seen_rows")
    a = parser.parse_args()
    path = a.out / "bibtex.json"
    arms = dict(read(path).get("arms", {})) if path.exists() else {}
    for rows in a.rows:
        arms[str(rows)] = arm(rows, range(a.seeds), a.device)
        arms = {str(key): arms[str(key)] for key in ROWS if str(key) in arms}
        write(path, {"data": "bibtex", "seeds": a.seeds, "arms": arms}, quiet=True)
    draw(read(path), ROOT / "docs" / "images" / "seen-rows-bibtex.svg")


def arm(rows: int | str, seeds: Sequence[int], device: str) -> dict[str, Any]:
    """The best of the tuning points on validation examples, then several seeds on the test part."""
    tuning = {}
    for point in POINTS:
        found = run(experiment(rows, point, 0, "validation"), device=device).metrics["P@1"]
        tuning[" ".join(map(str, point))] = found
        print(rows, point, f"{found:.2f}", flush=True)
    chosen = POINTS[max(range(len(POINTS)), key=lambda i: list(tuning.values())[i])]
    results = [run(experiment(rows, chosen, seed, "test"), device=device) for seed in seeds]
    with_prior = [dict(result.metrics) for result in results]
    clients = [moved(result) for result in results]
    first = experiment(rows, chosen, 0, "test")
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


def experiment(rows: int | str, point: Point, seed: int, split: str) -> Experiment:
    lr, row_lr, weighting = point
    method: dict[str, Any] = {"name": "fedaws"}
    if rows == "all":
        method = {"name": "fedavg"}
    elif rows:
        method = {"name": "fedss", "negatives": rows, "correct": False}
    return Experiment.of(
        {
            **BIBTEX,
            "name": f"bibtex-{rows}",
            "seed": seed,
            "chosen": [],
            "method": {**method, "prior": "auto", "weighting": weighting},
            "clients": {**BIBTEX["clients"], "lr": lr, "row_lr": row_lr},
            "eval": {"every": BIBTEX["rounds"], "split": split, "metrics": list(METRICS)},
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
    arms = made["arms"]
    draw_rows(made["data"], list(arms), lambda rows, way, name: arms[rows][way][name]["mean"], path)


def draw_rows(
    data: str, arms: Sequence[str], score: Callable[[str, str, str], float], path: Path
) -> None:
    """P@1, 3 and 5 by rows, with the prior and without. score: of rows, "prior" or not, and metric."""
    lines = {}
    for k, way in itertools.product((1, 3, 5), ("prior", "without")):
        name = f"P@{k}, with the prior" if way == "prior" else f"P@{k}, without"
        lines[name] = [score(rows, way, f"P@{k}") for rows in arms]
    title = f"P@k against the rows that a client gets beside its own: {data}"
    picture(path, title, "rows beside its own", arms, lines)


if __name__ == "__main__":
    command(main)
