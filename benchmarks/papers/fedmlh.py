"""FedMLH against FedAvg on the shapes of its Table 1: tune, run, keep.

    python -m benchmarks.papers.fedmlh --shapes eurlex wiki31 --jobs 4
    python -m benchmarks.papers.fedmlh --shapes bibtex              # the real one
    python -m benchmarks.papers.fedmlh --shapes amztitle --law matched --seeds 1 --held 0.034 \
        --tuning-rounds 8 --jobs 2                                   # 295,000 instances
    python -m benchmarks.papers.fedmlh --shapes wiki31 amztitle --law matched --seeds 1 wiki31=3 \
        --once r4-b500 r4-b2000 r2-b1000 r8-b1000 --tuning-rounds 6 wiki31=12 --rounds 40   # in one pool
    python -m benchmarks.papers.fedmlh --curves RUNS --shapes amztitle   # of runs that were stopped
    python -m benchmarks.papers.fedmlh --report-only                     # Figures 3 to 5

The clients' rate and the number of rounds are chosen on a tenth of the training instances, three rates
for either method, the rounds as early stopping would; what was sent until then is the communication to
best. With `--law matched` labels are as rare as in the published sets (docs/data.md); otherwise as the
config says, by a power law with exponent 1. B and R are varied on Eurlex's and Wiki31's shapes. With
`--tuning-rounds N` rates are compared after N rounds, and the run that is tested finds its own best
round on the instances left out: one long run an arm. With `--settle` one that time ends is tested at its
best round so far. Writes
results/fedmlh/SHAPE.json or SHAPE-matched.json, SHAPE-tuning.json and SHAPE-curves.json, and a page with
the figures.
"""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from benchmarks.common.command import command, parser_of
from benchmarks.common.paths import CONFIGS, RESULTS
from benchmarks.common.record import write
from benchmarks.papers import fedmlh_figures
from benchmarks.papers.side_by_side import Kept, add_running, running_of
from benchmarks.papers.two_stage import Candidate, TwoStage, choose_and_run, refuse_unknown
from spreadout.config.experiment import Experiment
from spreadout.config.values import changes_of, overlay, read_toml
from spreadout.core.errors import UserError
from spreadout.core.types import Record
from spreadout.data.sources.shapes import keys_of
from spreadout.runs.folder import RunFolder

SHAPES = ("eurlex", "wiki31", "amztitle", "wikititle")  # of the paper, synthetic
RATES = (1e-3, 3e-3, 1e-2)
PLAIN: dict[str, Any] = {"eval": {"references": False}}  # a minute of every process at these sizes
OTHERS = {  # R and B beside the config's own: Figure 5
    "eurlex": ((4, 125), (4, 500), (2, 250), (8, 250)),
    "wiki31": ((4, 500), (4, 2000), (2, 1000), (8, 1000)),
    "bibtex": ((4, 20), (4, 80), (8, 40)),
}
PUBLISHED = {
    "eurlex": "eurlex-4k",
    "wiki31": "wiki10-31k",
    "amztitle": "lf-amazontitles-131k",
    "wikititle": "lf-wikiseealsotitles-320k",
}
NUMBERS: tuple[tuple[str, list[str], str], ...] = (
    ("seeds", ["3"], "of the second stage"),
    ("examples", [], "training instances, where there are too many"),
    ("rounds", [], "of the second stage, at most"),
    ("tuning-rounds", [], "compare rates after so many"),
    ("held", ["0.1"], "share of the instances left out"),
)
KEPT = ("P@1", "P@3", "P@5", "P@1 infrequent")


def arms(shape: str, rates: Sequence[float] = RATES) -> dict[str, Candidate]:
    """Both methods, with the config's own R and B; other R and B where that is cheap."""
    grid = {"clients.lr": list(rates)}
    found = {
        "fedmlh": Candidate("FedMLH", PLAIN, grid),
        "fedavg": Candidate("FedAvg", {**PLAIN, "method": {"name": "fedavg-bce"}}, grid),
    }
    for tables, buckets in OTHERS.get(shape, ()):
        changed: dict[str, Any] = {
            **PLAIN,
            "method": {"name": "fedmlh", "hash_tables": tables, "buckets": buckets},
        }
        label = f"FedMLH, R = {tables}, B = {buckets}"
        found[f"r{tables}-b{buckets}"] = Candidate(label, changed, grid)
    return found


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--shapes", nargs="+", choices=(*SHAPES, "bibtex"), default=list(SHAPES))
    parser.add_argument("--out", type=Path, default=RESULTS / "fedmlh")
    add_running(parser)
    for name, usual, said in NUMBERS:
        told = f"{said}; SHAPE=N: of one shape"
        parser.add_argument(f"--{name}", nargs="+", default=usual, metavar="N|SHAPE=N", help=told)
    parser.add_argument("--rates", type=float, nargs="+", default=list(RATES), help="of every arm")
    parser.add_argument("--once", nargs="+", default=[], metavar="ARM", help="of the first seed only")
    parser.add_argument("--only", nargs="+", metavar="ARM", help="keep other results")
    parser.add_argument("--law", choices=("drawn", "matched"), default="drawn", help="of labels")
    parser.add_argument(
        "--set", nargs="+", default=[], metavar="KEY=VALUE", help="of every arm's config"
    )
    parser.add_argument("--report", type=Path, default=Path("fedmlh.html"))
    parser.add_argument("--report-only", action="store_true")
    parser.add_argument("--curves", type=Path, metavar="RUNS", help="only read a --runs folder")
    a = parser.parse_args()
    if a.curves:
        for shape in a.shapes:
            keep_curves(shape, a.curves, a.out / f"{shape}-curves.json")
        return
    shapes = [] if a.report_only else a.shapes
    plans = [plan_of(shape, of_shape(a, shape), turn) for turn, shape in enumerate(shapes)]
    refuse_unknown(a.only, plans)
    refuse_unknown(a.once, plans, "--once")
    with running_of(a) as running:
        choose_and_run(plans, a.out, running)
    fedmlh_figures.write_page(a.out, a.report)


