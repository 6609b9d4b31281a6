"""Class rows from features of the classes: frequent, rare and unseen classes apart.

    python -m benchmarks.papers.class_features                  # writes results/class_features/*.json

One client a class; a tenth of the classes has no client. Arms: FedAwS; FedAwS whose rows lie near what
the classes' features say (names of Bibtex's and Delicious' labels, prototypes of synthetic ones); and
the same with the features shuffled among the classes, which must gain nothing. The first two have the
same number of tuning points, on validation examples, with other unseen classes than those in the end.
"""

from __future__ import annotations

import itertools
import statistics
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from benchmarks.common.command import command, parser_of
from benchmarks.common.paths import RESULTS
from benchmarks.common.record import read, write
from spreadout.config.experiment import Experiment
from spreadout.core import randomness
from spreadout.data.held_out import Examples
from spreadout.data.load import DataConfig, load_data
from spreadout.data.sources.synthetic import Synthetic
from spreadout.data.splits import Splits
from spreadout.evaluation.embed import ranked
from spreadout.methods.class_features import of_names
from spreadout.runs.result import Result
from spreadout.runs.train import run

DEPTH = 10  # a label counts as found among so many
ARMS = ("none", "features", "shuffled")
GROUPS = ("frequent", "rare", "unseen")
TUNED_ON = 1000  # the seed of the classes that are unseen while tuning
SETS: dict[str, dict[str, Any]] = {
    "bibtex": {"source": "bibtex"},
    "delicious": {"source": "delicious"},
    "synthetic": {
        "source": {
            "name": "synthetic", "law": "matched", "classes": 600, "features": 400, "examples": 6000,
            "test_examples": 1500, "labels_per_example": 2.0, "exponent": 0.8, "noise": 10, "shown": 0.6,
        }
    },
}  # fmt: skip
Point = tuple[tuple[float, float], tuple[float, float] | None]
RATES = ((0.1, 0.5), (0.3, 1.0), (0.1, 0.1), (0.3, 0.3))
KEPT = ((30.0, 0.3),)  # borrow, tower_ridge


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--data", nargs="+", choices=SETS, default=["bibtex", "synthetic"])
    parser.add_argument("--arms", nargs="+", choices=ARMS, default=list(ARMS))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--out", type=Path, default=RESULTS / "class_features")
    a = parser.parse_args()
    for name in a.data:
        path = a.out / f"{name}.json"
        arms = dict(read(path)["arms"]) if path.exists() else {}
        with tempfile.TemporaryDirectory() as folder:
            for arm in a.arms:
                told = arms.get("features", {}).get("chosen", {"rates": RATES[0], "kept": KEPT[0]})
                chosen = tuple(told["rates"]), tuple(told["kept"])
                arms[arm] = measured(name, arm, range(a.seeds), a.rounds, a.device, Path(folder), chosen)
                write(path, {"data": name, "depth": DEPTH, "seeds": a.seeds, "arms": arms}, quiet=True)


def measured(
    name: str, arm: str, seeds: Sequence[int], rounds: int, device: str, folder: Path, chosen: Point
) -> dict[str, Any]:
    """The best tuning point, then several seeds on the test part."""
    points: list[Point] = list(itertools.product(RATES, KEPT))
    if arm == "none":  # as many points as with features
        points = [(rates, None) for rates in RATES]
    elif arm == "shuffled":  # a control, with what was chosen for the features themselves
        points = [chosen]
    tuning = {}
    for rates, kept in points if len(points) > 1 else []:
        data = without_classes(name, TUNED_ON)
        config = experiment(name, arm, rates, kept, 0, rounds, folder)
        found = scores(run(config, data=data, device=device), data, _held(data))
        tuning[f"{rates}, {kept}"] = found
        print(name, arm, rates, kept, {k: round(v, 2) for k, v in found.items()}, flush=True)
    best = max(range(len(points)), key=lambda i: _goal(list(tuning.values())[i]) if tuning else 0)
    results = []
    for seed in seeds:
        data = without_classes(name, seed)
        config = experiment(name, arm, *points[best], seed, rounds, folder)
        results.append(scores(run(config, data=data, device=device), data, data.test))
    print(name, arm, "test", results, flush=True)
    written = config.model_dump(mode="json", exclude_defaults=True)
    if kept_file := written["method"].get("class_features"):
        written["method"]["class_features"] = Path(kept_file).name
    return {
        "tuning": tuning,
        "chosen": {"rates": points[best][0], "kept": points[best][1]},
        "test": {key: _over([one[key] for one in results]) for key in results[0]},
        "config": written,
    }


