"""The part of the page about every single class, where they are few: how many of it are found."""

from __future__ import annotations

import html
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from spreadout.report.document import swatch
from spreadout.runs.arms import Arm

MOST = 100  # classes in a table; of more there is the chart of frequent against rare ones


def class_tables(arms: Sequence[Arm]) -> str:
    """A table for each set of held-out examples, with the arms side by side that are scored on it."""
    alike: dict[tuple[Any, ...], list[tuple[int, Arm]]] = {}
    for i, arm in enumerate(arms):
        tested = _tested(arm)
        if any(tested) and len(_rows(arm)) <= MOST:
            alike.setdefault((tuple(tested), tuple(arm.names), _depth(arm)), []).append((i, arm))
    return "".join(_table(some) for some in alike.values())


def _tested(arm: Arm) -> list[int]:
    """Held-out examples of each class."""
    return list(((arm.details or {}).get("classes") or {}).get("tested", []))


def _rows(arm: Arm) -> list[int]:
    """The classes that occur: in held-out examples, or in training."""
    each = (arm.details or {})["classes"]
    both = zip(each["tested"], each["trained"], strict=True)
    return [c for c, (n, m) in enumerate(both) if n or m]


def _depth(arm: Arm) -> int:
    return int((arm.details or {})["depth"])


def _table(arms: Sequence[tuple[int, Arm]]) -> str:
    _, first = arms[0]
    tested, trained = _tested(first), (first.details or {})["classes"]["trained"]
    rows = _rows(first)
    knows = any(trained)  # with [privacy] nobody may know which classes are frequent
    head = ["training examples"] if knows else []
    cells: dict[int, list[str]] = {c: [f"{trained[c]:,}"] if knows else [] for c in rows}
    head.append("held-out examples")
    for c in rows:
        cells[c].append(f"{tested[c]:,}")
    marked = [html.escape(name) for name in head]
    for i, arm in arms:
        label = f"{swatch(i)}<bdi>{html.escape(arm.label)}</bdi>: " if len(arms) > 1 else ""
        for name, shares in _shares(arm.details or {}).items():
            marked.append(f"{label}{name} (%)")
            for c in rows:
                cells[c].append(_percent(shares.get(c)))
    lines = "".join(
        f"<tr><th scope=row><bdi>{html.escape(_name(first.names, c))}</bdi></th>"
        f"{''.join(f'<td>{cell}</td>' for cell in cells[c])}</tr>"
        for c in rows
    )
    titles = "".join(f"<th scope=col>{name}</th>" for name in ("class", *marked))
    return (
        "<h3>Class by class</h3><div class=wide tabindex=0 role=region aria-label='Class by class'>"
        f"<table><thead><tr>{titles}</tr></thead><tbody>{lines}</tbody></table></div>"
        f"<p class=note>{_note(_depth(first))}</p>"
    )


def _shares(details: Mapping[str, Any]) -> dict[str, dict[int, float]]:
    """By column, the share of each class that has one."""
    each = details["classes"]
    recall = {c: f / n for c, (f, n) in enumerate(zip(each["found"], each["tested"], strict=True)) if n}
    if details["depth"] > 1:
        return {f"found among the first {details['depth']}": recall}
    precision = _precision(details["confused"] or [])
    return {"recall": recall, **({"precision": precision} if precision else {})}


def _precision(pairs: Iterable[Sequence[int]]) -> dict[int, float]:
    """Of the examples taken for a class, how many have it. pairs: class, taken for, examples."""
    taken, right = Counter[int](), Counter[int]()
    for true, guess, count in pairs:
        taken[guess] += count
        right[guess] += count if true == guess else 0
    return {c: right[c] / n for c, n in taken.items()}


def _name(names: Sequence[str], c: int) -> str:
    return names[c] if c < len(names) and names[c] else f"class {c}"


def _percent(share: float | None) -> str:
    return "–" if share is None else f"{100 * share:.1f}"


def _note(depth: int) -> str:
    if depth > 1:
        return "Of the first seed: the share of a class's held-out labels that are found."
    return (
        "Of the first seed. Recall: of a class's held-out examples, the share for which it is ranked "
        "first. Precision: of the examples for which a class is ranked first, the share that have it; a "
        "dash where there are none."
    )
