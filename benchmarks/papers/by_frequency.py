"""Frequent and rare classes: a prior when classes are ranked, and its twins while they are trained.

    python -m benchmarks.papers.by_frequency --jobs 2                            # Bibtex, on a CPU
    python -m benchmarks.papers.by_frequency --shape amazoncat-13k --jobs 4      # … on a GPU
    python -m benchmarks.papers.by_frequency --shape amazon-670k --arms off prior by-size-prior

Every arm has three points, scored on a part of the training data that is held out: its own knob where it
has one, else the shape's (the rate of class rows on Bibtex, λ elsewhere). The best point of each is run
again with other seeds and scored on the test part. In both stages every arm keeps the same part of the
training data for validation: a prior's weight is found on it. Writes SHAPE-tuning.json and SHAPE.json
below results/by_frequency.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.common.command import command, parser_of
from benchmarks.common.paths import CONFIGS, RESULTS
from benchmarks.papers.side_by_side import add_running, running_of
from benchmarks.papers.two_stage import Candidate, Changes, TwoStage, choose_and_run
from spreadout.config.values import overlay
from spreadout.core.errors import UserError

HELD_OUT = 0.2  # of the training data, in both stages
SOFT = {"lr": 0.01, "row_lr": 0.01}  # of clients with a softmax: a large step is no gradient step


@dataclass(frozen=True)
class Shape:
    """A data set, what its arms share, and what is tuned where an arm has no knob of its own."""

    base: Path
    knob: str
    values: Sequence[float]
    more: Changes = field(default_factory=dict)  # than the base config says
    oracle: Changes = field(default_factory=dict)  # how training in one place differs
    sampled: Changes = field(default_factory=dict)  # how clients with ten rows more differ
    scales: Sequence[float] = (5.0, 10.0, 20.0)  # of softmaxes
    all_pairs: bool = True  # whether a sum over all pairs of classes can be afforded


FALLING = {"clients": {"lr_decay": "cosine"}, "server": {"lr_decay": "cosine"}}
METRICS = [f"{kind}@{k}" for kind in ("P", "PSP") for k in (1, 3, 5)]
METRICS += [f"P@{k} {part}" for part in ("frequent", "infrequent") for k in (1, 3, 5)]


def _extreme(name: str, rounds: int, strengths: Sequence[float], frequent: int) -> Shape:
    judged = {"every": 100, "metrics": METRICS, "frequent": frequent, "best_by": ["P@1", "P@3", "P@5"]}
    return Shape(
        CONFIGS / "extreme" / f"{name}.toml",
        "method.strength",
        strengths,
        overlay(FALLING, {"rounds": rounds, "eval": judged}),
        {"clients": {"batch": 4096 if name == "amazoncat-13k" else 2048, "row_lr": 1.0}},
        {"clients": {"row_lr": 1.0}},
        all_pairs=name == "amazoncat-13k",
    )


SHAPES = {
    "bibtex": Shape(
        CONFIGS / "fedaws" / "frequency-base.toml",
        "clients.row_lr",
        (0.3, 1.0, 3.0),
        {},
        {"clients": {**SOFT, "batch": 640}},  # as many examples a round as forty clients have
        {"clients": SOFT},
    ),
    "amazoncat-13k": _extreme("amazoncat-13k", 2000, (0.0003, 0.001, 0.003), 300),
    "wikilshtc-325k": _extreme("wikilshtc-325k", 2000, (0.003, 0.01, 0.03), 3000),
    "amazon-670k": _extreme("amazon-670k", 2500, (0.003, 0.01, 0.03), 3000),
}


def arms_of(shape: Shape) -> dict[str, Candidate]:
    """Every arm: FedAwS unless its label says otherwise."""

    def arm(label: str, changes: Changes, grid: Mapping[str, Sequence[Any]] | None = None) -> Candidate:
        return Candidate(label, overlay(shape.more, changes), grid or {shape.knob: shape.values})

    def fedaws(**keys: Any) -> Changes:
        return {"method": {"name": "fedaws", **keys}}

    by_size = {"clients": {"selection": "by_size"}}
    ten = overlay(shape.sampled, {"method": {"name": "fedss", "negatives": 10, "prior": 0.0}})
    central = overlay(shape.oracle, {"method": {"name": "centralized", "prior": 0.0}})
    scales = {"method.scale": shape.scales}
    found = {
        "off": arm("uniform cohorts, equal weights, no prior", fedaws()),
        "prior": arm("prior, τ by rank", fedaws(prior="auto")),
        "prior-likelihood": arm("prior, τ by likelihood", fedaws(prior="likelihood")),
        "margins": arm(
            "margins by frequency (LDAM)",
            fedaws(margin=0.5),
            {"method.margin_by_frequency": (0.1, 0.25, 0.5)},
        ),
        "weighted": arm("spreadout weighted by frequency", fedaws(weighted=True)),
        "both": arm(
            "Eqs. 7 and 8 together",
            fedaws(spreadout_form="both", k=10),
            {"method.mined_share": (0.2, 0.5, 0.8)},
        ),
        "examples": arm("uniform cohorts, weights n_i/n", fedaws(weighting="examples")),
        "drawn": arm(
            "cohorts by size, equal weights", {**fedaws(), "clients": {"selection": "weighted"}}
        ),
        "by-size": arm("cohorts by size, their weights", {**fedaws(weighting="examples"), **by_size}),
        "by-size-prior": arm(
            "cohorts by size, their weights, prior",
            {**fedaws(weighting="examples", prior="auto"), **by_size},
        ),
        "ten": arm("ten random rows (FedSS)", ten, scales),
        "ten-adjusted": arm(
            "ten random rows, logits adjusted, prior in closed form",
            overlay(ten, {"method": {"logit_adjustment": 1.0, "prior": "likelihood"}}),
            scales,
        ),
        "softmax": arm("softmax in one place", central, scales),
        "softmax-adjusted": arm(
            "softmax in one place, logits adjusted, prior in closed form",
            overlay(central, {"method": {"logit_adjustment": 1.0, "prior": "likelihood"}}),
            scales,
        ),
    }
    return {name: one for name, one in found.items() if name != "both" or shape.all_pairs}


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--shape", default="bibtex", choices=sorted(SHAPES))
    parser.add_argument("--arms", nargs="+", help="these only")
    parser.add_argument("--out", type=Path, default=RESULTS / "by_frequency")
    parser.add_argument("--seeds", type=int, default=3)
    add_running(parser)
    parser.add_argument("--rounds", type=int, help="instead of the shape's, for a quick look")
    a = parser.parse_args()
    every = arms_of(SHAPES[a.shape])
    if unknown := [name for name in a.arms or [] if name not in every]:
        raise UserError(f"--arms {unknown[0]}: is none of {', '.join(every)}")
    plan = TwoStage(
        a.shape,
        SHAPES[a.shape].base,
        {name: one for name, one in every.items() if name in (a.arms or every)},
        seeds=a.seeds,
        fraction=HELD_OUT,
        still_held=HELD_OUT,
        changes={"rounds": a.rounds} if a.rounds else {},
    )
    with running_of(a) as running:
        choose_and_run([plan], a.out, running)


if __name__ == "__main__":
    command(main)
