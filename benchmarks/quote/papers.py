"""The papers' figures and ours, cell by cell, with a plain mark where we fall short."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

from benchmarks.papers.published import Row, Table, tables
from benchmarks.quote import extreme
from benchmarks.quote import tables as markdown
from benchmarks.quote.fedmlh import chosen_round, cohort
from benchmarks.quote.tables import Made, latest, read

PAGES = {
    "fedaws": "FedAwS",
    "fedss": "FedSS",
    "fedmlh": "FedMLH",
    "dual_encoder": "Dual encoder",
    "fedalc": "FedALC",
}
SHORT = "✗"
LEGEND = (
    f"A cell is *the paper's figure → ours (difference)*. {SHORT}: below the paper. Rows in italics "
    "are other methods, for comparison; they are not marked. –: not run here."
)


def page(name: str) -> str:
    """Every table of a method's paper, one below the other."""
    shown = [beside(table) for table in tables().values() if table.page == name]
    return "\n\n".join([*shown, LEGEND])


def beside(table: Table) -> str:
    rows = [[_label(row), *_cells(table, row), row.why] for row in table.rows]
    paths = dict.fromkeys(latest(f"results/{row.result}") for row in table.rows if row.result)
    files = ", ".join(f"[`{path}`](/{path})" for path in paths)
    note = f"Our data: {table.data}. Ours: {files}." if files else ""
    shown = markdown.table(("", *table.metrics, "why"), rows, note=note)
    return f"**{table.source}**: {table.of}.\n\n{shown}"


def summary() -> str:
    """For every paper, how many cells of its method are at or above it, below it, and not run."""
    rows = []
    for name, title in PAGES.items():
        for table in (table for table in tables().values() if table.page == name):
            own = [row for row in table.rows if not row.reference]
            counted = Counter(state for row in own for state in _states(table, row))
            if not counted:
                continue
            cells = (str(counted[state]) for state in ("above", "below", "not run"))
            link = f"[{title}]({name}.md#compared-with-the-paper)"
            rows.append([link, f"{table.source}: {table.of}", table.data or "–", *cells])
    head = ("", "cells of its own method", "our data", "at or above", f"{SHORT} below", "not run")
    return markdown.table(head, rows)


def _label(row: Row) -> str:
    return f"*{row.label}*" if row.reference else row.label


def _cells(table: Table, row: Row) -> Iterator[str]:
    digits = table.digits
    for said, ours in pairs(table, row):
        if ours is None:
            yield f"{said:.{digits}f} → –"
        else:
            mark = f" {SHORT}" if _is_short(said, ours, digits) and not row.reference else ""
            off = round(ours, digits) - round(said, digits)
            yield f"{said:.{digits}f} → {ours:.{digits}f} ({off:+.{digits}f}{mark})".replace("(-", "(−")


def _states(table: Table, row: Row) -> Iterator[str]:
    for said, ours in pairs(table, row):
        if ours is None:
            yield "not run"
        else:
            yield "below" if _is_short(said, ours, table.digits) else "above"


def _is_short(said: float, ours: float, digits: int) -> bool:
    """As they are printed."""
    return round(ours, digits) < round(said, digits)


def pairs(table: Table, row: Row) -> Iterator[tuple[float, float | None]]:
    """The paper's figure and ours, for every metric of the table."""
    whole = next((one for one in table.rows if one.label == table.relative_to), None)
    for at, metric in enumerate(table.metrics):
        said, ours = row.paper[at], _ours(table, row, metric)
        if whole is not None:  # of the same file, or, of what was not run, of its own
            full = _ours(table, replace(whole, result=row.result or whole.result), metric)
            said = 100 * said / whole.paper[at]
            ours = None if ours is None or not full else 100 * ours / full
        yield said, ours


def _ours(table: Table, row: Row, metric: str) -> float | None:
    if not row.result:
        return None
    made = read(latest(f"results/{row.result}"))
    if table.times:
        return _spent(made, table.times, metric) / _spent(made, row.variant, metric)
    return _score(made, row.variant, table.columns.get(metric, metric))


def _score(made: Made, variant: str, metric: str) -> float | None:
    """An arm's mean over seeds; of a file of curves, at the best round there was."""
    if "arms" in made:
        curve = _curve(made, variant)
        return float(curve[metric][_best(curve)]) if metric in curve else None
    if "table" in made:
        found = next(one for one in made["table"] if f"{one['net']} {one['arm']}" == variant)
        return float(found[metric])
    if "points" in made:  # of a choice on validation data
        tried = next(one for one in made["points"] if f"{one['arm']} {one['point']}" == variant)
        return float(tried[metric])
    if "shape" in made:
        return extreme.score(made, variant, metric)
    scores = next(one for one in made["variants"] if one["name"] == variant)["metrics"]
    return float(scores[metric]["mean"]) if metric in scores else None


def _spent(made: Made, variant: str, what: str) -> float:
    """Rounds, or bytes both ways, until an arm was at its best."""
    if "arms" in made:
        curve = _curve(made, variant)
        return float(curve["round" if what == "rounds" else "bytes"][_best(curve)])
    one = next(one for one in made["variants"] if one["name"] == variant)
    rounds = chosen_round(made, one)
    each = sum(one["bytes_per_client_round"].values()) * cohort(made, one)
    return rounds if what == "rounds" else rounds * each


def _curve(made: Made, variant: str) -> dict[str, list[float]]:
    found: dict[str, list[float]] = next(arm["curve"] for arm in made["arms"] if arm["arm"] == variant)
    return found


def _best(curve: dict[str, list[float]]) -> int:
    means = [sum(three) for three in zip(*(curve[f"P@{k}"] for k in (1, 3, 5)), strict=True)]
    return means.index(max(means))
