"""Defaults for tables of numbers: what was tried on them, and what they reach."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Collection, Mapping

from benchmarks.quote.tables import read, table
from spreadout.core.errors import UserError

METHODS = {"fedaws": "FedAwS", "fedss": "FedSS"}
REFERENCES = ("ridge", "nearest neighbours")
Scores = Mapping[str, Mapping[tuple[str, ...], list[float]]]  # of a set, by method and changes


def tried(path: str, points: Mapping[str, Collection[str]], seeds: int) -> str:
    """P@1 of the sets on which all of these changes were tried with so many seeds, a column each."""
    found = _by_change(path)
    keys = [(method, *sorted(change)) for method in METHODS for change in points.values()]
    rows = [
        [name, *(f"{statistics.mean(own[key]):.1f}" for key in keys)]
        for name, own in found.items()
        if all(len(own.get(key, [])) == seeds for key in keys)
    ]
    means = (statistics.mean(float(row[i + 1]) for row in rows) for i in range(len(keys)))
    head = [f"{label}, {what}" for label in METHODS.values() for what in points]
    note = "P@1 on validation parts, " + ("one seed." if seeds == 1 else f"mean of {seeds} seeds.")
    return table(("", *head), [*rows, ["mean", *(f"{one:.1f}" for one in means)]], path, note=note)


def gained(
    path: str,
    points: Mapping[str, Mapping[str, Collection[str]]],
    note: str,
    *,
    references: bool = False,
) -> str:
    """P@1 of each set with these changes, by method, and what each gains on the method's first."""
    found, best = _by_change(path), _best_references(path) if references else {}
    keys = [(method, *sorted(change)) for method, own in points.items() for change in own.values()]
    firsts = [(m, *sorted(next(iter(own.values())))) for m, own in points.items() for _ in own]
    means = {
        name: [statistics.mean(own[key]) if key in own else None for key in keys]
        for name, own in found.items()
    }
    rows = [
        [name, *_best(best.get(name)), *("" if one is None else f"{one:.1f}" for one in own)]
        for name, own in means.items()
    ]
    last = []
    for at, first in enumerate(firsts):
        other = keys.index(first)
        both = [(own[at], own[other]) for own in means.values()]
        gains = [a - b for a, b in both if a is not None and b is not None]
        error = statistics.stdev(gains) / len(gains) ** 0.5
        last.append("" if at == other else f"{statistics.mean(gains):+.1f} ± {error:.1f}")
    head = [f"{METHODS[method]}, {what}" for method, own in points.items() for what in own]
    beside = ("best reference", "its P@1") if references else ()
    rows.append(["gain", *("" for _ in beside), *last])
    return table(("", *beside, *head), rows, path, note=note)


def _best(found: tuple[str, float] | None) -> tuple[str, ...]:
    return () if found is None else (found[0], f"{found[1]:.1f}")


def before_and_now(now: str, before: str) -> str:
    """The same sets, parts and seeds with the earlier defaults and with these."""
    own = {path: _by_change(path) for path in (before, now)}
    beside = _best_references(now)
    rows = []
    for name in own[now]:
        cells = []
        for method in METHODS:
            for path in (before, now):
                if not (scores := own[path].get(name, {}).get((method,))):
                    raise UserError(f"{path}: no run of {name} with {method} and the defaults")
                cells.append(f"{statistics.mean(scores):.1f}")
        rows.append([name, beside[name][0], f"{beside[name][1]:.1f}", *cells])
    means = (statistics.mean(float(row[i]) for row in rows) for i in range(2, 3 + 2 * len(METHODS)))
    head = [f"{label}{when}" for label in METHODS.values() for when in (", before", "")]
    rows.append(["mean", "", *(f"{one:.1f}" for one in means)])
    note = "P@1 on test parts, mean of three seeds."
    return table(("", "best reference", "its P@1", *head), rows, now, before, note=note)


def _by_change(path: str) -> Scores:
    """Scores of runs that differ in their seed alone: also what part of a set they are judged on tells
    them apart, unless all runs of the set are judged on that one."""
    runs, shared = read(path)["runs"], dict[str, set[str]]()
    for run in runs:
        parts = {one for one in run.get("changes", []) if one.startswith("data.")}
        shared[run["set"]] = parts & shared.get(run["set"], parts)
    found: dict[str, dict[tuple[str, ...], list[float]]] = defaultdict(lambda: defaultdict(list))
    for run in runs:
        changes = set(run.get("changes", [])) - shared[run["set"]]
        found[run["set"]][run["method"], *sorted(changes)].append(run["metrics"]["P@1"])
    return found


def _best_references(path: str) -> dict[str, tuple[str, float]]:
    """The better of ridge and neighbours, mean over runs: seeds hold out other rows."""
    scores: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for run in read(path)["runs"]:
        for one in (one for one in REFERENCES if one in run["references"]):
            scores[run["set"]][one].append(run["references"][one]["P@1"])
    means = {name: {one: statistics.mean(v) for one, v in own.items()} for name, own in scores.items()}
    return {name: max(own.items(), key=lambda pair: pair[1]) for name, own in means.items()}
