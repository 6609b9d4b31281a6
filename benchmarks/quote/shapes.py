"""Synthetic sets in the shapes of published ones: labels asked and reached, and what a softmax finds."""

from __future__ import annotations

from typing import Any

from benchmarks.quote.tables import read, table

MEANS = ("instances_per_label", "labels_per_instance")
SHARES = ("rare_share", "few_share", "with_an_example", "most_frequent")


def labels(path: str) -> str:
    """Asked → reached, for every shape."""
    made = read(path)
    rows = []
    for name, found in made["labels"].items():
        asked, reached = found["asked"], found["reached"]
        means = [_pair(asked[key], reached[key], "{:.2f}") for key in MEANS]
        shares = [_pair(asked.get(key), reached[key], "{:.1%}") for key in SHARES]
        law = f"{found['exponent']:g}, {found['head']:g}"
        rows.append([name, f"{found['classes']:,}", *means, *shares, law])
    head = (
        "", "classes", "instances a label", "labels an instance", "positives below 10⁻⁴",
        "labels with at most 5", "with an example", "commonest label", "exponent, head",
    )  # fmt: skip
    note = "Asked → reached, training part; – is not published. In the two sets with titles: at most 4."
    return table(head, rows, path, note=f"{note} {_cost(made)}")


def _cost(made: dict[str, Any]) -> str:
    cost = made["cost"]
    spent = f"{cost['seconds']:.0f} s with {cost['memory_mb']} MB of memory"
    return f"All of {cost['shape']} is written in {spent}, on one core."


def drawn(path: str) -> str:
    """What the old law had at the same sizes."""
    rows = []
    for name, found in read(path)["labels"].items():
        if (old := found["drawn"]) is not None:
            kept, new = (f"{part['with_an_example']:.1%}" for part in (old, found["reached"]))
            most = [f"{part['most_frequent']:.1%}" for part in (old, found["reached"])]
            means = [f"{part['labels_per_instance']:.2f}" for part in (old, found["reached"])]
            rows.append([name, f"{kept} → {new}", " → ".join(most), " → ".join(means)])
    head = ("drawn → matched", "labels with an example", "commonest label", "labels an instance")
    return table(head, rows, path)


def oracle(path: str) -> str:
    """P@1 of a softmax in one place at the chosen share of prototypes."""
    rows = []
    for name, found in read(path)["oracle"].items():
        tried = ", ".join(f"{share}: {score:.1f}" for share, score in found["validation"].items())
        test = " / ".join(f"{found['test'][f'P@{k}']:.1f}" for k in (1, 3, 5))
        rows.append([name, f"{found['published']:.1f}", tried, f"{found['shown']:g}", test])
    head = ("", "published P@1", "validation P@1 by `shown`", "chosen", "test P@1 / 3 / 5")
    return table(head, rows, path)


def _pair(asked: float | None, reached: float, form: str) -> str:
    return f"{'–' if asked is None else form.format(asked)} → {form.format(reached)}"
