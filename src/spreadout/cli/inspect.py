"""Commands that look and plan: `audit`, `confusion`, `plan-hash`, `plan-privacy`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from spreadout.cli.common import no_other_file, note_unchecked
from spreadout.cli.data import AsJson
from spreadout.core.errors import UserError


def add_to(app: typer.Typer) -> None:
    """Make them commands of the program."""
    app.command()(audit)
    app.command()(confusion)
    app.command("plan-hash")(plan_hash)
    app.command("plan-privacy")(plan_privacy)


def audit(
    run: Annotated[Path, typer.Argument(help="A run folder with requests.jsonl, or a config.")],
    overrides: Annotated[
        list[str] | None,
        typer.Argument(help="Overrides of the config: section.key=value.", metavar="[KEY=VALUE]..."),
    ] = None,
    rounds: Annotated[
        int | None,
        typer.Option("--rounds", min=1, help="With a config: how many rounds of requests to simulate."),
    ] = None,
    clients: Annotated[
        bool,
        typer.Option(
            "--clients", help="One JSON line per request: the probability of each candidate class."
        ),
    ] = False,
    updates: Annotated[
        bool,
        typer.Option("--updates", help="With a config: train one round, and look at which rows moved."),
    ] = False,
    canary: Annotated[
        bool,
        typer.Option(
            "--canary", help="With a private config: attack its noise; exit code 1 if it is too small."
        ),
    ] = False,
    trials: Annotated[
        int, typer.Option("--trials", min=100, help="With --canary: releases of each kind, or canaries.")
    ] = 4000,
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", callback=no_other_file, help="A page to write, with pictures."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """What the server can learn of clients' classes from the rows they request, and from updates."""
    from dataclasses import asdict

    from spreadout.report.privacy_terminal import print_audit, print_canary, print_moved
    from spreadout.runs.audit import canaries, foreseen, logged, moved_rows

    if output is not None and (canary or updates or clients or as_json):
        raise UserError(f"-o {output}: is the page of requests; leave out the other options")
    if canary:
        if run.is_dir():
            raise UserError(f"{run}: is a run folder; give {run}/config.toml to attack its noise")
        shown, one_run = canaries(str(run), overrides or [], trials)
        if as_json:
            one = {} if shown is None else asdict(shown)
            print(json.dumps({**one, "one_run": asdict(one_run)}, indent=2))
        else:
            print_canary(shown, one_run)
        raise typer.Exit(1 if one_run.refutes or (shown is not None and shown.refutes) else 0)
    if updates:
        if run.is_dir():
            raise UserError(f"{run}: is a run folder, which keeps no updates; give {run}/config.toml")
        found = moved_rows(str(run), overrides or [])
        print(json.dumps(asdict(found), indent=2)) if as_json else print_moved(found)
        return
    if run.is_dir():
        if rounds is not None or overrides:
            raise UserError(f"{run}: is a run folder; give a config to watch other rounds or settings")
        note_unchecked(run)
        watched = logged(run)
    else:
        watched = foreseen(str(run), overrides or [], rounds)
    if output is not None:
        from spreadout.report.audit_view import write_audit

        name = run.resolve().name if run.is_dir() else run.stem
        print(write_audit(watched, output, title=f"{name}: what requests reveal"))
        return
    if clients:
        for belief in watched.beliefs():
            print(json.dumps(belief))
        return
    looks = watched.looks()
    if as_json:
        print(json.dumps([asdict(look) for look in looks], indent=2))
        return
    print_audit(looks, watched.row_bytes, named=watched.method.returns_own_rows)


def confusion(
    run: Annotated[Path, typer.Argument(help="The folder of a finished run.")],
    client: Annotated[int, typer.Option("--client", min=0, help="The client's number.")] = 0,
    output: Annotated[
        Path, typer.Option("-o", "--output", callback=no_other_file, help="The page to write.")
    ] = Path("confusion.html"),
) -> None:
    """Draw the confusion matrix of one client's examples for a finished run."""
    from spreadout.report.confusion import draw_confusion

    note_unchecked(run)
    print(draw_confusion(run, client, output))


