"""A table in a document, and the line below it that says which files it is from."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.common import record
from benchmarks.common.paths import ROOT

Made = dict[str, Any]  # a result file


def read(path: str) -> Made:
    """A result file, by its path from the root."""
    return record.read(ROOT / path)


@dataclass(frozen=True)
class Planned:
    """A table with a name, a file that may still be missing, and how it is made."""

    title: str
    path: str
    command: str  # of benchmarks.papers
    minutes: int  # of an H200, estimated

    @property
    def is_there(self) -> bool:
        return (ROOT / self.path).is_file()


def not_run(plans: Iterable[Planned]) -> list[str]:
    """One line that names what is missing, with its command and cost; none where nothing is."""
    missing = [plan for plan in plans if not plan.is_there]
    named = (
        f"{plan.title} (`python -m benchmarks.papers.{plan.command}`, about {plan.minutes} minutes)"
        for plan in missing
    )
    return [f"Not run, with what it would take of an H200: {'; '.join(named)}."] if missing else []


def latest(path: str) -> str:
    """A suite's file; while an arm of it has no test run, the one beside it that has the others."""
    so_far = f"{path.removesuffix('.json')}-so-far.json"
    return so_far if not (ROOT / path).is_file() and (ROOT / so_far).is_file() else path


def table(head: Sequence[str], rows: Iterable[Sequence[str]], *paths: str, note: str = "") -> str:
    """Markdown, with a note and the files' origins below."""
    lines = [_line(head), "|---" * len(head) + "|", *map(_line, rows)]
    below = [*([note] if note else []), *(_origin(path) for path in paths)]
    return "\n".join([*lines, *(["", " ".join(below)] if below else [])])


def _line(cells: Sequence[str]) -> str:
    return "|" + "".join(f" {cell} |" if cell else " |" for cell in cells)


def _origin(path: str) -> str:
    return f"From [`{path}`](/{path}): {_machines(read(path))}."


def _machines(made: Made) -> str:
    """Where a file was made; where its parts were made on several machines, all of them."""
    for what, name in (("variants", "arm"), ("points", "point"), ("runs", "run")):
        rows = made.get(what)  # a list of them, or how many there were
        where = Counter(_machine(row, made) for row in rows) if isinstance(rows, list) else Counter()
        if len(where) > 1:
            said = (f"{many} {name}{'s' * (many > 1)} on {on}" for on, many in where.most_common())
            return "; ".join(said)
        if where:
            return next(iter(where))
    return _machine({}, made)


def _machine(row: Made, made: Made) -> str:
    """Of a part of a file: its own, or that of the whole."""
    on = row.get("hardware", made["hardware"])
    own = made["versions"]["torch"] if on == made["hardware"] else None
    torch = row.get("torch", own)
    return f"{on}, torch {torch}" if torch else str(on)


def spread(score: Made, digits: int = 1) -> str:
    """A mean and how far seeds are from it; one seed has no deviation."""
    mean = f"{score['mean']:.{digits}f}"
    return mean if score["spread"] is None else f"{mean} ± {score['spread']:.{digits}f}"


def over_seeds(made: Made) -> str:
    """How many seeds a table has, and which arms have fewer."""
    short = {v["label"]: len(v["seeds"]) for v in made["variants"] if "seeds" in v}
    all_told = len(short) == len(made["variants"])
    wanted = max(short.values()) if all_told and short else len(made["seeds"])
    said = f"Mean ± deviation over {wanted} seeds" if wanted > 1 else "One seed"
    fewer = [f"{label}: {count}" for label, count in short.items() if count < wanted]
    said = f"{said} ({'; '.join(fewer)})." if fewer else f"{said}."
    cut = [v["label"] for v in made["variants"] if v.get("cut_short")]
    return f"{said} At their best round when time ended them: {', '.join(cut)}." if cut else said


def mib(count: float, digits: int = 0) -> str:
    return f"{count / 2**20:,.{digits}f} MiB"


def gib(count: float) -> str:
    return f"{count / 2**30:.1f} GiB"
