"""Run a comparison and keep its small result file: table, resolved configs, commit, hardware.

python -m benchmarks.papers.suite digits-demo --out results/digits/demo.json
python -m benchmarks.papers.suite configs/fedaws/bibtex.toml --out results/bibtex/fedaws.json
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from benchmarks.common.command import command, parser_of
from benchmarks.common.record import read, write
from benchmarks.papers.side_by_side import (
    Job,
    Kept,
    Made,
    More,
    Running,
    add_running,
    run_plans,
    running_of,
)
from spreadout.config.experiment import Experiment
from spreadout.config.sound import data_of
from spreadout.core.errors import UserError
from spreadout.evaluation import metrics
from spreadout.evaluation.evaluate import frequencies
from spreadout.report.page import write_page
from spreadout.runs.arms import Arm, as_json, gather, shown
from spreadout.runs.compare import Suite
from spreadout.runs.folder import RunFolder


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("suite")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seeds", type=lambda text: [int(seed) for seed in text.split(",")])
    parser.add_argument("--set", nargs="+", default=[], metavar="KEY=VALUE")
    parser.add_argument("--report", type=Path, help="also write the HTML page here")
    add_running(parser)
    a = parser.parse_args()
    suite = Suite.load([a.suite], a.seeds, a.set)
    with running_of(a) as running:
        plan = Runs(suite)
        (kept,) = run_plans([plan], replace(running, folders_stay=a.report is not None))
        keep(suite, kept, a.out)
        if a.report:
            write_page(_drawn(plan, running), a.report, title=suite.name)


@dataclass(frozen=True)
class Runs:
    """A plan: every variant under every seed."""

    of: Suite
    more: More | None = None
    rank: int = 0
    at_best: bool = False  # scores are those of each run's best round by its validation part

    @property
    def suite(self) -> str:
        return self.of.name

    def jobs(self, kept: Kept) -> Sequence[Job]:
        del kept  # none waits for another
        return [job for variant in self.of.variants for job in self.of_variant(variant)]

    def of_variant(self, variant: str) -> list[Job]:
        """Its first seed before those of others, and its other seeds after them."""
        return [
            Job(
                self.suite,
                variant,
                variant,
                self.of.variants[variant].model_copy(update={"seed": seed}),
                self.rank + 2 * (place > 0),
                self.more,
                self.at_best,
            )
            for place, seed in enumerate(self.of.seeds)
        ]


def run_suites(suites: Sequence[Suite], running: Running, more: More | None = None) -> list[Kept]:
    return run_plans([Runs(suite, more) for suite in suites], running)


def _drawn(plan: Runs, running: Running) -> list[Arm]:
    """With all that a page shows of them, from the folders of the runs."""
    for job in (job for name in plan.of.variants for job in plan.of_variant(name)):
        if not RunFolder(job.place(running.folder)).finished:
            raise UserError(
                f"--report: {job.name} has no finished folder; give --report from the first call on, "
                "and let all runs end"
            )
    return [
        gather(name, plan.of.labels[name], [job.place(running.folder) for job in plan.of_variant(name)])
        for name in plan.of.variants
    ]


def ended(suite: Suite, kept: Kept) -> dict[str, tuple[Arm, list[Made]]]:
    """The arms of which some seed is there, with the runs of those seeds."""
    found = {}
    for name, label in suite.labels.items():
        runs = [kept.of(job) for job in Runs(suite).of_variant(name)]
        good = [one for one in runs if one is not None and "failed" not in one]
        if good:
            summaries, histories = ([one[part] for one in good] for part in ("summary", "history"))
            found[name] = (Arm(name, label, summaries, histories, None), good)
    return found


def keep(
    suite: Suite,
    kept: Kept,
    out: Path,
    *,
    into: bool = False,
    missing: int = 0,
    beside: Sequence[str] = (),
) -> None:
    """The small result file: the table, curves, and everything needed to make it again.

    While an arm has no seed yet, what there is goes into a file beside it, `…-so-far.json`. With `into`,
    arms take the place of those with their names in the file that is there, in that one else. missing:
    arms that are not in the suite yet. beside: all arms there should be, in their order, where the suite
    has only some of them.
    """
    arms = ended(suite, kept)
    table = [_row(arm, runs) for arm, runs in arms.values()]
    for row in table:
        print(f"{row['label']:36}", *(" ".join(shown(score)) for score in row["metrics"].values()))
    if not table:
        print(f"{suite.name}: no run has ended yet")
        return
    configs = {name: suite.variants[name].model_dump(mode="json", exclude_none=True) for name in arms}
    so_far = out.with_name(f"{out.stem}-so-far.json")
    before = next((path for path in (out, so_far) if path.is_file()), None) if into else None
    if before is not None:
        table, configs = _among(read(before), table, configs, beside)
    wanted = set(beside) or {*suite.variants}
    if wanted - configs.keys() or (missing and not beside):
        out = so_far
    made = {"suite": suite.name, "seeds": list(suite.seeds), "variants": table}
    write(out, {**made, "constant": constant(suite.variants[next(iter(arms))]), "configs": configs})
    if out != so_far:
        so_far.unlink(missing_ok=True)


def _among(
    before: Made, table: Sequence[Made], configs: Made, order: Sequence[str]
) -> tuple[list[Made], Made]:
    """The arms of a file, these in the place of those with their names; in an order, if there is one."""
    older = {"commit": before["commit"], "hardware": before["hardware"]}
    rows = {row["name"]: {**older, **row} for row in before["variants"]}
    rows |= {row["name"]: row for row in table}
    places = {name: place for place, name in enumerate(order)}
    names = sorted(rows, key=lambda name: places.get(name, len(places)))
    configs = {**before["configs"], **configs}
    return [rows[name] for name in names], {name: configs[name] for name in names}


def _row(arm: Arm, runs: Sequence[Made]) -> dict[str, Any]:
    """An arm as the file has it; what else was measured of its runs is a mean over them."""
    made_by = {name: runs[0][name] for name in ("commit", "hardware")}
    row = {
        **as_json(arm),
        **made_by,
        "seeds": [one["config"]["seed"] for one in runs],
        "curve": curve(arm),
    }
    if cut := [one["config"]["seed"] for one in runs if one.get("cut_short")]:
        row["cut_short"] = cut  # seeds whose runs time ended, not their own patience
    measured = [one["more"] for one in runs if one.get("more")]
    for name in measured[0] if measured else ():
        row[name] = _means([one[name] for one in measured if name in one])
    return row


def _means(several: Sequence[Mapping[str, float]]) -> dict[str, float]:
    return {name: round(statistics.fmean(one[name] for one in several), 4) for name in several[0]}


def curve(arm: Arm) -> dict[str, list[float]]:
    """Means over seeds of every metric, evaluation by evaluation."""
    steps = list(zip(*arm.histories, strict=False))  # as far as all seeds went
    means = {
        name: [round(statistics.fmean(record[name] for record in step), 4) for step in steps]
        for name in arm.metric_names
    }
    return {"round": [step[0]["round"] for step in steps], **means}


def constant(experiment: Experiment) -> dict[str, float]:
    """What always naming the most frequent training labels would score, where the runs are scored."""
    data = data_of(experiment)
    scored = data.test if experiment.eval.split == "test" else data.validation
    assert scored is not None
    often = frequencies(data.train, 1).counts
    ranking = often.argsort(descending=True).expand(len(scored), -1)
    named = [name for name in experiment.eval.metrics if metrics.find_metric(name).needs == {"ranking"}]
    return {name: metrics.compute(name, ranking, scored.labels) for name in named}


if __name__ == "__main__":
    command(main)