def plan_hash(
    classes: Annotated[
        int, typer.Option("--classes", min=2, max=2**31 - 2, help="How many classes there are.")
    ],
    delta: Annotated[
        float, typer.Option("--delta", help="Probability that some two classes share all their buckets.")
    ] = 0.01,
    features: Annotated[int, typer.Option("--features", min=1, help="Inputs of the network.")] = 5000,
    hidden: Annotated[int, typer.Option("--hidden", min=1, help="Width of its two layers.")] = 500,
    positives: Annotated[
        int | None,
        typer.Option("--positives", min=1, help="Total number of labels over all training instances."),
    ] = None,
    instances: Annotated[
        int | None, typer.Option("--instances", min=1, help="Training instances; with --positives.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Which B and R label hashing (FedMLH) needs, with bytes, collisions and bucket positives."""
    from dataclasses import asdict

    from spreadout.report.terminal import print_hash_plans
    from spreadout.runs.plan_hash import bucket_positives, plans

    if not 1e-12 <= delta < 1:
        raise UserError(f"--delta {delta}: must lie between 1e-12 and 1, such as 0.01")
    found = plans(classes, delta, features=features, hidden=hidden)
    if (positives is None) != (instances is None):
        raise UserError("--positives and --instances: give both, or neither")
    mean = None if positives is None else positives / classes
    if mean and instances and mean > instances:
        raise UserError(
            f"--positives {positives}: {mean:.0f} an average class, of {instances} instances"
        )
    per_bucket = {
        plan.tables: bucket_positives(mean, mean * classes, plan.buckets, instances)
        if mean and instances
        else None
        for plan in found
    }
    if as_json:
        print(
            json.dumps(
                [{**asdict(plan), "positives": per_bucket[plan.tables]} for plan in found], indent=2
            )
        )
        return
    print_hash_plans(found, per_bucket, classes=classes, delta=delta, mean=mean)


def plan_privacy(
    config: Annotated[
        str | None, typer.Argument(help="A config or a preset: its rounds, clients and updates.")
    ] = None,
    overrides: Annotated[
        list[str] | None,
        typer.Argument(help="Overrides of the config: section.key=value.", metavar="[KEY=VALUE]..."),
    ] = None,
    epsilon: Annotated[float, typer.Option("--epsilon", help="The budget of one client.")] = 8.0,
    delta: Annotated[float, typer.Option("--delta", help="The δ of that budget.")] = 1e-6,
    rounds: Annotated[int | None, typer.Option("--rounds", min=1, help="Rounds of the run.")] = None,
    cohort: Annotated[int | None, typer.Option("--cohort", min=1, help="Clients in a round.")] = None,
    population: Annotated[int | None, typer.Option("--population", min=1, help="All clients.")] = None,
    parameters: Annotated[
        int | None, typer.Option("--parameters", min=1, help="Numbers in an update.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """How much noise a privacy budget needs, on clients or on the server, and what it leaves."""
    from dataclasses import asdict, replace
    from importlib.util import find_spec

    from spreadout.privacy.sampled import EXTRA
    from spreadout.report.privacy_terminal import print_privacy_plans
    from spreadout.runs.plan_privacy import Setting, measured, plans

    if not 1e-3 <= epsilon <= 1e4:
        raise UserError(f"--epsilon {epsilon:g}: must lie between 0.001 and 10000, such as 8")
    if not 1e-15 <= delta < 1:
        raise UserError(f"--delta {delta:g}: must lie between 1e-15 and 1, such as 1e-6")
    given = {"rounds": rounds, "cohort": cohort, "population": population, "parameters": parameters}
    said = {name: value for name, value in given.items() if value is not None}
    if config is None:
        missing = [name for name in given if name not in said]
        if missing:
            raise UserError(f"--{missing[0]}: is missing; give it, or a config that has it")
        setting = Setting(**said)
    else:
        setting = replace(measured(config, overrides or []), **said)
    if setting.cohort > setting.population:
        raise UserError(f"--cohort {setting.cohort}: there are only {setting.population} clients")
    central = find_spec("dp_accounting") is not None
    found = plans(setting, epsilon, delta, central=central)
    if as_json:
        told = {"setting": asdict(setting), "plans": [asdict(plan) for plan in found]}
        print(json.dumps(told, indent=2))
        return
    print_privacy_plans(found, setting, epsilon, delta)
    if not central:
        print(f"Noise on the server is not planned: dp-accounting is not installed ({EXTRA}).")
