"""How much FedALC's and FedAwS's knobs matter (An et al. 2024, Figs. 7 and 8): one at a time.

    python -m benchmarks.papers.sensitivity --sets bibtex --jobs 12
    python -m benchmarks.papers.sensitivity --linear    # the default network for words, on a CPU

λ of both methods, the margin ν, invented entries (`dummies`), and noise on the table's step (DP, §IV-E).
Three seeds, scored on a fifth of the training instances with their curves; nothing is chosen by it.
Writes results/fedalc/SET-sensitivity.json; with --linear, SET-linear-sensitivity.json.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.common.command import command, parser_of
from benchmarks.common.paths import RESULTS
from benchmarks.papers.correlations import LINEAR, PLAIN, SCALED, SETS, base_of, on_ladder, study_of
from benchmarks.papers.side_by_side import add_running, running_of
from benchmarks.papers.suite import keep, run_suites
from benchmarks.papers.two_stage import Changes, experiment_of
from spreadout.runs.compare import Suite

HELD: Changes = {
    "data": {"validation_fraction": 0.2},
    "eval": {"split": "validation", "references": False},
}
AWS: dict[str, Any] = {"name": "fedaws", "spreadout_form": "hinge", "spreadout_margin": 1.0}
ALC: dict[str, Any] = {**AWS, "name": "fedalc"}
NOISED: dict[str, Any] = {**ALC, "normalize": False, "strength": 10.0, "table_clip": 0.1}
MARGINS = (0.5, 0.8, 1.0, 1.2, 1.5)
DUMMIES = (0, 5, 20, 50)
NOISES = (0.0, 0.3, 1.0, 3.0)  # in units of the clip


def variants() -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Names, labels and methods; clients are weighed by their examples where nothing else is said."""
    for strength in (*PLAIN, *on_ladder(PLAIN, 2)[-2:]):
        yield f"fedaws-{strength:g}", f"FedAwS, λ = {strength:g}", {**AWS, "strength": strength}
    for strength in (*SCALED, *on_ladder(SCALED, 2)[-2:]):
        yield f"fedalc-{strength:g}", f"FedALC, λ = {strength:g}", {**ALC, "strength": strength}
    for margin in MARGINS:
        for name, label, method, strength in (("aws", "FedAwS", AWS, 0.1), ("alc", "FedALC", ALC, 10.0)):
            chosen = {**method, "strength": strength, "spreadout_margin": margin}
            yield f"margin-{name}-{margin:g}", f"{label}, ν = {margin:g}", chosen
    for dummies in DUMMIES:
        # Weights by examples would tell the size that these hide.
        chosen = {**ALC, "strength": 10.0, "dummies": dummies, "weighting": "uniform"}
        yield f"dummies-{dummies}", f"FedALC, clients alike, {dummies} invented entries each", chosen
    for noise in NOISES:
        yield (
            f"noise-{noise:g}",
            f"FedALC, σ, noise {noise:g} on the table",
            {**NOISED, "table_noise": noise},
        )


def suite_of(name: str, seeds: int, rounds: int | None = None, linear: bool = False) -> Suite:
    base, found, labels = base_of(name, linear), {}, {}
    for variant, label, method in variants():
        changes: Changes = {"method": {"weighting": "examples", **method}}
        changes |= {"rounds": rounds} if rounds else {}
        found[variant], labels[variant] = (
            experiment_of(base, variant, changes, HELD),
            label,
        )
    return Suite(study_of(name, linear, "sensitivity"), tuple(range(seeds)), found, labels)


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--sets", nargs="+", choices=SETS, default=["bibtex"])
    parser.add_argument("--linear", action="store_true", help=LINEAR)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--out", type=Path, default=RESULTS / "fedalc")
    parser.add_argument("--rounds", type=int, help="instead of the config's, for a quick look")
    add_running(parser)
    a = parser.parse_args()
    suites = [suite_of(name, a.seeds, a.rounds, a.linear) for name in a.sets]
    with running_of(a) as running:
        for suite, kept in zip(suites, run_suites(suites, running), strict=True):
            keep(suite, kept, a.out / f"{suite.name}.json")


if __name__ == "__main__":
    command(main)
