"""FedAwS: comparisons on digits and Bibtex, and the tables at extreme sizes."""

from __future__ import annotations

import re
from collections.abc import Iterator

from benchmarks.quote.tables import Made, read, spread, table

PRECISIONS = ("P@1", "P@3", "P@5")
CONSTANT = "Always the most frequent labels"


def comparison(path: str) -> str:
    made = read(path)
    names = list(made["variants"][0]["metrics"])
    rows = []
    for v in made["variants"]:
        moved = [v["bytes_per_client_round"][way] / 1024 for way in ("down", "up")]
        traffic = f"{moved[0]:.2f} / {moved[1]:.2f} KiB" if any(moved) else "–"
        classes = v.get("geometry") or v["gauges"]  # what earlier files call it
        geometry = (f"{classes['max_cosine']:.2f}", f"{classes['effective_rank']:.1f}")
        rows.append([v["label"], *map(spread, v["metrics"].values()), traffic, *geometry])
    rows.append([CONSTANT, *(f"{made['constant'][name]:.1f}" for name in names), "–", "–", "–"])
    note = f"Mean ± standard deviation over {len(made['seeds'])} seeds."
    head = ("", *names, "down / up per client and round", "largest cosine", "effective rank")
    return table(head, rows, path, note=note)


def extreme(*shapes: str) -> str:
    """Table 3 at every shape: precisions, and what a round takes alone on the machine."""
    rows, paths = [], []
    for shape in shapes:
        scores, rounds = (f"results/extreme/{kind}-{shape}.json" for kind in ("table3", "rounds"))
        paths += [scores, rounds]
        made, times = read(scores), {r["name"]: r for r in read(rounds)["results"]}
        for v in made["variants"]:
            took = times[v["name"]]
            cost = (f"{took['milliseconds']:.0f}", f"{took['peak_gb']:.1f} GiB")
            rows.append([shape, v["label"], *_precisions(v), *cost])
        floor = (f"{made['constant'][name]:.1f}" for name in PRECISIONS)
        rows.append([shape, CONSTANT, *floor, "–", "–"])
    return table(("", "", *PRECISIONS, "ms per round", "memory"), rows, *paths)


def strengths(*shapes: str) -> str:
    """P@1 on validation data by λ, and whatever else was tried."""
    paths = [f"results/extreme/tuning-{shape}.json" for shape in shapes]
    found = [{v["label"]: v["metrics"]["P@1"]["mean"] for v in read(p)["variants"]} for p in paths]
    labels = sorted({label for one in found for label in one}, key=_strength)
    rows = [[label, *(f"{one[label]:.1f}" if label in one else "" for one in found)] for label in labels]
    return table(("P@1, validation", *shapes), rows, *paths)


def _strength(label: str) -> tuple[bool, float, str]:
    """λ alone first, by its size."""
    alone = re.fullmatch(r"λ = ([\d.]+)", label)
    return alone is None, float(alone[1]) if alone else 0.0, label


def precisions(path: str) -> str:
    """A line for every variant of a file."""
    rows = [[v["label"], *_precisions(v)] for v in read(path)["variants"]]
    return table(("", *PRECISIONS), rows, path)


def _precisions(variant: Made) -> Iterator[str]:
    return (f"{variant['metrics'][name]['mean']:.1f}" for name in PRECISIONS)
