"""What a person sees in the terminal when something is done: tables and lines on stdout."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from spreadout.config.experiment import Experiment
from spreadout.core.files import as_json as to_json
from spreadout.core.traffic import human_bytes
from spreadout.evaluation.metrics import described
from spreadout.runs.arms import (
    SHOWN_GEOMETRY,
    Arm,
    best_central_of,
    shared_metrics,
    shared_references,
    shown,
    shown_geometry,
    spread,
    unlike_data,
)
from spreadout.runs.forecast import Forecast
from spreadout.runs.pace import human_seconds
from spreadout.runs.plan_hash import HashPlan


@contextmanager
def rehearsing(experiment: Experiment) -> Iterator[None]:
    """Shows a status line while a forecast runs."""
    console, said = (
        Console(stderr=True),
        f"rehearsing {experiment.name}: loading data, then running a few rounds",
    )
    if not console.is_terminal:
        console.print(said, soft_wrap=True, highlight=False)
    with console.status(said):
        yield


def print_summary(summary: Mapping[str, Any], folder: Path, *, as_json: bool) -> None:
    """The end of one run."""
    if as_json:
        print(to_json({**summary, "folder": str(folder)}, indent=2))
        return
    best, moved, geometry = summary["best"], summary["bytes"], summary["geometry"]
    rows = [
        (
            "method",
            f"{summary['method']} on {escape(summary['dataset'])}, "
            f"{summary['clients']} clients, {summary['classes']} classes",
        )
    ]
    judged = summary.get("best_by") or [next(iter(summary["metrics"]))]
    by = judged[0] if len(judged) == 1 else f"the mean of {', '.join(judged)}"
    kept = summary.get("keep") == "best"
    after = "1 round" if summary["rounds"] == 1 else f"{summary['rounds']} rounds"
    for place, (name, value) in enumerate(summary["metrics"].items()):
        note = f"{best[name]:.2f} at round {best['round']}"
        if kept:
            note = "" if place else f"the model of round {best['round']}, by validation examples"
        elif best["round"] == summary["rounds"]:  # also where nothing says which is the best
            note = ""
        elif judged == [name]:
            note = f"best {note}"
        else:
            note = f"{best[name]:.2f} then" if place else f"{note}, the best round by {by}"
        if described(name).better == "lower":
            note += "; lower is better" if note else "lower is better"
        rows.append((name, f"[bold]{value:.2f}[/] after {after}" + (f" ({note})" if note else "")))
    rows += _reference_rows(summary)
    if summary.get("stopped_early") and (summary.get("privacy") or {}).get("budget_is_spent"):
        rows.append(("stopped", "early: another round might take a client beyond privacy.epsilon"))
    elif summary.get("stopped_early"):
        where = ", on validation examples," if kept else ""
        left = "" if kept else "; the saved model is from the last round"
        rows.append(("stopped", f"early: {by}{where} did not improve{left}"))
    rows.append(("traffic", f"{human_bytes(moved['down'])} down, {human_bytes(moved['up'])} up"))
    if geometry["max_cosine"] is not None:
        rows.append(
            (
                "classes",
                f"largest cosine {geometry['max_cosine']:.3f}, "
                f"effective rank {geometry['effective_rank']:.1f}",
            )
        )
    if summary["refused_updates"]:
        reasons = (f"{count} {why}" for why, count in summary["refused_updates"].items())
        rows.append(("refused", f"{', '.join(reasons)} (of {moved['participations']} updates)"))
    for what, key in (("privacy", "privacy"), ("table privacy", "table_privacy")):
        if private := summary.get(key):
            epsilon = "∞" if private["epsilon"] is None else f"{private['epsilon']:.2f}"
            rows.append((what, f"ε = {epsilon} at δ = {private['delta']:g}; {private['guarantee']}"))
            if open_to := private.get("not_protected"):
                rows.append(("", f"not protected: {', '.join(open_to)}"))
    time = f"{summary['seconds']:.1f} s on {summary['device']}"
    rows += [("time", time), ("folder", escape(str(folder)))]
    for one in summary.get("findings", []):
        rows.append(("finding", escape(f"{one['name']}: {one['sign']}; {one['remedy']}")))
    _print_rows(rows)


def _reference_rows(summary: Mapping[str, Any]) -> list[tuple[str, str]]:
    """A line for each reference, with the metrics that the run has."""
    note = summary.get("references_note")
    rows = [("references", escape(note))] if note else []
    for name, one in summary.get("references", {}).items():
        scores = ", ".join(f"{metric} {value:.2f}" for metric, value in one["metrics"].items())
        about = f" ({one['note']})" if scores and one["note"] else one["note"]
        rows.append(("" if rows else "references", escape(f"{name}: {scores}{about}")))
    return rows


def print_forecast(cost: Forecast, *, as_json: bool) -> None:
    """What a run is expected to take."""
    if as_json:
        print(to_json(asdict(cost), indent=2))
        return
    each = cost.seconds_per_round
    before = f", {human_bytes(cost.once_bytes)} before the first round" if cost.once_bytes else ""
    moved = f"{human_bytes(cost.down_per_client)} down, {human_bytes(cost.up_per_client)} up"
    evaluation = f"{cost.seconds_per_evaluation:.2f} s an evaluation"
    if cost.seconds_per_checkpoint >= 0.1:
        evaluation += f", {cost.seconds_per_checkpoint:.1f} s a checkpoint"
    if cost.seconds_before >= 1:
        evaluation += f", {human_seconds(cost.seconds_before)} before the first round"
    most_disk = human_bytes(cost.peak_disk_bytes)
    rows = [
        ("run", f"{cost.rounds} rounds of {cost.cohort} of {cost.clients} clients"),
        ("model", f"{human_bytes(cost.model_bytes)}, {cost.classes} classes"),
        ("traffic", f"{moved} per client and round{before}"),
        ("time", f"{human_seconds(cost.seconds)}: {1000 * each:.0f} ms a round, {evaluation}"),
        ("memory", f"{human_bytes(cost.peak_memory_bytes)} at most"),
        ("disk", f"{human_bytes(cost.disk_bytes)} at the end, {most_disk} at most"),
    ]
    _print_rows(rows)


def _print_rows(rows: Sequence[tuple[str, str]]) -> None:
    console = Console(highlight=False)
    wide = max(8, *(len(name) for name, _ in rows))
    for name, text in rows:
        console.print(f"{name:<{wide}} {text}", soft_wrap=True)


def print_comparison(arms: Sequence[Arm], folder: Path, page: Path) -> None:
    """Variants side by side: mean ± deviation over seeds, bytes, geometry of collapse."""
    names = shared_metrics(arms)
    seeds = len(arms[0].summaries)
    over = f"mean ± standard deviation over {seeds} seeds" if seeds > 1 else "one seed"
    caption = f"{over}; bytes per client and round"
    table = Table(
        caption=caption,
        caption_justify="left",
    )
    table.add_column("variant", no_wrap=True)
    some = shown_geometry(arms)
    geometry = (SHOWN_GEOMETRY[name].replace(" ", "\n") for name in some)
    titles = (described(name).title.replace(" (", "\n(") for name in names)
    for column in (*titles, "down", "up", *geometry, "seconds"):
        table.add_column(column, justify="right", no_wrap=True)
    for arm in arms:
        scores = [spread(arm.metric(name)) for name in names]
        moved = [arm.bytes_per_visit(way) for way in ("down", "up")]
        seconds = sum(summary["seconds"] for summary in arm.summaries) / seeds
        table.add_row(
            arm.label,
            *(" ".join(shown(score)).strip() for score in scores),
            *(human_bytes(count) if count else "–" for count in moved),
            *("–" if value is None else f"{value:.2f}" for value in map(arm.geometry, some)),
            f"{seconds:.1f}",
        )
    references = shared_references(arms)
    if references:
        table.add_section()
    for label, metrics in references.items():
        values = [" ".join(shown(metrics[name])).strip() if name in metrics else "–" for name in names]
        table.add_row(label, *values, *["–"] * (len(some) + 3))
    console = Console(width=None if sys.stdout.isatty() else 132)
    console.print(table)
    if unlike := unlike_data(arms):
        console.print(f"warning: {unlike}", soft_wrap=True, highlight=False)
    if best := best_central_of(arms):
        console.print(f"best with all data in one place: {best}", soft_wrap=True, highlight=False)
    console.print(f"{folder}/comparison.json\n{page}", soft_wrap=True, highlight=False)


def print_hash_plans(
    plans: Sequence[HashPlan],
    positives: Mapping[int, float | None],
    *,
    classes: int,
    delta: float,
    mean: float | None,
) -> None:
    """Tables and buckets side by side; positives: at least, of an average class's bucket, by tables."""
    console = Console(highlight=False)
    if not plans:
        console.print(
            f"{classes} classes are too few to hash: one output for each makes a smaller network"
        )
        return
    table = Table(
        title=f"{classes:,} classes, no two share all their buckets, with probability {1 - delta:g}"
    )
    for name in (
        "R",
        "B",
        "classes per bucket",
        "expected full collisions",
        "positives per bucket",
        "model",
        "smaller",
    ):
        table.add_column(name, justify="right")
    for plan in plans:
        table.add_row(
            str(plan.tables),
            f"{plan.buckets:,}",
            f"{plan.per_bucket:.1f}",
            f"{plan.collisions:.2g}",
            "–" if (least := positives[plan.tables]) is None else f"≥ {least:.1f}",
            human_bytes(plan.bytes),
            f"{plan.plain_bytes / plan.bytes:.1f}x",
        )
    console.print(table)
    smallest = min(plans, key=lambda plan: plan.bytes)
    console.print(
        f"Smallest: method.hash_tables = {smallest.tables}, method.buckets = {smallest.buckets}. "
        + (f"An average class has {mean:.1f} positives of its own. " if mean else "")
        + f"Positives per bucket are a lower bound{'' if mean else ' (give --positives, --instances)'}. "
        + "Each B is the smallest that satisfies Lemma 2. More buckets cost bytes and raise accuracy.",
        soft_wrap=True,
    )
