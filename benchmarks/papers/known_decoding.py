"""Classes by the labels of the nearest known examples, as SLEEC decodes: what it brings (FedALC's sets).

    python -m benchmarks.papers.known_decoding --sets bibtex delicious
    python -m benchmarks.papers.known_decoding --small    # a small network, on a CPU

The arms are those of results/fedalc/SET.json, with the settings that were chosen for them. How many
examples vote, and what a class's own score counts beside them, is chosen on a fifth of the training
instances. Two servers are scored: one that was given the embeddings of all training examples with their
labels, which no client of a federation should send, and one that has held out a fifth of them.

Writes results/fedalc/SET-known.json; with --small, SET-known-small.json.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import spreadout as so
from benchmarks.common.command import command, parser_of
from benchmarks.common.paths import CONFIGS, RESULTS
from benchmarks.common.record import read, write
from benchmarks.papers.correlations import SETS, SMALL
from spreadout.config.effect import without_inherited
from spreadout.config.values import overlay, read_toml
from spreadout.data.dataset import Examples, Splits
from spreadout.evaluation.evaluate import evaluate
from spreadout.evaluation.known import TIE, KnownExamples
from spreadout.evaluation.pooled import pool_of
from spreadout.runs.arms import spread
from spreadout.runs.result import Result

METRICS = ["P@1", "P@3", "P@5"]
ARMS = ("fedaws-mined", "fedalc-mined", "softmax")
SMALL_ARMS: Mapping[str, dict[str, Any]] = {
    "fedaws-mined": {"name": "fedaws", "spreadout_form": "topk", "k": 5, "strength": 0.1},
}
COUNTS, OWN = (5, 10, 20, 40), (TIE, 1.0, 3.0, 10.0)
Scores = dict[str, float]


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--sets", nargs="+", choices=SETS, default=["bibtex"])
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--out", type=Path, default=RESULTS / "fedalc")
    a = parser.parse_args()
    for name in a.sets:
        arms = small_configs(name) if a.small else chosen_configs(a.out / f"{name}.json")
        table = [{"name": arm, **studied(config, a.seeds, a.device)} for arm, config in arms.items()]
        made = {"seeds": list(range(a.seeds)), "variants": table, "configs": arms}
        write(a.out / f"{name}-known{'-small' if a.small else ''}.json", made)


def chosen_configs(path: Path) -> dict[str, dict[str, Any]]:
    """As the arms of a result file were run."""
    configs = read(path)["configs"]
    return {name: configs[name] for name in ARMS if name in configs}


def small_configs(name: str) -> dict[str, dict[str, Any]]:
    base, found = read_toml(str(CONFIGS / "fedalc" / f"{name}-base.toml")), {}
    for arm, method in SMALL_ARMS.items():
        changes = overlay(SMALL, {"method": {**method, "weighting": "examples"}})
        merged = overlay(base, changes)
        found[arm] = without_inherited(merged, changes, so.Experiment.model_validate)
    return found


@dataclass(frozen=True)
class Trained:
    """A run of an arm, and the data it was cut from."""

    result: Result
    splits: Splits

    @property
    def training(self) -> Examples:
        """All training instances with their labels."""
        pool = pool_of(self.splits.train)
        return Examples(pool.inputs, pool.labels)

    @property
    def held_out(self) -> Examples:
        assert self.splits.validation is not None
        return self.splits.validation

    def scores(self, asked: Examples, known: KnownExamples | None = None) -> Scores:
        f = self.result.federation
        return evaluate(f.model, self.result.state, asked, METRICS, known=known).metrics

    def voted(self, asked: Examples, voters: Examples, count: int, own: float) -> Scores:
        """By the votes of so many of the nearest voters, and the classes' own scores beside them."""
        f = self.result.federation
        known = KnownExamples.of(f.model, self.result.state, voters, "knn", count)
        return self.scores(asked, replace(known, own=own))


def trained(config: Mapping[str, Any], seed: int, fraction: float, device: str) -> Trained:
    split = "validation" if fraction else "test"
    cut = {"data": {"validation_fraction": fraction}, "eval": {"split": split, "references": False}}
    experiment = so.Experiment.of({**overlay(config, cut), "seed": seed})
    splits = so.load_data(experiment.data, seed)
    return Trained(so.run(experiment, data=splits, device=device), splits)


def studied(config: Mapping[str, Any], seeds: int, device: str) -> dict[str, Any]:
    """One arm: what is chosen on validation instances, and its scores on the test part."""
    first = trained(config, 0, 0.2, device)
    tried = {
        (count, own): first.voted(first.held_out, first.training, count, own)
        for count, own in itertools.product(COUNTS, OWN)
    }
    count, own = max(tried, key=lambda point: sum(tried[point].values()))
    found: dict[str, list[Scores]] = {}
    for seed in range(seeds):
        whole = trained(config, seed, 0.0, device)
        part = first if seed == 0 else trained(config, seed, 0.2, device)
        test = whole.splits.test
        for kind, scores in {
            "by class vectors": whole.scores(test),
            "training examples vote": whole.voted(test, whole.training, count, own),
            "a fifth held out, by class vectors": part.scores(test),
            "a fifth held out, it votes": part.voted(test, part.held_out, count, own),
        }.items():
            found.setdefault(kind, []).append(scores)
            print(seed, kind, {name: round(value, 1) for name, value in scores.items()}, flush=True)
    return {
        "chosen": {"neighbours": count, "own": own, "of": len(tried)},
        "validation": {"by class vectors": first.scores(first.held_out), "voted": tried[count, own]},
        "metrics": {
            kind: {name: spread([scores[name] for scores in every]) for name in METRICS}
            for kind, every in found.items()
        },
    }


if __name__ == "__main__":
    command(main)
