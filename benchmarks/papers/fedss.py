"""Omniglot under FedSS and its rivals: run the arms, keep, draw (001, §4.3, Figs. 5 and 8).

    python -m benchmarks.papers.fedss --jobs 12            # runs configs/fedss/omniglot.toml
    python -m benchmarks.papers.fedss --studies drawings-20 drawings-5 matched mobilenet --jobs 12
    python -m benchmarks.papers.fedss --report-only        # draws the page from the result files

A study gives every arm equally many row rates to choose from on left-out alphabets and up to 3,000
rounds, then trains it as chosen with three seeds: `fedss_arms.py`. Beside the scores it keeps how well
the arms know their own training examples (A.5).

Fig. 5 is MAP@10 against the class layer's parameters a client gets; Fig. 8 the class layer beside the
encoder as classes grow. The page also has what the server learns from requests, for every way of drawing
negatives, with what each costs in accuracy, and the gradient study of A.3 where its file is there.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from benchmarks.common.command import command, parser_of
from benchmarks.common.paths import CONFIGS, RESULTS
from benchmarks.common.record import read, write
from benchmarks.papers import fedss_arms, gradient_noise
from benchmarks.papers.drawing import chart, table
from benchmarks.papers.side_by_side import add_running, running_of
from benchmarks.papers.suite import ended, keep, run_suites
from benchmarks.papers.two_stage import TwoStage, choose_and_run, refuse_unknown
from spreadout.config.experiment import Experiment
from spreadout.config.values import changes_of, overlay
from spreadout.data.held_out import Examples
from spreadout.data.load import load_data
from spreadout.evaluation.evaluate import evaluate
from spreadout.evaluation.pooled import pool_of
from spreadout.models.nn.images import ConvNet, ResNet, mobilenet_v3_large, mobilenet_v3_small
from spreadout.report.charts import Line
from spreadout.report.document import document
from spreadout.runs.audit import foreseen
from spreadout.runs.compare import Suite
from spreadout.runs.result import Result

CLASSES, OWN, DIM = 964, 20, 64
SHARES = {"3 %": 29, "4 %": 39, "6 %": 58, "10 %": 96}
DRAWS = {
    "fresh": "FedSS, 6 %",
    "fixed": "FedSS, 6 %, negatives fixed per client",
    "popular": "FedSS, 6 %, negatives by popularity",
}
LOOKS = (1, 2, 3, 10)  # requests after which the observer is asked
Made = Mapping[str, Any]


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--out", type=Path, default=RESULTS / "fedss")
    parser.add_argument("--report", type=Path, default=Path("fedss.html"))
    parser.add_argument("--report-only", action="store_true")
    add_running(parser)
    parser.add_argument("--set", nargs="+", default=[], metavar="KEY=VALUE")
    told = "begun in this order, in one pool of processes"
    parser.add_argument("--studies", nargs="+", choices=fedss_arms.STUDIES, default=[], help=told)
    parser.add_argument("--seeds", type=int, default=3, help="of the studies")
    parser.add_argument("--only", nargs="+", metavar="ARM", help="of the studies; keep other results")
    parser.add_argument("--rounds", type=int, help="of the second stage of reduced studies")
    a = parser.parse_args()
    if a.studies:
        changes = changes_of(a.set)
        plans = [
            plan_of(study, a.seeds, changes, a.only, a.rounds, turn)
            for turn, study in enumerate(a.studies)
        ]
        refuse_unknown(a.only, plans)
        with running_of(a) as running:
            choose_and_run(plans, a.out, running)
    elif not a.report_only:
        suite = Suite.load([str(CONFIGS / "fedss" / "omniglot.toml")], None, a.set)
        with running_of(a) as running:
            (kept,) = run_suites([suite], running)
            keep(suite, kept, a.out / "omniglot.json")
        if len(ended(suite, kept)) == len(suite.variants):
            observe(read(a.out / "omniglot.json"), a.out / "requests.json")
    tables, figures = [], [figure_8()]
    if (a.out / "gradients.json").is_file():
        noise = read(a.out / "gradients.json")
        figures.append(gradient_noise.figure(noise["results"]))
    if (a.out / "omniglot.json").is_file():
        made = read(a.out / "omniglot.json")
        figures.insert(0, figure_5(made))
        tables = [arms_table(made)]
    if (a.out / "requests.json").is_file():
        tables.append(requests(read(a.out / "requests.json")))
    for study in fedss_arms.STUDIES:
        if (a.out / f"{study}.json").is_file():
            found = read(a.out / f"{study}.json")
            tables.append(f"<h2>{study}</h2>{arms_table(found)}")
            figures.append(by_bytes(study, found))
    sections = [*tables, f"<h2>Figures</h2><section class=grid2>{''.join(figures)}</section>"]
    about = "Omniglot, 964 classes trained, 659 others retrieved, 20 classes a client"
    a.report.write_text(document("Federated sampled softmax", about, sections), encoding="utf-8")
    print(f"wrote {a.report}")


def plan_of(
    study: str,
    seeds: int,
    changes: dict[str, Any],
    only: list[str] | None = None,
    rounds: int | None = None,
    turn: int = 0,
) -> TwoStage:
    """Choose on whole alphabets, run, and look at how well the runs know what they were trained on."""
    left_out = {"data": {"hold_out": "users"}}
    arms = fedss_arms.arms(study)
    given = fedss_arms.rounds_of(study)
    return TwoStage(
        study,
        fedss_arms.BASE,
        {name: arms[name] for name in only or arms if name in arms},
        seeds=seeds,
        changes=overlay(overlay(left_out, fedss_arms.changes_of(study)), changes),
        long=None if given is None else {"rounds": rounds or given},
        into=only is not None,
        more=fit_of,
        turn=turn,
    )


def fit_of(result: Result, experiment: Experiment) -> dict[str, Any]:
    """A.5: top-1 accuracy on the examples that a run was trained on."""
    pool = pool_of(load_data(experiment.data, experiment.seed).train)
    trained = Examples(pool.inputs, pool.labels)
    return {"fit": evaluate(result.predictor.model, result.predictor.state, trained, ["P@1"]).metrics}


def by_bytes(study: str, made: Made) -> str:
    """Figures 3 and 4: MAP@10 by what a client has got, round after round."""
    lines = []
    for arm in made["variants"]:
        each = arm["bytes_per_client_round"]["down"]
        if arm["bytes"]["participations"]:
            sent = [each * round / 2**20 for round in arm["curve"]["round"]]
            lines.append(Line(arm["label"], sent, arm["curve"]["MAP@10"]))
    return chart(f"{study}: accuracy by bytes", lines, "MiB down, a client in every round", "MAP@10 (%)")


def arms_table(made: Made) -> str:
    rows = []
    for arm in made["variants"]:
        scores = [f"{m['mean']:.1f} ± {m['spread'] or 0:.1f}" for m in arm["metrics"].values()]
        moved = arm["bytes"]
        visits = moved["participations"]
        layer = f"{moved['rows_down'] / visits / 1024:.1f}" if visits else "–"
        rows.append((arm["label"], [*scores, layer]))
    head = [*made["variants"][0]["metrics"], "class rows down, KiB a client and round"]
    return f"<h2>Arms</h2>{table(head, rows)}"


def figure_5(made: Made) -> str:
    """MAP@10 against how many numbers of the class layer a client gets."""
    found = {arm["label"]: arm["metrics"]["MAP@10"]["mean"] for arm in made["variants"]}
    lines = []
    for name in ("FedSS", "NegOnly"):
        values = [found[f"{name}, {share}"] for share in SHARES]
        sizes = [DIM * rows for rows in SHARES.values()]
        lines.append(Line(name, sizes, values))
    span = [DIM * OWN, DIM * CLASSES]
    for label in ("PosOnly, 2 %", "FedAwS with softmax, 2 %", "FullSoftmax", "Centralized"):
        level = [found[label]] * 2
        lines.append(Line(label, span, level))
    title = "Figure 5: accuracy by class layer"
    return chart(title, lines, "numbers of the class layer sent", "MAP@10 (%)", x_log=True)


def figure_8() -> str:
    """The class layer's numbers as classes grow, beside those of the encoders, both on log scales."""
    steps = [10**k for k in range(2, 7)]
    values = [DIM * classes for classes in steps]
    lines = [Line("class layer, d = 64", steps, values)]
    with torch.device("meta"):
        encoders = {
            "convnet": ConvNet(3, 64, DIM),
            "resnet20": ResNet(20, 3, DIM),
            "mobilenet_v3_small": mobilenet_v3_small(3, 224, DIM),
            "mobilenet_v3_large": mobilenet_v3_large(3, 224, DIM),
        }
    for name, encoder in encoders.items():
        level = [sum(p.numel() for p in encoder.parameters())] * len(steps)
        lines.append(Line(name, steps, level))
    title = "Figure 8: where the parameters are"
    return chart(title, lines, "classes", "parameters", x_log=True, y_log=True)


