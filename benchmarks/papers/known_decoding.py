"""Classes by the labels of the nearest known examples, as SLEEC decodes: what it brings (FedALC's sets).

    python -m benchmarks.papers.known_decoding --sets bibtex delicious --jobs 12
    python -m benchmarks.papers.known_decoding --linear    # the default network for words, on a CPU

The arms are those of results/fedalc/SET.json (with --linear, SET-linear.json), with the settings that
were chosen for them. How many
examples vote, and what a class's own score counts beside them, is chosen on a fifth of the training
instances. Two servers are scored: one that was given the embeddings of all training examples with their
labels, which no client of a federation should send, and one that has held out a fifth of them.

Writes results/fedalc/SET-known.json; with --linear, SET-linear-known.json.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import spreadout as so
from benchmarks.common.command import command, parser_of
from benchmarks.common.paths import RESULTS
from benchmarks.common.record import read, write
from benchmarks.papers.correlations import LINEAR, SETS, study_of
from benchmarks.papers.side_by_side import Kept, Made, add_running, config_of, running_of
from benchmarks.papers.suite import Runs, run_suites
from spreadout.config.values import overlay
from spreadout.data.held_out import Examples
from spreadout.data.load import load_data
from spreadout.evaluation.evaluate import evaluate
from spreadout.evaluation.known import TIE, KnownExamples
from spreadout.evaluation.pooled import pool_of
from spreadout.runs.arms import spread
from spreadout.runs.compare import Suite
from spreadout.runs.result import Result

METRICS = ["P@1", "P@3", "P@5"]
ARMS = ("fedaws-mined", "fedalc-mined", "softmax")
LINEAR_ARMS = ("fedaws-ridge", "softmax")  # the best, and what has embeddings in one place
COUNTS, OWN = (5, 10, 20, 40), (TIE, 1.0, 3.0, 10.0)
HELD_OUT = {"whole": 0.0, "part": 0.2}  # of the training instances
Scores = dict[str, float]


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--sets", nargs="+", choices=SETS, default=["bibtex"])
    parser.add_argument("--linear", action="store_true", help=LINEAR)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--out", type=Path, default=RESULTS / "fedalc")
    parser.add_argument("--rounds", type=int, help="instead of the arms', for a quick look")
    add_running(parser)
    a = parser.parse_args()
    suites = []
    for name in a.sets:
        study = study_of(name, a.linear)
        arms = chosen_configs(a.out / f"{study}.json", LINEAR_ARMS if a.linear else ARMS)
        shorter = {"rounds": a.rounds} if a.rounds else {}
        suites.append(suite_of(study, {arm: {**arms[arm], **shorter} for arm in arms}, a.seeds))
    with running_of(a) as running:
        for suite, kept in zip(suites, run_suites(suites, running, voted), strict=True):
            write_table(suite, kept, a.out / f"{suite.name}.json")


def write_table(suite: Suite, kept: Kept, out: Path) -> None:
    """Once all its arms are there."""
    arms = dict.fromkeys(variant.rpartition("-")[0] for variant in suite.variants)
    found = {arm: studied(arm, suite, kept) for arm in arms}
    table = [{"name": arm, **one} for arm, one in found.items() if one is not None]
    if len(table) == len(arms):
        configs = {arm: config_of(suite.variants[f"{arm}-whole"]) for arm in arms}
        write(out, {"seeds": list(suite.seeds), "variants": table, "configs": configs})


def chosen_configs(path: Path, arms: Sequence[str]) -> dict[str, dict[str, Any]]:
    """As some arms of a result file were run."""
    configs = read(path)["configs"]
    return {name: configs[name] for name in arms if name in configs}


def suite_of(study: str, arms: Mapping[str, Mapping[str, Any]], seeds: int) -> Suite:
    """Every arm trained on all training instances, and on four fifths of them."""
    found = {}
    for (arm, config), (trained, fraction) in itertools.product(arms.items(), HELD_OUT.items()):
        cut = {
            "data": {"validation_fraction": fraction},
            "eval": {"split": "validation" if fraction else "test", "references": False},
        }
        found[f"{arm}-{trained}"] = so.Experiment.of(overlay(config, cut))
    return Suite(f"{study}-known", tuple(range(seeds)), found, {variant: variant for variant in found})


@dataclass(frozen=True)
class Trained:
    """A run of an arm."""

    result: Result

    def scores(self, asked: Examples, known: KnownExamples | None = None) -> Scores:
        f = self.result.federation
        return evaluate(f.model, self.result.state, asked, METRICS, known=known).metrics

    def voted(self, asked: Examples, voters: Examples) -> dict[str, Scores]:
        """By the votes of the nearest voters, and the classes' own scores beside them: every setting."""
        f, found = self.result.federation, {}
        for count in COUNTS:
            known = KnownExamples.of(f.model, self.result.state, voters, "knn", count)
            for own in OWN:
                found[f"{count} {own}"] = self.scores(asked, replace(known, own=own))
        return found


def voted(result: Result, experiment: so.Experiment) -> Made:
    """What a run's model finds by class vectors, and by votes of training and of held-out instances."""
    splits, trained = load_data(experiment.data, experiment.seed), Trained(result)
    pool = pool_of(splits.train)
    training = Examples(pool.inputs, pool.labels)
    test = trained.scores(splits.test)
    held = splits.validation
    if held is None:
        return {"test": test, "voted": trained.voted(splits.test, training)}
    return {
        "test": test,
        "voted": trained.voted(splits.test, held),
        "validation": trained.scores(held),
        "tried": trained.voted(held, training),
    }


def studied(arm: str, suite: Suite, kept: Kept) -> dict[str, Any] | None:
    """What was chosen on the first seed's validation instances, and scores on the test part."""
    runs = {
        trained: [kept.of(job) for job in Runs(suite).of_variant(f"{arm}-{trained}")]
        for trained in HELD_OUT
    }
    every = {trained: [one["more"] for one in some if one] for trained, some in runs.items()}
    if min(map(len, every.values())) < len(suite.seeds):
        return None
    first = every["part"][0]
    tried: dict[str, Scores] = first["tried"]
    best = max(tried, key=lambda point: sum(tried[point].values()))
    count, own = best.split()
    kinds = {
        "by class vectors": [one["test"] for one in every["whole"]],
        "training examples vote": [one["voted"][best] for one in every["whole"]],
        "a fifth held out, by class vectors": [one["test"] for one in every["part"]],
        "a fifth held out, it votes": [one["voted"][best] for one in every["part"]],
    }
    return {
        "chosen": {"neighbours": int(count), "own": float(own), "of": len(tried)},
        "validation": {"by class vectors": first["validation"], "voted": tried[best]},
        "metrics": {kind: _spreads(scores) for kind, scores in kinds.items()},
    }


def _spreads(every: Sequence[Scores]) -> dict[str, Any]:
    return {name: spread([scores[name] for scores in every]) for name in METRICS}


if __name__ == "__main__":
    command(main)
