"""Audits, plans and ledgers on the terminal."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table

from spreadout.core.traffic import human_bytes
from spreadout.privacy.canary import Shown
from spreadout.privacy.one_run_audit import OneRun
from spreadout.privacy.request_audit import Look
from spreadout.privacy.update_audit import Moved
from spreadout.runs.plan_privacy import PrivacyPlan, Setting


def print_privacy_plans(
    plans: Sequence[PrivacyPlan], setting: Setting, epsilon: float, delta: float
) -> None:
    """What a budget costs, for noise on clients and for noise on the server."""
    about = f"{setting.cohort:,} of {setting.population:,} clients a round, {setting.rounds:,} rounds"
    table = Table(title=f"Noise for ε = {epsilon:g} at δ = {delta:g}: {about}")
    for name in ("noise on", "noise, in clips", "releases", "on the mean, in clips", "signal to noise"):
        table.add_column(name, justify="right")
    for plan in plans:
        where = "each update" if plan.model == "local" else "the sum"
        numbers = f"{plan.noise:.4g}", f"{plan.releases:,}", f"{plan.on_the_mean:.3g}"
        table.add_row(where, *numbers, f"{plan.signal_to_noise:.2g}")
    console = Console(highlight=False)
    console.print(table)
    clip = "" if setting.clip is None else f" The median update has length {setting.clip:.3g}: a clip."
    at = "…" if setting.clip is None else f"{setting.clip:.3g}"
    for plan in plans:
        noise = math.ceil(plan.noise * 1e4) / 1e4  # rounded down it would exceed the budget
        keys = f"clip = {at}\nnoise = {noise}\ndelta = {delta:g}\nepsilon = {epsilon:g}"
        console.print(f'[privacy]\nmodel = "{plan.model}"\n{keys}\n', markup=False)
    console.print(
        f"Signal to noise: at best, of {setting.parameters:,} numbers, if all updates are alike and as "
        "long as the clip. On each update ([privacy]): local, one client's data replaced, for the "
        'client that is drawn most often. On the sum (privacy.model = "central"): clients drawn by '
        f"Poisson sampling, one replaced by nothing.{clip}",
        soft_wrap=True,
        markup=False,
    )


def print_ledger(found: Mapping[str, Any]) -> None:
    """What each client of a node has given away."""
    title = f"Given away over all runs, ε at δ = {found['delta']:g} ({found['time']})"
    table = Table(title=title)
    for name in ("client", "noised updates", "runs", "requests seen", "ε"):
        table.add_column(name, justify="right")
    for client, own in found["clients"].items():
        spent = "∞" if own["epsilon"] is None else f"{own['epsilon']:.3f}"
        counts = (str(own[name]) for name in ("releases", "runs", "requests_seen"))
        table.add_row(str(client), *counts, spent)
    Console(highlight=False).print(table)


def print_canary(found: Shown | None, one_run: OneRun) -> None:
    """What attacks on the noise show beside the claim: on one release, and on a whole run."""
    if found is not None:
        print(
            f"One release at δ = {found.delta:g}: {_claimed(found)} is claimed, and an attack of "
            f"2 × {found.trials:,} trials shows ε ≥ {found.shown:.2f}: {_verdict(found)}."
        )
    print(
        f"One run of {one_run.rounds:,} rounds at δ = {one_run.delta:g}: {_claimed(one_run)} is "
        f"claimed, and {one_run.right:,} right of {one_run.guesses:,} guesses about "
        f"{one_run.canaries:,} canaries show ε ≥ {one_run.shown:.2f}: {_verdict(one_run)}."
    )


def _claimed(found: Shown | OneRun) -> str:
    return "nothing" if found.claimed is None else f"ε = {found.claimed:.2f}"


def _verdict(found: Shown | OneRun) -> str:
    return "MORE than is claimed: the noise is too small" if found.refutes else "within the claim"


def print_moved(found: Moved) -> None:
    """What an observer of updates knows."""
    print(
        f"The rows that stand out most in a client's first update ({found.by}) are its own classes in "
        f"{100 * found.found:.0f} % of the guesses; chance would find {100 * found.chance:.0f} % "
        f"({found.clients} clients)."
    )


def print_audit(looks: Sequence[Look], row_bytes: int, *, named: bool = False) -> None:
    """What an observer of requests knows, by how many of a client's he has seen; and what they cost.

    named: updates have a client's own rows alone, of all that it requested.
    """
    table = Table(title="What the server can learn from requests")
    for name in ("requests seen", "clients", "candidates", "confidence", "classes found", "exposed"):
        table.add_column(name, justify="right")
    shown = [i for i in range(len(looks)) if i < 10 or (i + 1) % 10 == 0 or i == len(looks) - 1]
    for look in (looks[i] for i in shown):
        table.add_row(
            str(look.requests),
            str(look.clients),
            f"{look.candidates:.1f}",
            *(f"{100 * share:.0f} %" for share in (look.confidence, look.found, look.exposed)),
        )
    rows = looks[0].candidates
    size = human_bytes(rows * row_bytes)
    cost = f"A request is of {rows:.1f} rows: {size} down, and as much up."
    if named:
        cost = f"An update has the client's own rows alone, {rows:.1f}, and so names them: {size} up."
    console = Console(highlight=False)
    console.print(table)
    console.print(
        "Candidates: classes in all of a client's requests so far. Confidence: the probability the "
        "observer gives to a class the client really holds. Found: the share of the client's classes "
        "among the observer's best guesses. Exposed: clients whose classes are all known for certain. "
        + cost,
        soft_wrap=True,
    )
