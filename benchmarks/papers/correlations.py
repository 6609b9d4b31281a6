"""Does it pay to know which labels occur together (An et al. 2024), and when? One grid for all answers.

    python -m benchmarks.papers.correlations --sets bibtex delicious --jobs 12
    python -m benchmarks.papers.correlations --linear    # the default network for words, on a CPU

An arm says how a pair of labels is weighed in the server's push (alike as in FedAwS, by Remark 2, by σ
of Eq. 9, by γ of Eq. 10, by γ with a floor), what the push is (hinge or −d²), over which pairs (all, or
the five nearest), and how clients are weighed (alike, or by their examples). Every arm is given equally
many λ on a fifth of the training instances, and its best is trained on all of them with each seed.

Writes results/fedalc/SET-correlations-tuning.json and SET-correlations.json; with --linear,
SET-linear-correlations….
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.common.command import command, parser_of
from benchmarks.common.paths import CONFIGS, RESULTS
from benchmarks.papers.side_by_side import add_running, running_of
from benchmarks.papers.two_stage import Candidate, TwoStage, add_extend, choose_and_run, done_before
from spreadout.config.values import changes_of, overlay

SETS = ("bibtex", "delicious", "eurlex-shape")
# Rows of γ sum to 1 and those of equal weights to C − 1, so a λ of one is about a hundred of the other.
LADDER = (0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0, 1000.0, 3000.0)
PLAIN, SCALED = LADDER[3:8], LADDER[7:12]
MINED_HIGHER = 2  # rungs: a hinge over five neighbours pushes a row less than one over all pairs
# Rungs: where equal weights of all pairs sum to more.
MORE_CLASSES = {"delicious": -1, "eurlex-shape": -1}
WEIGHED: Mapping[str, tuple[str, dict[str, Any], Sequence[float]]] = {
    "equal": ("FedAwS", {"name": "fedaws"}, PLAIN),
    "remark2": ("FedAwS, Remark 2", {"name": "fedaws", "weighted": True}, PLAIN),
    "sigma": ("FedALC, σ", {"name": "fedalc", "normalize": False}, SCALED),
    "gamma": ("FedALC, γ", {"name": "fedalc"}, SCALED),
    "floor": ("FedALC, γ, floor 0.1", {"name": "fedalc", "weight_floor": 0.1}, SCALED),
}
PUSHED: Mapping[str, tuple[str, dict[str, Any]]] = {
    "all-hinge": ("all pairs, hinge", {"spreadout_form": "hinge", "spreadout_margin": 1.0}),
    "all-far": ("all pairs, −d²", {"spreadout_form": "far"}),
    "k5-hinge": (
        "K = 5, hinge",
        {"spreadout_form": "topk", "k": 5, "mined_form": "hinge", "spreadout_margin": 1.0},
    ),
    "k5-far": ("K = 5, −d²", {"spreadout_form": "topk", "k": 5, "mined_form": "far"}),
}
CLIENTS = {"uniform": "clients alike", "examples": "by examples"}
LINEAR = "the linear network that words get by default, small enough for a CPU"


def base_of(name: str, linear: bool = False) -> Path:
    """The config that all arms on a set change: the paper's network, or the linear one."""
    return CONFIGS / "fedalc" / f"{study_of(name, linear)}-base.toml"


def study_of(name: str, linear: bool, part: str = "") -> str:
    """What its files are called."""
    return "-".join(filter(None, (name, "linear" if linear else "", part)))


def on_ladder(values: Sequence[float], rungs: int) -> Sequence[float]:
    """As many λ, so many rungs higher."""
    first = LADDER.index(values[0]) + rungs
    return LADDER[first : first + len(values)]


def middle_of(values: Sequence[Any], points: int) -> Sequence[Any]:
    """So many of them, from their middle."""
    first = max(0, (len(values) - points) // 2)
    return values[first : first + points]


def around(values: Sequence[float], points: int) -> Sequence[float]:
    """So many rungs about the middle of these λ, beyond both ends where there are not as many."""
    first = LADDER.index(values[0]) + (len(values) - points) // 2
    return LADDER[first : first + points]


def arms(
    pushed: Sequence[str], points: int, weighed: Sequence[str] = (), name: str = "bibtex"
) -> dict[str, Candidate]:
    """Every combination; points: how many λ each is given, from the middle of its list."""
    found = {}
    for kind in weighed or WEIGHED:
        method, changes, strengths = WEIGHED[kind]
        for push in pushed:
            pairs, form = PUSHED[push]
            rungs = MINED_HIGHER if push == "k5-hinge" else 0
            if strengths is PLAIN and push.startswith("all"):
                rungs = MORE_CLASSES.get(name, 0)
            some = around(on_ladder(strengths, rungs), points)
            for weighting, said in CLIENTS.items():
                found[f"{kind}-{push}-{weighting}"] = Candidate(
                    f"{method}; {pairs}; {said}",
                    {"method": {**changes, **form, "weighting": weighting}},
                    {"method.strength": some},
                )
    return found


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--sets", nargs="+", choices=SETS, default=["bibtex"])
    parser.add_argument("--pushed", nargs="+", choices=tuple(PUSHED), default=list(PUSHED))
    parser.add_argument("--weighed", nargs="+", choices=tuple(WEIGHED), default=list(WEIGHED))
    parser.add_argument("--points", type=int, choices=(1, 3, 5, 7), default=5, help="λ of every arm")
    parser.add_argument("--linear", action="store_true", help=LINEAR)
    parser.add_argument("--out", type=Path, default=RESULTS / "fedalc")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--set", nargs="+", default=[], metavar="KEY=VALUE", help="of every arm")
    add_running(parser)
    add_extend(parser)
    a = parser.parse_args()
    plans = [
        TwoStage(
            study_of(name, a.linear, "correlations"),
            base_of(name, a.linear),
            arms(a.pushed, a.points, a.weighed, name),
            seeds=a.seeds,
            whole=a.linear,
            changes=overlay(changes_of(a.set), {"rounds": a.rounds} if a.rounds else {}),
            into=a.extend,
            done=done_before(a.out / f"{study_of(name, a.linear, 'correlations')}.json", a),
        )
        for name in a.sets
    ]
    with running_of(a) as running:
        choose_and_run(plans, a.out, running)


if __name__ == "__main__":
    command(main)
