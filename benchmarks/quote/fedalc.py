"""FedALC: Bibtex with one label a client, what was chosen for each arm, and what travels."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

from benchmarks.papers.fedalc import ARMS, a_round_of_all, linear_arms_of
from benchmarks.papers.published import figures_of
from benchmarks.quote.edges import edges, outermost
from benchmarks.quote.fedaws import CONSTANT
from benchmarks.quote.tables import Made, over_seeds, read, spread, table

LINEAR = linear_arms_of("bibtex")
LABELS = {name: arm.label for name, arm in {**LINEAR, **ARMS}.items()}
PERCENT = re.compile("instances with|distinct|labels with|commonest")
METRICS = ("P@1", "P@3", "P@5", "nDCG@5", "PSP@5", "mAP")
EDGE = "†"
REFERENCES = {
    "ridge": "Ridge regression (centralised)",
    "nearest neighbours": "Nearest neighbours (centralised)",
}


def positive_labels(path: str, paper: str | None = "fedalc-table6") -> str:
    """With what each arm was given; paper: the table of it that stands beside them."""
    made = read(path)
    printed = {
        label: " / ".join(f"{figure:.1f}" for figure in figures)
        for label, figures in (figures_of(paper) if paper else {}).items()
    }
    names = [name for name in METRICS if any(name in v["metrics"] for v in made["variants"])]
    rows = []
    for v in made["variants"]:
        scores = [v["metrics"].get(name) for name in names]
        config = made["configs"][v["name"]]
        linear = "-linear" in made["suite"]
        said = [f"{key} {value}" for key, value in chosen_of(v["name"], config, linear=linear)]
        theirs = [printed.get(v["label"], "–")] if paper else []
        given = (*theirs, ", ".join(said), str(config["rounds"]))
        rows.append([v["label"], *(spread(score) if score else "–" for score in scores), *given])
    empty = ["–"] * (3 if paper else 2)
    found: Made = next((v["references"] for v in made["variants"] if v.get("references")), {})
    for name, label in REFERENCES.items():
        if name in found:
            cells = (found[name].get(metric) for metric in names)
            rows.append([label, *(f"{one['mean']:.1f}" if one else "–" for one in cells), *empty])
    floor = made["constant"]
    scores = [f"{floor[name]:.1f}" if name in floor else "–" for name in names]
    rows.append([CONSTANT, *scores, *empty])
    paper_says = ["the paper: P@1 / 3 / 5"] if paper else []
    head = ("", *names, *paper_says, "chosen", "rounds")
    note = f"{over_seeds(made)} {edges(made, _tuning(path))}"
    return table(head, rows, path, note=note.strip())


def _tuning(path: str) -> str:
    return f"{path.removesuffix('.json')}-tuning.json"


def chosen_of(arm: str, config: Made, *, linear: bool) -> Iterator[tuple[str, Any]]:
    """What validation data chose for an arm, by key and value; rounds have a column of their own."""
    grid = LINEAR[arm].grid if linear and arm in LINEAR else ()
    for key in [key for key in grid if key != "rounds"] or (
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
    at_edges = outermost(made, _tuning(path))
    found: dict[str, dict[str, str]] = {}
    for v in made["variants"]:
        label, clients = v["label"].rsplit("; ", 1)
        scores = " / ".join(spread(v["metrics"][f"P@{k}"]) for k in (1, 3, 5))
        strength = made["configs"][v["name"]]["method"]["strength"]
        mark = EDGE if v["name"] in at_edges else ""
        found.setdefault(label, {})[clients] = f"{scores} (λ {strength:g}{mark})"
    sides = list(dict.fromkeys(side for cells in found.values() for side in cells))
    rows = [[label, *(cells.get(side, "–") for side in sides)] for label, cells in found.items()]
    note = f"{over_seeds(made)} {EDGE}: the smallest or the largest λ of those that were tried."
    return table(("P@1 / 3 / 5", *sides), rows, path, note=note)


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


def label_sets(path: str) -> str:
    """How labels meet in the made-up set, in what is published of EUR-Lex, and in real sets."""
    made = read(path)
    sets = made["sets"]
    heads = {"eurlex-shape": "the made-up set", "bibtex": "Bibtex", "delicious": "Delicious"}
    rows = []
    for name in sets["eurlex-shape"]:
        values = [made["published"].get(name), *(sets[one][name] for one in heads)]
        rows.append([name, *("–" if v is None else _said(name, v) for v in values)])
    return table(("training part", "EUR-Lex, published", *heads.values()), rows, path)


def _said(name: str, value: float) -> str:
    return f"{100 * value:.1f} %" if PERCENT.match(name) else f"{value:.2f}"


def strengths(path: str, names: str, arms: Sequence[str]) -> str:
    """P@1 / 3 / 5 by λ, clients weighed alike and by their examples, on validation instances."""
    made, labels = read(path), {v["name"]: v["label"] for v in read(names)["variants"]}
    found: dict[str, dict[str, str]] = {}
    for point in (one for one in made["points"] if one["arm"] in arms):
        strength, weighting = point["point"].rsplit("-", 1)
        scores = " / ".join(f"{point[f'P@{k}']:.1f}" for k in (1, 3, 5))
        found.setdefault(f"{labels[point['arm']]}, λ = {float(strength):g}", {})[weighting] = scores
    rows = [[label, one["uniform"], one["examples"]] for label, one in found.items()]
    head = ("P@1 / 3 / 5", "clients alike", "by examples")
    return table(head, rows, path, note="Validation, one run a point.")


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
