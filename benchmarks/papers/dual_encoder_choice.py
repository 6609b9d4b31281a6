"""Which settings the arms of the MovieLens comparisons may choose from, and the choice itself.

Every arm of a suite has equally many points. They are tried on the validation users (federated, and what
is compared with federated arms), or on a tenth of the training examples (the centralised half of
Table 2). Rates fall to nothing over all rounds, so every run ends where it has stopped rising; whether
more rounds would have brought more is tried by points with several times as many.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.common.paths import CONFIGS
from benchmarks.papers import user_errors
from benchmarks.papers.two_stage import Candidate, Changes, TwoStage
from spreadout.config.values import overlay, read_toml

Grid = Mapping[str, Sequence[Any]]
EVALUATED: Changes = {"references": False, "best_by": ["R@1", "R@5", "R@10"]}  # references have a file
HELD_OUT = 0.1  # of training users or examples: settings are chosen on them
FALLING: Changes = {"clients": {"lr_decay": "cosine"}, "server": {"lr_decay": "cosine"}}
FALLING_IN_ONE_PLACE: Changes = {"clients": {"lr_decay": "cosine"}}  # the server only keeps the model


@dataclass(frozen=True)
class Choice:
    """The grid of a suite's arms."""

    grid: Grid
    every: int  # rounds between two evaluations
    own: Mapping[str, Grid] = field(default_factory=dict)  # of single arms: as many points, other values
    still_held: float = 0.1  # the paper's 603 validation users are nobody's to train on


# Of batch softmax, what clients send is small beside the ε of the server's Adam (`base.toml`): its rate
# and theirs are nearly one setting. The global softmax has the server's rate of earlier sweeps.
FEDERATED: Grid = {"clients.lr": [2.0, 6.0, 18.0], "rounds": [500, 1500]}
HINGE: Grid = {"clients.lr": [0.7, 2.0, 6.0], "server.lr": [0.03, 0.1]}
GLOBAL: Grid = {"clients.lr": [8.0, 20.0, 50.0], "rounds": [1000, 3000]}
SCALES: Grid = {"method.scale": [10.0, 20.0]}
EPOCHS: Grid = {"clients.lr": [6.0, 18.0], "rounds": [500, 1500]}
SINGLE_STEPS: Grid = {"clients.lr": [6.0, 18.0], "rounds": [1000, 3000]}
CHOICES = {
    "table2": Choice(FEDERATED, 250, {"h-s": HINGE, "gs": GLOBAL}),
    "ours": Choice(
        {"clients.lr": [0.1, 0.3], **SCALES},
        200,
        {
            "ours-step": {"server.lr": [0.01, 0.03], **SCALES},
            "ours-mean": {"clients.lr": [0.2, 0.6], **SCALES},
        },
    ),
    "sasrec": Choice({"clients.lr": [0.003, 0.01], **SCALES}, 100),
    "figures": Choice(EPOCHS, 125, {"fedsgd": SINGLE_STEPS, "fedsgd-shuffled": SINGLE_STEPS}),
    "centralized": Choice(  # of 250 steps: 1.3 and 4 epochs
        {"clients.lr": [0.1, 0.3], "rounds": [300, 900]},
        100,
        {"gs": {"clients.lr": [0.01, 0.03], "rounds": [300, 900]}},
        still_held=0.0,
    ),
    "ablation": Choice(
        {"clients.lr": [5.0, 10.0, 20.0, 40.0]},
        200,
        {"temperature": {"clients.lr": [0.2, 0.6], **SCALES}},
    ),
}


def candidates(suite: str) -> dict[str, Candidate]:
    """The arms of a suite's file with their grids; rates fall, whatever the file says."""
    choice, found = CHOICES[suite], {}
    for name, variant in read_toml(str(_file(suite)))["variants"].items():
        changes = {key: value for key, value in variant.items() if key != "label"}
        in_one_place = overlay(read_toml(str(base_of(suite))), changes)["method"].get("centralized")
        changes = overlay(changes, FALLING_IN_ONE_PLACE if in_one_place else FALLING)
        changes = overlay(changes, {"eval": {"every": choice.every, **EVALUATED}})
        found[name] = Candidate(variant["label"], changes, choice.own.get(name, choice.grid))
    return found


def base_of(suite: str) -> Path:
    return _file(suite).parent / str(read_toml(str(_file(suite)))["base"])


def plan_of(
    suite: str,
    seeds: int,
    changes: Changes,
    only: Sequence[str] | None = None,
    *,
    turn: int = 0,
    tried: Mapping[tuple[str, str], Mapping[str, Any]] | None = None,
) -> TwoStage:
    """To tune and run a suite's arms; it writes `SUITE-tuning.json` and `SUITE.json`.

    tried: scores of points that are not to be tried again.
    """
    arms = candidates(suite)
    return TwoStage(
        suite,
        base_of(suite),
        {name: arms[name] for name in only or arms if name in arms},
        seeds=seeds,
        fraction=HELD_OUT,
        still_held=CHOICES[suite].still_held,
        changes=changes,
        into=only is not None,
        more=user_errors.of_run,
        whole=True,
        turn=turn,
        beside=list(arms),
        tried=tried or {},
    )


def _file(suite: str) -> Path:
    return CONFIGS / "dual_encoder" / f"{suite}.toml"
