"""Does client-drift correction help here? FedAwS, FedALC and FedSS with 1, 5 and 20 local steps.

    python -m benchmarks.papers.drift digits --jobs 8
    python -m benchmarks.papers.drift bibtex --jobs 8

Plain averaging, FedProx, SCAFFOLD and FedDyn under one server (SGD at rate 1, as FedDyn needs it). Every
arm has equally many settings to choose from on a fifth of the training data, eight on digits and four on
Bibtex: rates, and where it has one, the strength of its pull. Writes results/drift/NAME-tuning.json and
results/drift/NAME.json.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from benchmarks.common.command import command, parser_of
from benchmarks.common.paths import CONFIGS, RESULTS
from benchmarks.papers.side_by_side import add_running, running_of
from benchmarks.papers.two_stage import Candidate, TwoStage, choose_and_run

SETS = ("digits", "bibtex")
STEPS = (1, 5, 20)
# The positive loss is flat beside a softmax of scale 20, and takes larger rates.
RATES = {
    "fedaws": [0.03, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4],
    "fedalc": [0.03, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4],
    "fedss": [0.003, 0.01, 0.02, 0.05, 0.1, 0.2, 0.4, 0.8],
}
PULLS = [0.01, 0.1]
METHODS: dict[str, dict[str, dict[str, Any]]] = {
    "digits": {
        "fedaws": {"name": "fedaws", "strength": 0.1},
        "fedalc": {"name": "fedalc", "strength": 1.0},
        "fedss": {"name": "fedss", "sampled_rows": 5},
    },
    "bibtex": {
        "fedaws": {"name": "fedaws", "spreadout_margin": 1.0, "strength": 0.05},
        "fedalc": {"name": "fedalc", "spreadout_margin": 1.0, "strength": 10.0},
        "fedss": {"name": "fedss", "sampled_rows": 16},
    },
}
LABELS = {"fedaws": "FedAwS", "fedalc": "FedALC", "fedss": "FedSS"}


def arms_of(data: str) -> dict[str, Candidate]:
    """Every method with every number of local steps and every correction: equally many settings each."""
    found = {}
    for method, options in METHODS[data].items():
        for steps in STEPS:
            changes: dict[str, Any] = {"method": options, "clients": {"local_steps": steps}}
            if method == "fedss":
                changes["clients"] = {"local_steps": steps, "row_lr": None}
            many = RATES[method] if data == "digits" else RATES[method][1::2]
            few = RATES[method][1::2] if data == "digits" else RATES[method][2::4]
            drifts: dict[str, tuple[list[Any], list[float]]] = {
                "plain": ([None], many),
                "fedprox": ([{"name": "fedprox", "mu": mu} for mu in PULLS], few),
                "scaffold": ([{"name": "scaffold"}], many),
                "feddyn": ([{"name": "feddyn", "alpha": alpha} for alpha in PULLS], few),
            }
            for drift, (settings, rates) in drifts.items():
                grid = {"clients.lr": rates, "clients.drift": settings}
                label = f"{LABELS[method]}, {steps} steps, {drift}"
                found[f"{method}-{steps}-{drift}"] = Candidate(label, changes, grid)
    return found


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("data", choices=SETS)
    parser.add_argument("--out", type=Path, default=RESULTS / "drift")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--rounds", type=int, help="instead of the config's, for a quick look")
    parser.add_argument("--only", default="", help="arms whose names contain this")
    add_running(parser)
    a = parser.parse_args()
    arms = {name: arm for name, arm in arms_of(a.data).items() if a.only in name}
    plan = TwoStage(
        a.data,
        CONFIGS / "drift" / f"{a.data}.toml",
        arms,
        seeds=a.seeds,
        changes={"rounds": a.rounds} if a.rounds else {},
    )
    with running_of(a) as running:
        choose_and_run([plan], a.out, running)


if __name__ == "__main__":
    command(main)
