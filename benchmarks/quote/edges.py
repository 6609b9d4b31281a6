"""Which arms chose a setting at the edge of what was tried for them: a better one may lie beyond it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from statistics import mean
from typing import Any

from benchmarks.quote.tables import Made, read

Point = Mapping[str, Any]


def edges(made: Made, tuning: str, least: int = 2) -> str:
    """One sentence on all arms of a result file that chose at an edge; empty where none did.

    tuning: the file of their points; least: of how many values at least, as of two each is at an edge.
    """
    found = outermost(made, tuning, least)
    labels = {v["name"]: v["label"] for v in made["variants"]}
    said = (f"{labels[arm]} ({', '.join(values)})" for arm, values in found.items())
    return f"Chosen at the edge of what was tried: {'; '.join(said)}." if found else ""


def outermost(made: Made, tuning: str, least: int = 2) -> dict[str, list[str]]:
    """What each of those arms chose there, in words."""
    tried: dict[str, list[Point]] = {}
    for point in read(tuning)["points"]:
        tried.setdefault(point["arm"], []).append(point)
    found = {}
    for arm in (v["name"] for v in made["variants"] if v["name"] in tried):
        best = chosen(tried[arm], made["configs"][arm])
        if said := list(_at_edges(best, tried[arm], least)):
            found[arm] = said
    return found


def chosen(points: Sequence[Point], config: Made) -> Point:
    """The best point by the metrics that the arm's own runs are judged by."""
    names = config["eval"]["best_by"] or config["eval"]["metrics"][:1]
    ended = [point for point in points if "failed" not in point]
    return max(ended, key=lambda point: mean(point[name] for name in names))


def _at_edges(best: Point, points: Sequence[Point], least: int) -> Iterator[str]:
    """Of each number in a point's name that is the smallest or the largest of several."""
    tried = [_values(point) for point in points]
    for at, value in enumerate(_values(best)):
        others = {one[at] for one in tried if isinstance(one[at], float)}
        if isinstance(value, float) and len(others) >= least and value in (min(others), max(others)):
            yield f"{value:g}, the {'largest' if value == max(others) else 'smallest'} of {len(others)}"


def _values(point: Point) -> list[float | str]:
    """A point is named by its values in the order of the grid: "0.3-uniform"."""
    return [_number(value) for value in point["point"].split("-")]


def _number(value: str) -> float | str:
    try:
        return float(value)
    except ValueError:
        return value
