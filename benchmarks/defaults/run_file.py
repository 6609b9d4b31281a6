"""A result file of many runs: each is there once, with the machine and the commit that made it."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from benchmarks.common import record

Run = dict[str, Any]


def key_of(run: Run) -> tuple[str, ...]:
    """What it is a run of. Two with one key are one that was made again."""
    named = (run["set"], run["method"], run["seed"], run.get("split", ""), *run.get("changes", []))
    return tuple(map(str, named))


def runs_in(path: Path) -> list[Run]:
    """The runs of a file, none without one; of those that do not say where they ran, it knows."""
    if not path.exists():
        return []
    made = record.read(path)
    where = {"hardware": made["hardware"], "torch": made["versions"]["torch"], "commit": made["commit"]}
    return [{**where, **run} for run in made["runs"]]


def add(path: Path, run: Run) -> None:
    """One result more in the file, in the place of an earlier one of the same key."""
    where = {"hardware": record.hardware(), "torch": record.versions()["torch"]}
    merge(path, [{**run, **where}], quiet=True)
    print(json.dumps({key: value for key, value in run.items() if key != "references"}), flush=True)


def merge(path: Path, runs: Iterable[Run], *, quiet: bool = False) -> None:
    """All of these into a file; it is read again, as another process may have added some."""
    known = {key_of(run): run for run in (*runs_in(path), *runs)}
    record.write(path, {"runs": [known[key] for key in sorted(known)]}, quiet=quiet)