def of_shape(a: Namespace, shape: str) -> Namespace:
    """The options, each number the one that is meant for this shape."""
    found = {}
    for name, usual, _ in NUMBERS:
        key = name.replace("-", "_")
        found[key] = _number_of(f"--{name}", [*usual, *getattr(a, key)], shape)
    held = found["held"]
    if held is None or not 0 < held < 1:
        raise UserError(f"--held {held}: must be between 0 and 1")
    whole = {key: None if n is None else int(n) for key, n in found.items() if key != "held"}
    return Namespace(**{**vars(a), **whole, "held": held})


def _number_of(option: str, words: Sequence[str], shape: str) -> float | None:
    """`40 wiki31=60`: 40, but 60 for that shape."""
    found: float | None = None
    for word in sorted(words, key=lambda word: "=" in word):
        name, _, number = word.rpartition("=")
        if name not in ("", *SHAPES, "bibtex"):
            raise UserError(f"{option} {word}: is of none of {', '.join(SHAPES)}, bibtex")
        try:
            value = float(number)
        except ValueError:
            raise UserError(f"{option} {word}: must be a number") from None
        if not value > 0 or (option != "--held" and value % 1):
            raise UserError(f"{option} {word}: must be a whole number above 0")
        if name in ("", shape):
            found = value
    return found


def plan_of(shape: str, a: Namespace, turn: int = 0) -> TwoStage:
    """A shape's arms, as the options say."""
    changes = changes_of(a.set)
    if a.examples and shape in SHAPES:
        changes = overlay(fewer(a.examples), changes)
    if a.law == "matched" and shape in SHAPES:
        changes = overlay(matched(shape), changes)
    base, found = CONFIGS / "fedmlh" / f"{shape}.toml", arms(shape, a.rates)
    rounds = a.rounds or int(read_toml(str(base))["rounds"])
    return TwoStage(
        f"{shape}-matched" if a.law == "matched" else shape,
        base,
        {name: found[name] for name in a.only or found if name in found},
        seeds=a.seeds,
        fraction=a.held,
        changes=overlay(changes, {"rounds": a.tuning_rounds or rounds}),
        still_held=a.held if a.tuning_rounds else 0.0,
        long={"rounds": rounds} if a.tuning_rounds else None,
        into=a.only is not None,
        turn=turn,
        once=a.once,
    )


def matched(shape: str) -> dict[str, Any]:
    """Labels as rare as those of the published set."""
    keys = keys_of(PUBLISHED[shape])
    law = {name: keys[name] for name in ("law", "labels_per_example", "exponent", "head")}
    return {"data": {"source": {"name": "synthetic", **law}}}


def fewer(examples: int) -> dict[str, Any]:
    made = {"examples": examples, "test_examples": min(max(examples // 4, 1), 10_000)}
    return {"data": {"source": made}}


def _best(records: Sequence[Record]) -> float:
    """The best mean of P@1, P@3 and P@5: by it the rate is chosen."""
    return max(float(sum(record[f"P@{k}"] for k in (1, 3, 5))) for record in records)


def _tried(shape: str, arm: str, runs: Path) -> Iterator[tuple[Experiment, list[Record]]]:
    """Configs and evaluations of an arm's points: of those that ended, and of those cut short."""
    suite = f"fedmlh-{shape}"
    for key, one in Kept(runs, suite).runs.items():
        if one["arm"] == arm and key.startswith("tuning-") and "failed" not in one:
            yield Experiment.of(one["config"]), one["history"]
    for place in sorted((runs / suite).glob(f"tuning-{arm}-*/seed-0")):
        folder = RunFolder.open(place)
        yield Experiment.load(folder.config), folder.history()


def keep_curves(shape: str, runs: Path, out: Path) -> None:
    """Round by round, on held-out instances: of runs that were finished, or stopped for want of time."""
    found, examples = [], 0
    for arm, candidate in list(arms(shape).items())[:2]:
        tried = [
            (e, [record for record in history if record["round"]])
            for e, history in _tried(shape, arm, runs)
        ]
        begun = [(e, records) for e, records in tried if records]
        if not begun:
            raise UserError(f"{runs}: has no runs of {arm} on {shape}; run without --curves first")
        e, records = max(begun, key=lambda pair: _best(pair[1]))
        examples = getattr(e.data.source, "examples", 0)
        curve = {name: [record[name] for record in records] for name in ("round", *KEPT)}
        sent = [record["bytes_down"] + record["bytes_up"] for record in records]
        model = records[0]["bytes_up"] // records[0]["round"] // 4  # of as many clients
        made = {"arm": arm, "label": candidate.label, "model_bytes": model, "of_rounds": e.rounds}
        found.append({**made, "patience": e.eval.patience, "curve": {**curve, "bytes": sent}})
    write(out, {"examples": examples, "fraction": 0.1, "arms": found})


if __name__ == "__main__":
    command(main)