def _goal(found: Mapping[str, float]) -> float:
    """What is tuned for: the mean of what is found in the three groups."""
    return statistics.mean(found[group] for group in GROUPS)


def _held(data: Splits) -> Examples:
    assert data.validation is not None
    return data.validation


def _over(values: Sequence[float]) -> dict[str, float]:
    spread = statistics.stdev(values) if len(values) > 1 else 0.0
    return {"mean": statistics.mean(values), "spread": spread}


def unseen_of(classes: int, seed: int) -> Tensor:
    draw = randomness.generator(seed, "unseen classes")
    return torch.from_numpy(np.sort(draw.choice(classes, classes // 10, replace=False)))


@cache
def whole(name: str) -> Splits:
    return load_data(DataConfig(**SETS[name], validation_fraction=0.15), 0)


def without_classes(name: str, seed: int) -> Splits:
    """The set with no client for a tenth of its classes."""
    data = whole(name)
    train, held = data.train, unseen_of(data.train.classes, seed)
    first = train.rows_of(torch.arange(train.clients))["classes"]
    kept = torch.tensor([i for i in range(train.clients) if not torch.isin(first[i], held).any()])
    return replace(data, train=train.part(kept))


def experiment(
    name: str, arm: str, rates: tuple[float, float], kept: tuple[float, float] | None, seed: int,
    rounds: int, folder: Path,
) -> Experiment:  # fmt: skip
    method: dict[str, Any] = {"name": "fedaws", "prior": 0.0}
    if kept is not None:
        method |= {"class_features": str(features_file(name, arm, folder)), "tower_ridge": kept[1]}
        method["borrow"] = kept[0]
    return Experiment.of(
        {
            "rounds": rounds,
            "seed": seed,
            "chosen": [],
            "data": {**SETS[name], "validation_fraction": 0.15},
            "model": {"hidden": [], "dim": 64},
            "method": method,
            "clients": {
                "per_round": "all", "local_steps": 1, "batch": 16, "lr": rates[0], "row_lr": rates[1],
            },
            "server": {"optimizer": "adam", "lr": 0.003},
            "eval": {"every": rounds, "metrics": ["P@1"]},
        }
    )  # fmt: skip


def features_file(name: str, arm: str, folder: Path) -> Path:
    """The classes' features as an array; shuffled: those of another class."""
    path = folder / f"{name}-{arm}.npy"
    if not path.exists():
        if name == "synthetic":
            source = Synthetic(**SETS[name]["source"])
            found = np.zeros((source.classes, source.features), dtype=np.float32)
            marks = source.prototype(np.arange(source.classes)[:, None], np.arange(source.prototypes))
            np.put_along_axis(found, marks, 1, axis=1)
        else:
            features = of_names(whole(name).class_names)
            found = features.times(torch.eye(features.width)).numpy()
        if arm == "shuffled":
            found = found[randomness.generator(0, "shuffled features").permutation(len(found))]
        np.save(path, found)
    return path


def scores(result: Result, data: Splits, held: Examples) -> dict[str, float]:
    """P@k, and of the labels of each group the share that is found among the first `DEPTH` classes."""
    classes = data.train.classes
    y = data.train.columns["y"].take(torch.arange(data.train.examples))
    counts = torch.bincount(y.cpu(), minlength=classes)
    seen = (counts > 0).nonzero()[:, 0]
    by_count = seen[torch.argsort(counts[seen], descending=True, stable=True)]
    group = torch.full((classes,), 2)  # unseen
    group[by_count[: len(seen) // 2]], group[by_count[len(seen) // 2 :]] = 0, 1
    some = (held.labels.lengths > 0).nonzero()[:, 0]
    model, state = result.federation.model, result.state
    first = torch.cat([ranked(model, state, held, at, DEPTH).ids.cpu() for at in torch.split(some, 512)])
    labels = held.labels.select(some)
    owner = torch.repeat_interleave(torch.arange(len(some)), labels.lengths.cpu())
    label = labels.values.cpu()
    hit = first[owner] == label[:, None]  # (pairs, DEPTH)
    found = {GROUPS[g]: 100 * float(hit[group[label] == g].any(1).double().mean()) for g in range(3)}
    right = torch.zeros(len(some), DEPTH).index_add_(0, owner, hit.float())
    return {f"P@{k}": 100 * float(right[:, :k].sum(1).mean()) / k for k in (1, 3, 5)} | found


if __name__ == "__main__":
    command(main)
