"""Table 2 and Figures 3 to 5 of Ning et al. (2021), and what goes beyond them: run, keep, draw.

    python -m benchmarks.papers.dual_encoder --choose --jobs 12   # settings chosen first, suite by suite
    python -m benchmarks.papers.dual_encoder --jobs 12            # runs the suites as their files are
    python -m benchmarks.papers.dual_encoder --references         # popularity, successors, item-kNN
    python -m benchmarks.papers.dual_encoder --report-only        # draws the page from the result files

Result files go to results/dual_encoder, one per suite; the page is drawn from them alone. Scores have
errors by users beside the deviation over seeds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.common.command import command, parser_of
from benchmarks.common.paths import CONFIGS, RESULTS
from benchmarks.common.record import read, write
from benchmarks.papers import dual_encoder_choice, user_errors
from benchmarks.papers.drawing import chart, table, write_report
from benchmarks.papers.dual_encoder_choice import HELD_OUT
from benchmarks.papers.published import figures_of
from benchmarks.papers.side_by_side import add_running, running_of
from benchmarks.papers.suite import keep, run_suites
from benchmarks.papers.two_stage import choose_and_run, refuse_unknown, tried_points
from spreadout.config.experiment import Experiment
from spreadout.config.values import changes_of
from spreadout.data.load import load_data
from spreadout.evaluation.references.compute import Split, references_of
from spreadout.report.charts import Line
from spreadout.runs.compare import Suite

SUITES = tuple(dual_encoder_choice.CHOICES)
RECALLS = ("R@1", "R@5", "R@10")
LOSSES = ("BS", "BS+S", "H+S", "GS")
FEDERATED = figures_of("dual_encoder-table2")
CENTRALIZED = figures_of("dual_encoder-table2-centralized")
Made = Mapping[str, Any]  # a result file


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--suites", nargs="+", choices=SUITES, default=list(SUITES))
    parser.add_argument("--out", type=Path, default=RESULTS / "dual_encoder")
    parser.add_argument("--report", type=Path, default=Path("dual_encoder.html"))
    parser.add_argument("--report-only", action="store_true")
    parser.add_argument(
        "--only", nargs="+", metavar="ARM", help="run these again, keep the other results"
    )
    parser.add_argument("--choose", action="store_true", help="tune every arm on validation data first")
    parser.add_argument(
        "--keep-points",
        action="store_true",
        help="with --choose: points of SUITE-tuning.json with the same settings are not tried again",
    )
    parser.add_argument("--seeds", type=int, default=3, help="of arms that are tuned first")
    parser.add_argument("--references", action="store_true", help="only what to compare with")
    parser.add_argument("--set", nargs="+", default=[], metavar="KEY=VALUE", help="of every arm")
    add_running(parser)
    a = parser.parse_args()
    if a.references:
        keep_references(a.out / "references.json")
        return
    if a.choose:
        chosen = (a.seeds, changes_of(a.set), a.only)
        plans = [
            dual_encoder_choice.plan_of(
                name,
                *chosen,
                turn=turn,
                tried=tried_points(a.out / f"{name}-tuning.json") if a.keep_points else None,
            )
            for turn, name in enumerate(a.suites)
        ]
        refuse_unknown(a.only, plans)
        with running_of(a) as running:
            choose_and_run(plans, a.out, running)
    elif not a.report_only:
        suites = [
            Suite.load([str(CONFIGS / "dual_encoder" / f"{name}.toml")], None, a.set)
            for name in a.suites
        ]
        if a.only:
            suites = [only(suite, a.only) for suite in suites]
        with running_of(a) as running:
            every = run_suites(suites, running, user_errors.of_run)
            for name, suite, kept in zip(a.suites, suites, every, strict=True):
                keep(suite, kept, a.out / f"{name}.json", into=bool(a.only))
    held = {name: a.out / f"{name}.json" for name in SUITES}
    made = {name: read(path) for name, path in held.items() if path.is_file()}
    about = "MovieLens-1M, next movie, 16 dimensions"
    write_report(a.report, "Federated dual encoders", about, sections_of(made))


def keep_references(out: Path) -> None:
    """Popularity, the commonest successor and item-kNN on the federated and on the centralised split:
    on the test part, and where settings are chosen, on the validation part."""
    held: tuple[tuple[str, str, Split], ...] = (
        ("users", "base", "test"),
        ("examples", "centralized-base", "test"),
        ("validation users", "base", "validation"),
        ("validation examples", "centralized-base", "validation"),
    )
    found, errors = {}, {}
    for name, config, split in held:
        part = [f"data.validation_fraction={HELD_OUT}"] if split == "validation" else []
        for ties in ("random",) if split == "validation" else ("random", "file"):
            path = str(CONFIGS / "dual_encoder" / f"{config}.toml")
            e = Experiment.load(path, [f"data.source.ties={ties}", *part])
            data = load_data(e.data, e.seed)
            made = references_of(data, e.eval.metrics, split, seconds=3600.0)
            found[f"{name}, ties {ties}"] = {kind: one.metrics for kind, one in made.items()}
            scored = data.scored(split)
            if ties == "random" and scored is not None and scored.user is not None:
                by_user = user_errors.of_item_knn(data, scored)
                errors[f"{name}, ties {ties}"] = {"item-kNN": by_user}
            print(f"{name}, ties {ties}: made", flush=True)
    what = (
        "trained on the training part, scored on the test part or, where it says so, the validation part"
    )
    write(out, {"what": what, "references": found, "user_errors": errors})


def only(suite: Suite, names: Sequence[str]) -> Suite:
    """The suite with only these of its variants."""
    chosen = {name: suite.variants[name] for name in names}
    return Suite(suite.name, suite.seeds, chosen, suite.labels)


def sections_of(made: Mapping[str, Made]) -> list[str]:
    """Of the page: what the result files that are there suffice for."""
    sections = []
    halves = [made.get(name, {"variants": []}) for name in ("table2", "centralized")]
    both = all({v["label"] for v in half["variants"]} >= set(LOSSES) for half in halves)
    if both:
        sections += [drop_table(*halves)]
    if "figures" in made:
        sections += [figures_3_and_4(made)]
    if both:
        sections += [figure_5(*halves)]
    for name, title in (("ablation", "What made the difference"), ("ours", "Beyond the paper")):
        if name in made:
            sections += [f"<h2>{title}</h2>", plain_table(made[name])]
    return sections


def drop_table(federated: Made, centralized: Made) -> str:
    """Table 2: recalls in one place and federated, the share lost, and the paper's numbers beside."""
    rows = []
    for loss in LOSSES:
        here, there = mean_of(federated, loss), mean_of(centralized, loss)
        for i, name in enumerate(RECALLS):
            lost = drop(there[name], here[name])
            said = drop(CENTRALIZED[loss][i], FEDERATED[loss][i])
            label = f"{loss}, {name}" if i == 0 else name
            cells = (
                f"<b>{there[name]:.2f}</b>",
                f"<b>{here[name]:.2f}</b>",
                f"<b>{100 * lost:.1f} %</b>",
                f"{CENTRALIZED[loss][i]:.2f}",
                f"{FEDERATED[loss][i]:.2f}",
                f"{100 * said:.1f} %",
            )
            rows.append((label, cells))
    head = ("in one place", "federated", "drop", "paper: in one place", "federated", "drop")
    note = (
        "Recall in percent, means over seeds. In one place the test part is a tenth of the examples; "
        "federated it is a tenth of the users, so the two columns differ in their test sets too, as in "
        "the paper. Drop is (R_c − R_f) / R_c."
    )
    return f"<h2>Table 2</h2>{table(head, rows)}<p class=note>{note}</p>"


