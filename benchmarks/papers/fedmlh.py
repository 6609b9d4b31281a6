"""FedMLH against FedAvg on the shapes of its Table 1: tune, run, keep.

    python -m benchmarks.papers.fedmlh --shapes eurlex wiki31 --jobs 4
    python -m benchmarks.papers.fedmlh --shapes bibtex              # the real one
    python -m benchmarks.papers.fedmlh --curves RUNS --shapes amztitle   # of runs that were stopped

For runs of another machine, `--made-on RESULT COMMIT` names a result file of that machine.

The number of rounds is chosen on a tenth of the training instances, as early stopping would; what was
sent until then is the communication to best. B and R are varied on the first shape. Writes
results/fedmlh/SHAPE.json, SHAPE-tuning.json and SHAPE-curves.json.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.common.command import command, parser_of
from benchmarks.common.paths import CONFIGS, RESULTS
from benchmarks.common.record import read, write
from benchmarks.papers.suite import add_running
from benchmarks.papers.two_stage import Candidate, choose_and_run
from spreadout.config.experiment import Experiment
from spreadout.runs.folder import RunFolder

SHAPES = ("eurlex", "wiki31", "amztitle", "wikititle")  # of the paper, synthetic
KEPT = ("P@1", "P@3", "P@5", "P@1 infrequent")


def arms(shape: str) -> dict[str, Candidate]:
    """Both methods, with the config's own R and B; other R and B where that is cheap."""
    found = {
        "fedmlh": Candidate("FedMLH", {}),
        "fedavg": Candidate("FedAvg", {"method": {"name": "fedavg-bce"}}),
    }
    others = {"eurlex": ((4, 125), (4, 500), (2, 250), (8, 250)), "bibtex": ((4, 20), (4, 80), (8, 40))}
    if shape in others:
        for tables, buckets in others[shape]:
            changed: dict[str, Any] = {
                "method": {"name": "fedmlh", "hash_tables": tables, "buckets": buckets}
            }
            found[f"r{tables}-b{buckets}"] = Candidate(f"FedMLH, R = {tables}, B = {buckets}", changed)
    return found


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--shapes", nargs="+", choices=(*SHAPES, "bibtex"), default=list(SHAPES))
    parser.add_argument("--out", type=Path, default=RESULTS / "fedmlh")
    parser.add_argument("--seeds", type=int, default=3)
    add_running(parser)
    parser.add_argument("--examples", type=int, help="training instances, where there are too many")
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--curves", type=Path, metavar="RUNS", help="only read a --runs folder")
    parser.add_argument("--made-on", nargs=2, metavar=("RESULT", "COMMIT"))
    a = parser.parse_args()
    if a.curves:
        for shape in a.shapes:
            keep_curves(shape, a.curves, a.made_on, a.out / f"{shape}-curves.json")
        return
    more: dict[str, Any] = {"rounds": a.rounds} if a.rounds else {}
    for shape in a.shapes:
        choose_and_run(
            shape,
            CONFIGS / "fedmlh" / f"{shape}.toml",
            arms(shape),
            a.out,
            seeds=a.seeds,
            device=a.device,
            jobs=a.jobs,
            runs=a.runs,
            fraction=0.1,
            more=more | (fewer(a.examples) if a.examples and shape in SHAPES else {}),
        )


def fewer(examples: int) -> dict[str, Any]:
    made = {"name": "synthetic", "examples": examples, "test_examples": max(examples // 4, 1)}
    return {"data": {"source": made}}


def keep_curves(shape: str, runs: Path, made_on: Sequence[str] | None, out: Path) -> None:
    """Round by round, on held-out instances: of runs that were finished, or stopped for want of time."""
    found, examples = [], 0
    for arm, candidate in list(arms(shape).items())[:2]:
        folder = RunFolder.open(runs / f"{shape}-tuning" / f"{arm}-only" / "seed-0")
        records = [record for record in folder.history() if record["round"]]
        e = Experiment.load(folder.config)
        examples = getattr(e.data.source, "examples", 0)
        curve = {name: [record[name] for record in records] for name in ("round", *KEPT)}
        sent = [record["bytes_down"] + record["bytes_up"] for record in records]
        model = records[0]["bytes_up"] // records[0]["round"] // 4  # of as many clients
        made = {"arm": arm, "label": candidate.label, "model_bytes": model, "of_rounds": e.rounds}
        found.append({**made, "patience": e.eval.patience, "curve": {**curve, "bytes": sent}})
    stamp = {}
    if made_on:
        there = read(Path(made_on[0]))
        stamp = {"commit": made_on[1], **{name: there[name] for name in ("hardware", "versions")}}
    write(out, {**stamp, "examples": examples, "fraction": 0.1, "arms": found})


if __name__ == "__main__":
    command(main)
