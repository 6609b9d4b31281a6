"""Bibtex with one label a client (An et al. 2024, Table VI and Fig. 6): tune, run, keep.

    python -m benchmarks.papers.fedalc --jobs 12
    python -m benchmarks.papers.fedalc --bytes     # Table IV, from the ledger in the result file

λ, the clients' weights and the rounds of every arm are chosen on a fifth of the training instances.
Writes results/fedalc/bibtex-tuning.json and results/fedalc/bibtex.json.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from benchmarks.common.command import command, parser_of
from benchmarks.common.paths import CONFIGS, RESULTS
from benchmarks.common.record import read
from benchmarks.papers.suite import add_running
from benchmarks.papers.two_stage import Candidate, choose_and_run
from spreadout.config.values import read_toml
from spreadout.core.errors import UserError

BASE = CONFIGS / "fedalc" / "bibtex-base.toml"
HINGE = {"spreadout_margin": 1.0}
MINED = {"spreadout_form": "topk", "k": 5}
LONG = {"rounds": 500}
# Clients weigh 1/C in Algorithm 1; n_i/n is Eq. 5 of FedAwS.
WEIGHTING = {"method.weighting": ["uniform", "examples"]}
METRICS = read_toml(str(BASE))["eval"]["metrics"]
ARMS = {
    "flag": Candidate("FLAG", {"method": {"name": "flag"}}, WEIGHTING),
    "fedmlh": Candidate(
        "FedMLH, R = 4",
        # Its networks take features, so the lookup of 512 is their first layer.
        {
            "method": {"name": "fedmlh", "hash_tables": 4},
            "model": {"encoder": "mlp", "hidden": [512, 1024, 1024]},
            "eval": {"metrics": [name for name in METRICS if name != "mAP"]},  # it names the best only
        },
        {"method.buckets": [40, 80], **WEIGHTING},
    ),
    "fedavg": Candidate("FedAvg", {"method": {"name": "baseline-1"}}, WEIGHTING),
    "fedaws": Candidate(
        "FedAwS",
        {"method": {"name": "fedaws", **HINGE}},
        {"method.strength": [0.03, 0.1, 0.3], **WEIGHTING},
    ),
    "fedalc": Candidate(
        "FedALC",
        {"method": {"name": "fedalc", **HINGE}},
        {"method.strength": [3.0, 10.0, 30.0], **WEIGHTING},
    ),
    "fedaws-mined": Candidate(
        "FedAwS, K = 5",
        {"method": {"name": "fedaws", **MINED}},
        {"method.strength": [0.1, 0.3], **WEIGHTING},
    ),
    "fedalc-mined": Candidate(
        "FedALC, K = 5",
        {"method": {"name": "fedalc", **MINED, **HINGE, "mined_form": "hinge"}},
        {"method.strength": [3.0, 10.0, 30.0], **WEIGHTING},
    ),
    "fedavg-fixed": Candidate("FedAvg-fixed", {**LONG, "method": {"name": "baseline-2"}}, WEIGHTING),
    "fedalc-fixed": Candidate(
        "FedALC-fixed",
        {**LONG, "method": {"name": "fedalc-fixed"}},
        {"method.pull": [0.3, 1.0, 3.0], **WEIGHTING},
    ),
    "softmax": Candidate(
        "Softmax oracle (centralised)",
        {"method": {"name": "centralized"}, "clients": {"row_lr": 1.0}},
        {"method.scale": [5.0, 10.0, 20.0]},
    ),
}


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--out", type=Path, default=RESULTS / "fedalc")
    parser.add_argument("--seeds", type=int, default=3)
    add_running(parser)
    parser.add_argument("--rounds", type=int, help="instead of the config's, for a quick look")
    parser.add_argument("--bytes", action="store_true", help="only print what was sent, by whom")
    a = parser.parse_args()
    if a.bytes:
        print_bytes(a.out / "bibtex.json")
        return
    choose_and_run(
        "bibtex",
        BASE,
        ARMS,
        a.out,
        seeds=a.seeds,
        device=a.device,
        jobs=a.jobs,
        runs=a.runs,
        more={"rounds": a.rounds} if a.rounds else None,
    )


def print_bytes(path: Path) -> None:
    """Table IV: what the server and what the clients send in a round."""
    print(f"{'MiB a round of all clients':32}{'server':>10}{'clients':>10}{'once, up':>10}")
    if not path.is_file():
        raise UserError(f"{path}: is not there; run without --bytes first")
    for label, moved in a_round_of_all(read(path)):
        print(f"{label:32}", *(f"{moved[way]:9.2f}" for way in ("down", "up", "once_up")))


def a_round_of_all(made: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, float]]]:
    """Each federated arm's MiB in an average round, and of what was sent only once."""
    for arm in made["variants"]:
        moved, rounds = arm["bytes"], made["configs"][arm["name"]]["rounds"]
        if moved["participations"]:
            each = {way: (moved[way] - moved[f"once_{way}"]) / rounds for way in ("down", "up")}
            each["once_up"] = moved["once_up"]
            yield arm["label"], {way: value / 2**20 for way, value in each.items()}


if __name__ == "__main__":
    command(main)