def figures_3_and_4(made: Mapping[str, Made]) -> str:
    curves = {v["label"]: v["curve"] for v in made["figures"]["variants"]}
    if "centralized" in made:
        curves["in one place"] = next(
            v["curve"] for v in made["centralized"]["variants"] if v["label"] == "BS"
        )
    figures = []
    for caption, labels in (
        ("Figure 3: one local step", ("FedSGD", "FedSGD, shuffled", "in one place")),
        ("Figure 4: one local epoch", ("FedAvg", "Federated-Shuffled", "in one place")),
    ):
        chosen = {label: curves[label] for label in labels if label in curves}
        figures.append(over_training(caption, chosen, "batch R@1"))
    title = "<h2>Batch softmax on users' own data, and on shuffled data</h2>"
    return f"{title}<section class=grid2>{''.join(figures)}</section>"


def figure_5(federated: Made, centralized: Made) -> str:
    figures = []
    for letter, loss in zip("abcd", LOSSES, strict=True):
        curves = {}
        for label, source in (("in one place", centralized), ("federated", federated)):
            curves[label] = next(v["curve"] for v in source["variants"] if v["label"] == loss)
        figures.append(over_training(f"Figure 5({letter}): {loss}", curves, "R@10"))
    return f"<h2>Global recall by loss</h2><section class=grid2>{''.join(figures)}</section>"


def over_training(caption: str, curves: Mapping[str, Made], metric: str) -> str:
    """Curves over the share of training: rounds and steps in one place have no common unit."""
    lines = []
    for label, curve in curves.items():
        share = [100 * r / curve["round"][-1] for r in curve["round"]]
        values = curve[metric]
        lines.append(Line(label, share, values))
    top = 1.05 * max(max(line.mean) for line in lines)
    return chart(caption, lines, "share of training (%)", f"{metric} (%)", (0.0, top))


def plain_table(made: Made) -> str:
    names = list(made["variants"][0]["metrics"])
    rows = []
    for v in made["variants"]:
        found = ((score["mean"], score["spread"]) for score in v["metrics"].values())
        cells = [f"<b>{mean:.2f}</b> <small>± {spread or 0:.2f}</small>" for mean, spread in found]
        rows.append((v["label"], cells))
    return table(names, rows)


def mean_of(made: Made, label: str) -> dict[str, float]:
    variant = next(v for v in made["variants"] if v["label"] == label)
    return {name: score["mean"] for name, score in variant["metrics"].items()}


def drop(centralized: float, federated: float) -> float:
    return (centralized - federated) / centralized


if __name__ == "__main__":
    command(main)
