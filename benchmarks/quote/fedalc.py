"""FedALC: Bibtex with one label a client, what was chosen for each arm, and what travels."""

from __future__ import annotations

from benchmarks.papers.fedalc import ARMS, a_round_of_all
from benchmarks.papers.published import figures_of
from benchmarks.quote.fedaws import CONSTANT
from benchmarks.quote.tables import over_seeds, read, spread, table

# The best λ of each method; the paper's FedAwS and FedALC mine K = 5.
PAPER = {
    label: " / ".join(f"{figure:.1f}" for figure in figures)
    for label, figures in figures_of("fedalc-table6").items()
}
METRICS = ("P@1", "P@3", "P@5", "nDCG@5", "PSP@5", "mAP")


def positive_labels(path: str) -> str:
    """Beside the paper's numbers, with what each arm was given."""
    made = read(path)
    rows = []
    for v in made["variants"]:
        scores = [v["metrics"].get(name) for name in METRICS]
        config = made["configs"][v["name"]]
        method = config["method"]
        keys = ["strength", "pull", "buckets", "scale"]
        central = method["name"].startswith("centralized")
        keys += [] if central else ["weighting"]
        said = [f"{key} {method[key]}" for key in keys if key in method]
        clients = config["clients"] if method["name"] == "centralized-sets" else {}
        said += [f"{key} {clients[key]}" for key in ("lr", "input_dropout") if key in clients]
        chosen = ", ".join(said)
        given = (PAPER.get(v["label"], "–"), chosen, str(config["rounds"]))
        rows.append([v["label"], *(spread(score) if score else "–" for score in scores), *given])
    floor = made["constant"]
    scores = [f"{floor[name]:.1f}" if name in floor else "–" for name in METRICS]
    rows.append([CONSTANT, *scores, "–", "–", "–"])
    head = ("", *METRICS, "the paper: P@1 / 3 / 5", "chosen", "rounds")
    return table(head, rows, path, note=over_seeds(made))


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
            rows.append([f"{ARMS[v['name']].label}, {kind}", *cells])
    return table(("", "P@1", "P@3", "P@5"), rows, path, note=over_seeds(made))


def sent(path: str) -> str:
    """Table IV: what travels in a round of all clients."""
    rows = [
        [label, f"{moved['down']:,.2f}", f"{moved['up']:,.2f}", f"{moved['once_up']:.2f}"]
        for label, moved in a_round_of_all(read(path))
    ]
    return table(("MiB per round of all clients", "server", "clients", "label sets, once"), rows)