def observe(made: Made, out: Path) -> None:
    """What an observer knows after some requests, by how negatives are drawn; with MAP@10."""
    found = {arm["label"]: arm["metrics"]["MAP@10"] for arm in made["variants"]}
    rows = []
    for draw, label in DRAWS.items():
        changes = ["method.sampled_rows=58", f"method.draw={draw}"]
        looks = foreseen(str(CONFIGS / "fedss" / "omniglot-base.toml"), changes, 120).looks()
        seen = {
            look.requests: {
                "sure": round(100 * look.confidence, 1),
                "exposed": round(100 * look.exposed, 1),
            }
            for look in looks
            if look.requests in LOOKS
        }
        rows.append({"draw": draw, "after": seen, "MAP@10": found[label]})
    write(out, {"sampled_rows": 58, "own": OWN, "classes": CLASSES, "draws": rows})


def requests(made: Made) -> str:
    rows = []
    for one in made["draws"]:
        seen = one["after"].values()
        last = list(seen)[-1]
        cells = [*(f"{look['sure']:.0f} %" for look in seen), f"{last['exposed']:.0f} %"]
        rows.append((one["draw"], [*cells, f"{one['MAP@10']['mean']:.1f}"]))
    head = [*(f"sure after {t}" for t in LOOKS), f"exposed after {LOOKS[-1]}", "MAP@10"]
    return f"<h2>What the server learns from requests</h2>{table(head, rows)}"


if __name__ == "__main__":
    command(main)
