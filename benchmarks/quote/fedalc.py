"""FedALC: Bibtex with one label a client, what was chosen for each arm, and what travels."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from benchmarks.papers.fedalc import ARMS, LINEAR_ARMS, a_round_of_all
from benchmarks.papers.published import figures_of
from benchmarks.quote.fedaws import CONSTANT
from benchmarks.quote.tables import Made, over_seeds, read, spread, table

# The best λ of each method; the paper's FedAwS and FedALC mine K = 5.
PAPER = {
    label: " / ".join(f"{figure:.1f}" for figure in figures)
    for label, figures in figures_of("fedalc-table6").items()
}
LABELS = {name: arm.label for name, arm in {**LINEAR_ARMS, **ARMS}.items()}
METRICS = ("P@1", "P@3", "P@5", "nDCG@5", "PSP@5", "mAP")
REFERENCES = {
    "ridge": "Ridge regression (centralised)",
    "nearest neighbours": "Nearest neighbours (centralised)",
}


def positive_labels(path: str, *, beside: bool = True) -> str:
    """With what each arm was given; beside: the paper's numbers, where the set is the paper's."""
    made = read(path)
    names = [name for name in METRICS if any(name in v["metrics"] for v in made["variants"])]
    rows = []
    for v in made["variants"]:
        scores = [v["metrics"].get(name) for name in names]
        config = made["configs"][v["name"]]
        said = [f"{key} {value}" for key, value in chosen_of(v["name"], config)]
        paper = [PAPER.get(v["label"], "–")] if beside else []
        given = (*paper, ", ".join(said), str(config["rounds"]))
        rows.append([v["label"], *(spread(score) if score else "–" for score in scores), *given])
    empty = ["–"] * (3 if beside else 2)
    found: Made = next((v["references"] for v in made["variants"] if v.get("references")), {})
    for name, label in REFERENCES.items():
        if name in found:
            cells = (found[name].get(metric) for metric in names)
            rows.append([label, *(f"{one['mean']:.1f}" if one else "–" for one in cells), *empty])
    floor = made["constant"]
    scores = [f"{floor[name]:.1f}" if name in floor else "–" for name in names]
    rows.append([CONSTANT, *scores, *empty])
    paper_says = ["the paper: P@1 / 3 / 5"] if beside else []
    head = ("", *names, *paper_says, "chosen", "rounds")
    return table(head, rows, path, note=over_seeds(made))


def chosen_of(arm: str, config: Made) -> Iterator[tuple[str, Any]]:
    """What validation data chose for an arm, by key and value."""
    linear = config["model"].get("hidden") == []
    grid = LINEAR_ARMS[arm].grid if linear and arm in LINEAR_ARMS else ()
    for key in grid or (
        f"method.{key}" for key in ("strength", "pull", "buckets", "scale", "weighting")
    ):
        section, name = key.split(".")
        central = name == "weighting" and config["method"]["name"].startswith("centralized")
        if name in config[section] and not central:
            yield name if section != "server" else key, config[section][name]


def weighed(path: str, names: str) -> str:
    """The best validation point of each arm, with clients weighed alike and by their examples."""
    made, labels = read(path), {v["name"]: v["label"] for v in read(names)["variants"]}
    rows = []
    for arm, label in labels.items():
        points = [point for point in made["points"] if point["arm"] == arm]
        cells = []
        for weighting in ("uniform", "examples"):
            some = [point for point in points if weighting in point["point"].split("-")]
            if some:
                best = max(some, key=lambda point: sum(point[f"P@{k}"] for k in (1, 3, 5)))
                scores = " / ".join(f"{best[f'P@{k}']:.1f}" for k in (1, 3, 5))
                cells.append(f"{scores}, {best['mAP']:.1f}" if "mAP" in best else scores)
        if cells:
            rows.append([label, *cells])
    head = ("P@1 / 3 / 5, mAP", "equal weights", "weights by examples")
    return table(head, rows, path, note="Validation, one run a point.")


def correlated(path: str) -> str:
    """How pairs of labels are weighed, clients weighed alike and by their examples: on the test part."""
    made = read(path)
    found: dict[str, dict[str, str]] = {}
    for v in made["variants"]:
        label, clients = v["label"].rsplit("; ", 1)
        scores = " / ".join(spread(v["metrics"][f"P@{k}"]) for k in (1, 3, 5))
        strength = made["configs"][v["name"]]["method"]["strength"]
        found.setdefault(label, {})[clients] = f"{scores} (λ {strength:g})"
    sides = list(dict.fromkeys(side for cells in found.values() for side in cells))
    rows = [[label, *(cells.get(side, "–") for side in sides)] for label, cells in found.items()]
    return table(("P@1 / 3 / 5", *sides), rows, path, note=over_seeds(made))


def knobs(path: str) -> str:
    """One setting changed at a time, on validation instances."""
    made = read(path)
    rows = []
    for v in made["variants"]:
        nearest = v["geometry"]["max_cosine"]
        cells = [spread(v["metrics"][f"P@{k}"]) for k in (1, 3, 5)]
        rows.append([v["label"], *cells, "–" if nearest is None else f"{nearest:.2f}"])
    note = f"Validation. {over_seeds(made)}"
    return table(("", "P@1", "P@3", "P@5", "nearest two rows, cosine"), rows, path, note=note)


def known(path: str) -> str:
    """What votes of the nearest examples bring, on the test part."""
    made = read(path)
    rows = []
    for v in made["variants"]:
        for kind, scores in v["metrics"].items():
            cells = (spread(scores[f"P@{k}"]) for k in (1, 3, 5))
            rows.append([f"{LABELS[v['name']]}, {kind}", *cells])
    return table(("", "P@1", "P@3", "P@5"), rows, path, note=over_seeds(made))


def sent(path: str) -> str:
    """Table IV: what travels in a round of all clients."""
    rows = [
        [label, f"{moved['down']:,.2f}", f"{moved['up']:,.2f}", f"{moved['once_up']:.2f}"]
        for label, moved in a_round_of_all(read(path))
    ]
    return table(("MiB per round of all clients", "server", "clients", "label sets, once"), rows)
