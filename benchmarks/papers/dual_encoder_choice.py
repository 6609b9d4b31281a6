"""Which settings the arms of the MovieLens comparisons may choose from, and the choice itself.

Every arm of a suite has equally many points. They are tried on the validation users (federated, and what
is compared with federated arms), or on a tenth of the training examples (the centralised half of
Table 2). Rounds end where the mean of the recalls has stopped rising.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.common.paths import CONFIGS
from benchmarks.papers import user_errors
from benchmarks.papers.two_stage import Candidate, Changes, TwoStage
from spreadout.config.values import read_toml

Grid = Mapping[str, Sequence[Any]]
PATIENT: Changes = {"best_by": ["R@1", "R@5", "R@10"], "patience": 8}
FEDERATED: Grid = {"clients.lr": [0.7, 2.0, 6.0], "server.lr": [0.01, 0.03, 0.1]}
IN_ONE_PLACE: Grid = {"clients.lr": [0.001, 0.003, 0.01, 0.03, 0.1, 0.3]}


@dataclass(frozen=True)
class Choice:
    """The grid of a suite's arms, and how long each may train."""

    grid: Grid
    rounds: int
    every: int  # rounds between two evaluations
    own: Mapping[str, Grid] = field(default_factory=dict)  # of single arms: as many points, other values
    still_held: float = 0.1  # the paper's 603 validation users are nobody's to train on


GLOBAL: Grid = {"clients.lr": [5.0, 15.0, 45.0], "server.lr": [0.03, 0.1, 0.3]}
WARM: Grid = {"clients.lr": [0.1, 0.3, 1.0], "server.lr": [0.01, 0.03, 0.1]}  # with a temperature
CHOICES = {
    "table2": Choice(FEDERATED, 3000, 50, {"gs": GLOBAL}),
    "centralized": Choice(
        IN_ONE_PLACE,
        2000,
        20,
        {"gs": {"clients.lr": [10.0, 30.0, 100.0, 300.0, 1000.0, 3000.0]}},
        still_held=0.0,
    ),
    "figures": Choice(FEDERATED, 3000, 50),
    "ablation": Choice(GLOBAL, 3000, 50, {"temperature": WARM}),
    "ours": Choice(WARM, 3000, 50),
    "sasrec": Choice({"clients.lr": [0.001, 0.003, 0.01], "model.layers": [1, 2, 3]}, 600, 5),
}


def candidates(suite: str) -> dict[str, Candidate]:
    """The arms of a suite's file with their grids. No rate decays: nobody knows the last round."""
    choice, found = CHOICES[suite], {}
    for name, variant in read_toml(str(_file(suite)))["variants"].items():
        changes = {key: value for key, value in variant.items() if key != "label"}
        changes["rounds"] = choice.rounds
        changes["clients"] = {**changes.get("clients", {}), "lr_decay": "none"}
        evaluated = {"every": choice.every, "references": False, **PATIENT}  # they have a file
        changes["eval"] = {**changes.get("eval", {}), **evaluated}
        found[name] = Candidate(variant["label"], changes, choice.own.get(name, choice.grid))
    return found


def base_of(suite: str) -> Path:
    return _file(suite).parent / str(read_toml(str(_file(suite)))["base"])


def plan_of(suite: str, seeds: int, changes: Changes, only: Sequence[str] | None = None) -> TwoStage:
    """To tune and run a suite's arms; it writes `SUITE-tuning.json` and `SUITE.json`."""
    arms = candidates(suite)
    return TwoStage(
        suite,
        base_of(suite),
        {name: arms[name] for name in only or arms if name in arms},
        seeds=seeds,
        fraction=0.1,
        still_held=CHOICES[suite].still_held,
        changes=changes,
        into=only is not None,
        more=user_errors.of_run,
    )


def _file(suite: str) -> Path:
    return CONFIGS / "dual_encoder" / f"{suite}.toml"
