"""FedAwS: comparisons on digits and Bibtex, and the tables at extreme sizes."""

from __future__ import annotations

import re
from collections.abc import Iterator

from benchmarks.quote.edges import edges
from benchmarks.quote.tables import Made, over_seeds, read, spread, table

PRECISIONS = ("P@1", "P@3", "P@5")
SCORED = ("PSP@1", "PSP@3", "PSP@5")
TUNED = {  # as fedalc's comparison calls them
    "fedavg": "Baseline-1 (positive loss only)",
    "fedavg-fixed": "Baseline-2 (class rows fixed)",
    "fedaws": "FedAwS (spreadout)",
    "softmax": "Softmax oracle (centralised)",
}
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


def tuned(path: str) -> str:
    """The same arms, each with settings of its own that were chosen on validation data."""
    made = read(path)
    by_name = {v["name"]: v for v in made["variants"]}
    rows = [
        [label, *(spread(by_name[name]["metrics"][metric]) for metric in (*PRECISIONS, "PSP@5"))]
        for name, label in TUNED.items()
    ]
    rows.append([CONSTANT, *(f"{made['constant'][name]:.1f}" for name in PRECISIONS), "–"])
    return table(("", *PRECISIONS, "PSP@5"), rows, path, note=over_seeds(made))


def by_frequency(path: str) -> str:
    """Every arm of the comparison by frequency, and what needs no training, frequent classes apart."""
    made = read(path)
    rows = [
        [v["label"], *(_three(v["metrics"], names) for names in _groups())] for v in made["variants"]
    ]
    references = made["variants"][0]["references"]
    for name in ("ridge", "most frequent"):
        if name in references:
            rows.append([f"*{name}, in one place*", *(_three(references[name], n) for n in _groups())])
    return table(
        ("", "P@1 / 3 / 5", "PSP@1 / 3 / 5", "of P@k: frequent", "infrequent"),
        rows,
        path,
        note=f"Means over {len(made['seeds'])} seeds; the deviation of P@1 is "
        f"{_deviations(made)[0]:.1f} to {_deviations(made)[1]:.1f}. "
        f"{edges(made, path.replace('.json', '-tuning.json'))}",
    )


def _groups() -> Iterator[tuple[str, ...]]:
    yield PRECISIONS
    yield SCORED
    yield from (tuple(f"{name} {part}" for name in PRECISIONS) for part in ("frequent", "infrequent"))


def _three(scores: Made, names: tuple[str, ...]) -> str:
    known = [scores[name]["mean"] if name in scores else None for name in names]
    return " / ".join("–" if mean is None else f"{mean:.1f}" for mean in known)


def _deviations(made: Made) -> tuple[float, float]:
    found = [v["metrics"]["P@1"]["spread"] for v in made["variants"]]
    return min(found), max(found)


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
    note = over_seeds(made)  # of the last shape; all have as many
    return table(("", "", *PRECISIONS, "ms per round", "memory"), rows, *paths, note=note)


def strengths(*shapes: str) -> str:
    """P@1 on validation data by λ, and whatever else was tried."""
    paths = [f"results/extreme/tuning-{shape}.json" for shape in shapes]
    found = [{v["label"]: v["metrics"]["P@1"]["mean"] for v in read(p)["variants"]} for p in paths]
    labels = sorted({label for one in found for label in one}, key=_strength)
    rows = [[label, *(f"{one[label]:.1f}" if label in one else "" for one in found)] for label in labels]
    return table(("P@1, validation", *shapes), rows, *paths, note=over_seeds(read(paths[0])))


def _strength(label: str) -> tuple[bool, float, str]:
    """λ alone first, by its size."""
    alone = re.fullmatch(r"λ = ([\d.]+)", label)
    return alone is None, float(alone[1]) if alone else 0.0, label


def precisions(path: str) -> str:
    """A line for every variant of a file."""
    made = read(path)
    rows = [[v["label"], *_precisions(v)] for v in made["variants"]]
    return table(("", *PRECISIONS), rows, path, note=over_seeds(made))


def _precisions(variant: Made) -> Iterator[str]:
    return (f"{variant['metrics'][name]['mean']:.1f}" for name in PRECISIONS)
