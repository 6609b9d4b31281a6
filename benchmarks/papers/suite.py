"""Run a comparison and keep its small result file: table, resolved configs, commit, hardware.

python -m benchmarks.papers.suite digits-demo --out results/digits/demo.json
python -m benchmarks.papers.suite configs/fedaws/bibtex.toml --out results/bibtex/fedaws.json
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import statistics
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from pathlib import Path

import torch

from benchmarks.common.command import command, parser_of
from benchmarks.common.record import commit, hardware, write
from benchmarks.papers import user_errors
from spreadout.config.experiment import Experiment
from spreadout.core.errors import UserError
from spreadout.data import load as splits
from spreadout.evaluation import metrics
from spreadout.evaluation.evaluate import frequencies
from spreadout.report.page import write_page
from spreadout.runs.arms import Arm, as_json, shown
from spreadout.runs.claim import COMPARISON_MARK
from spreadout.runs.compare import Suite, compare
from spreadout.runs.train import run


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
    with run_folders(a.runs) as folder:
        (arms,) = run_suites([suite], folder, a.device, a.jobs)
    if a.report:
        write_page(arms, a.report, title=suite.name)
    keep(suite, arms, a.out)


def add_running(parser: argparse.ArgumentParser) -> None:
    """The options of every command that runs suites."""
    parser.add_argument("--device", default="auto")
    parser.add_argument("--jobs", type=int, default=1, help="runs side by side, a process each")
    parser.add_argument(
        "--runs", type=Path, help="keep the run folders here, and go on with those there"
    )


@contextmanager
def run_folders(kept: Path | None) -> Iterator[Path]:
    """Where runs write: a folder that stays, or one that goes with them."""
    if kept is not None:
        yield kept
        return
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder)


def run_suites(suites: Sequence[Suite], folder: Path, device: str, jobs: int) -> list[Sequence[Arm]]:
    """The arms of every suite; all their runs share one pool of processes.

    Finished runs that an earlier call left below `folder` are taken as they are.
    """
    places = [folder / suite.name for suite in suites]
    with ProcessPoolExecutor(jobs, multiprocessing.get_context("spawn")) as pool:
        several = zip(suites, places, strict=True)
        started = [job for suite, out in several for job in side_by_side(suite, out, device, pool)]
        for job in as_completed(started):
            print(job.result(), flush=True)
    return [
        compare(suite, out=out, device=device, go_on=True)
        for suite, out in zip(suites, places, strict=True)
    ]


def keep(
    suite: Suite, arms: Sequence[Arm], out: Path, *, into: bool = False, runs: Path | None = None
) -> None:
    """The small result file: the table, curves, and everything needed to make it again.

    runs: the folder of the suite's runs, where errors by users are wanted too.

    With `into`, arms take the place of those with their names in the file that is there, if it is.
    """
    configs = {
        name: variant.model_dump(mode="json", exclude_none=True)
        for name, variant in suite.variants.items()
    }
    made_by = {"commit": commit(), "hardware": hardware()}
    table = [{**as_json(arm), **made_by, "curve": curve(arm)} for arm in arms]
    if runs is not None:
        user_errors.into(table, user_errors.of_suite(suite, runs))
    for row in table:
        print(f"{row['label']:36}", *(" ".join(shown(score)) for score in row["metrics"].values()))
    if into and out.is_file():
        before, fresh = json.loads(out.read_bytes()), {row["name"]: row for row in table}
        older = {"commit": before["commit"], "hardware": before["hardware"]}
        table = [fresh.pop(row["name"], {**older, **row}) for row in before["variants"]]
        table += fresh.values()
        configs = {**before["configs"], **configs}
    made = {"suite": suite.name, "seeds": list(suite.seeds), "variants": table}
    write(out, {**made, "constant": constant(next(iter(suite.variants.values()))), "configs": configs})


def curve(arm: Arm) -> dict[str, list[float]]:
    """Means over seeds of every metric, evaluation by evaluation."""
    steps = list(zip(*arm.histories, strict=False))  # as far as all seeds went
    means = {
        name: [round(statistics.fmean(record[name] for record in step), 4) for step in steps]
        for name in arm.metric_names
    }
    return {"round": [step[0]["round"] for step in steps], **means}


def side_by_side(suite: Suite, out: Path, device: str, pool: ProcessPoolExecutor) -> list[Future[str]]:
    """Every run in one of the pool's processes, in the folder where the comparison will look for it."""
    out.mkdir(parents=True, exist_ok=True)
    (out / COMPARISON_MARK).touch()
    started = []
    for variant, experiment in suite.variants.items():
        for seed in suite.seeds:
            folder = out / variant / f"seed-{seed}"
            if not folder.exists():  # what is not finished there, `compare` goes on with
                seeded = experiment.model_copy(update={"seed": seed})
                started.append(
                    pool.submit(_run, f"{suite.name} {variant} {seed}", seeded, folder, device)
                )
    return started


def _run(name: str, experiment: Experiment, folder: Path, device: str) -> str:
    torch.set_num_threads(1)  # the others are at work too
    try:
        result = run(experiment, out=folder, device=device)
    except UserError as error:
        return f"{name}: {error}"
    return f"{name}: {result.summary['seconds']:.0f} s"


def constant(experiment: Experiment) -> dict[str, float]:
    """What always naming the most frequent training labels would score, where the runs are scored."""
    data = splits.load_data(experiment.data, experiment.seed)
    scored = data.test if experiment.eval.split == "test" else data.validation
    assert scored is not None
    often = frequencies(data.train, 1).counts
    ranking = often.argsort(descending=True).expand(len(scored), -1)
    named = [name for name in experiment.eval.metrics if metrics.find_metric(name).needs == {"ranking"}]
    return {name: metrics.compute(name, ranking, scored.labels) for name in named}


if __name__ == "__main__":
    command(main)
