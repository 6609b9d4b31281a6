"""Bibtex with one label a client (An et al. 2024, Table VI and Fig. 6): tune, run, keep.

    python benchmarks/fedalc.py --jobs 12

λ and the number of rounds of every arm are chosen on a fifth of the training instances.
Writes results/fedalc/bibtex-tuning.json and results/fedalc/bibtex.json.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from two_stage import Candidate, choose_and_run

ROOT = Path(__file__).resolve().parent.parent
HINGE = {"spreadout_margin": 1.0}
ARMS = {
    "flag": Candidate("FLAG", {"method": {"name": "flag"}}),
    "fedavg": Candidate("FedAvg", {"method": {"name": "baseline-1"}}),
    "fedaws": Candidate(
        "FedAwS",
        {"method": {"name": "fedaws", **HINGE}},
        {"method.strength": [0.01, 0.03, 0.1]},
    ),
    "fedalc": Candidate(
        "FedALC", {"method": {"name": "fedalc", **HINGE}}, {"method.strength": [1.0, 3.0, 10.0, 30.0]}
    ),
    "fedavg-fixed": Candidate("FedAvg-fixed", {"method": {"name": "baseline-2"}}),
    "fedalc-fixed": Candidate(
        "FedALC-fixed", {"method": {"name": "fedalc-fixed"}}, {"method.pull": [1.0, 5.0, 20.0]}
    ),
    "softmax": Candidate(
        "Softmax oracle (centralised)",
        {"method": {"name": "centralized"}, "clients": {"row_lr": 1.0}},
        {"method.scale": [10.0, 20.0]},
    ),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--out", type=Path, default=ROOT / "results" / "fedalc")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--jobs", type=int, default=1, help="runs side by side, a process each")
    parser.add_argument("--rounds", type=int, help="instead of the config's, for a quick look")
    a = parser.parse_args()
    choose_and_run(
        "bibtex",
        ROOT / "configs" / "fedalc" / "bibtex-base.toml",
        ARMS,
        a.out,
        seeds=a.seeds,
        device=a.device,
        jobs=a.jobs,
        more={"rounds": a.rounds} if a.rounds else None,
    )


if __name__ == "__main__":
    main()
