"""FedMLH beside FedAvg: accuracy, what it took to get there, and what a round takes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from benchmarks.papers.fedmlh import KEPT
from benchmarks.quote.edges import edges
from benchmarks.quote.tables import (
    Made,
    gib,
    mib,
    over_seeds,
    read,
    spread,
    table,
)

MATCHED = tuple(f"results/fedmlh/{shape}-matched.json" for shape in ("eurlex", "wiki31"))
LARGE = tuple(f"results/fedmlh/{shape}-matched.json" for shape in ("amztitle", "wikititle"))

Curve = dict[str, list[float]]


def matched() -> str:
    """With labels as rare as in the published sets."""
    return hashed(*MATCHED, tuned=True)


def largest() -> str:
    """The two largest shapes: rates after few rounds, and what was tested."""
    rows, files, at_edges = [], [], []
    for path in LARGE:
        tuning = f"{path.removesuffix('.json')}-tuning.json"
        made, shape = read(path), _shape(path)
        labels = {v["name"]: v["label"] for v in made["variants"]}
        for point in read(tuning)["points"]:
            cells = [*(f"{point[name]:.2f}" for name in KEPT), str(point["round"]), gib(point["bytes"])]
            rows.append([f"{shape}, {labels[point['arm']]}, rate {point['point']}, held out", *cells])
        for v in made["variants"]:
            cells = [*(spread(v["metrics"][name], 2) for name in KEPT), f"{v['best']['round']:.0f}"]
            rate = made["configs"][v["name"]]["clients"]["lr"]
            said = f"{shape}, {v['label']}, rate {rate:g}, **test part**"
            rows.append([said, *cells, gib(v["best"]["bytes"])])
        usual = [f"{made['constant'][name]:.2f}" for name in KEPT[:3]]
        rows.append([f"{shape}, *always the most frequent labels*, test part", *usual, *["–"] * 3])
        files += [tuning, path]
        if said := edges(made, tuning):
            at_edges.append(f"{shape}: {said[0].lower()}{said[1:]}")
    return table(("", *KEPT, "rounds", "sent"), rows, *files, note=" ".join(["One seed.", *at_edges]))


START = {
    "even": "results/fedmlh/eurlex-matched.json",
    "rare": "results/fedmlh/eurlex-rare-start.json",
}
EARLY = (1, 2, 4, 8)  # rounds


def starts() -> str:
    """Outputs that begin at even odds or at those of a rare label: the first rounds, and the best."""
    rows = []
    for arm in ("fedmlh", "fedavg"):
        for start, path in START.items():
            v = next(one for one in read(path)["variants"] if one["name"] == arm)
            early = dict(zip(v["curve"]["round"], v["curve"]["P@1"], strict=True))
            cells = [
                *(f"{early[at]:.1f}" for at in EARLY),
                *(spread(v["metrics"][name]) for name in KEPT),
            ]
            rows.append([f"{v['label']}, {start}", *cells, f"{v['best']['round']:.0f}"])
    head = ("", *(f"P@1, round {at}" for at in EARLY), *(f"best {name}" for name in KEPT), "rounds")
    return table(head, rows, *START.values(), note=over_seeds(read(START["rare"])))


def hashed(*paths: str, tuned: bool = False) -> str:
    """On the test part, after as many rounds as were chosen; tuned: rates were chosen, too."""
    rows, arms, at_edges = [], [], []
    for path in paths:
        made = read(path)
        arms += made["variants"]
        plain = next(v for v in made["variants"] if v["name"] == "fedavg")
        for v in made["variants"]:
            rounds = chosen_round(made, v)
            each = sum(v["bytes_per_client_round"].values()) * cohort(made, v)
            passed = rounds_to(v["curve"], plain["curve"], chosen_round(made, plain))
            cells = [*(spread(v["metrics"][name]) for name in KEPT), f"{rounds:.0f}"]
            cells += [mib(v["model_bytes"], 2), *(mib(n * each) if n else "–" for n in (rounds, passed))]
            rows.append([f"{_shape(path)}, {v['label']}", *cells])
        if tuned and (said := edges(made, f"{path.removesuffix('.json')}-tuning.json")):
            at_edges.append(f"{_shape(path)}: {said[0].lower()}{said[1:]}")
    head = ("", *KEPT, "rounds", "model", "sent to best", "to FedAvg's end")
    note = " ".join((over_seeds({**made, "variants": arms}), *at_edges))
    return table(head, rows, *paths, note=note)


def _shape(path: str) -> str:
    return Path(path).stem.removesuffix("-curves").removesuffix("-matched")


def hashed_curves(*paths: str) -> str:
    """The same on held-out instances, at the best round there was."""
    rows = []
    for path in paths:
        made = read(path)
        plain = next(arm["curve"] for arm in made["arms"] if arm["arm"] == "fedavg")
        aim = max(_means(plain))
        for arm in made["arms"]:
            curve, means = arm["curve"], _means(arm["curve"])
            best = means.index(max(means))
            passed = next((at for at, mean in enumerate(means) if mean >= aim), None)
            cells = [*(f"{curve[name][best]:.1f}" for name in KEPT)]
            cells += [f"{curve['round'][best]} of {curve['round'][-1]}", mib(arm["model_bytes"])]
            cells += ["–" if at is None else gib(curve["bytes"][at]) for at in (best, passed)]
            rows.append([f"{_shape(path)}, {arm['label']}", *cells])
    head = ("", *KEPT, "best of rounds", "model", "sent to best", "to FedAvg's best")
    return table(head, rows, *paths)


SHARES = (0.95, 0.98, 0.99, 1.0)


def by_frequency() -> str:
    """Figure 3 in figures: hits on frequent and on other classes."""
    names = [f"P@{k} {part}" for part in ("frequent", "infrequent") for k in (1, 3, 5)]
    rows = []
    for path in MATCHED:
        for v in (v for v in read(path)["variants"] if v["name"] in ("fedmlh", "fedavg")):
            cells = (spread(v["metrics"][name]) for name in names)
            rows.append([f"{_shape(path)}, {v['label']}", *cells])
    return table(("", *names), rows, *MATCHED)


def matched_sent() -> str:
    return sent_to(*MATCHED)


def sent_to(*paths: str) -> str:
    """Bytes to shares of a method's own best, and to FedAvg's best: 100 % alone says little.

    Curves are means over seeds on the test part, or of one run on held-out instances.
    """
    rows = []
    for path in paths:
        found = list(_sent_curves(read(path)))
        plain = next(curve for name, _, curve in found if name == "fedavg")
        for name, label, curve in found:
            if name not in ("fedmlh", "fedavg"):
                continue
            own = [_sent_until(curve, share * max(_means(curve))) for share in SHARES]
            cells = [*own, _sent_until(curve, max(_means(plain)))]
            sent = ("–" if at is None else f"{at / 2**20:,.0f}" for at in cells)
            rows.append([f"{_shape(path)}, {label}", *sent])
    head = ("MiB sent until", *(f"{100 * share:g} % of its best" for share in SHARES), "FedAvg's best")
    return table(head, rows, *paths)


def _sent_curves(made: Made) -> Iterator[tuple[str, str, Curve]]:
    """Of each arm: its name, its label, and its curve with the bytes of all clients by then."""
    for v in made.get("variants", ()):
        each = sum(v["bytes_per_client_round"].values()) * cohort(made, v)
        sent = [round * each for round in v["curve"]["round"]]
        yield v["name"], v["label"], {**v["curve"], "bytes": sent}
    for arm in made.get("arms", ()):
        yield arm["arm"], arm["label"], arm["curve"]


def _sent_until(curve: Curve, aim: float) -> float | None:
    """What was sent when the mean of P@1, P@3 and P@5 first was so high; None: it never was."""
    reached = zip(curve["bytes"], _means(curve), strict=True)
    return next((sent for sent, mean in reached if mean >= aim - 1e-9), None)


def _means(curve: Curve) -> list[float]:
    """Of P@1, P@3 and P@5, round by round."""
    return [sum(values) / 3 for values in zip(*(curve[f"P@{k}"] for k in (1, 3, 5)), strict=True)]


def chosen_round(made: Made, variant: Made) -> float:
    """Rounds that an arm is scored after: all it had, or what its own held-out instances chose."""
    config = made["configs"][variant["name"]]
    stops = config["eval"].get("patience") is not None
    return float(variant["best"]["round"] if stops else config["rounds"])


def cohort(made: Made, variant: Made) -> int:
    return int(made["configs"][variant["name"]]["clients"]["per_round"])


def rounds_to(curve: Curve, other: Curve, at: float) -> int | None:
    """The first round whose mean of P@1, P@3 and P@5 is what another curve has in round `at`."""
    place = min(range(len(other["round"])), key=lambda i: abs(other["round"][i] - at))
    aim = _means(other)[place]
    reached = (r for r, mean in zip(curve["round"], _means(curve), strict=True) if mean >= aim)
    return next((int(r) for r in reached), None)


def hashed_rounds(*paths: str) -> str:
    rows = []
    for r in (r for path in paths for r in read(path)["results"]):
        cells = [f"{r['seconds']:.2f}", f"{r['local_steps']:,}", f"{r['model_mb']:.2f} MiB"]
        rows.append([f"{r['shape']}, {r['label']}", *cells, f"{r['peak_gb']:.2f} GiB"])
    return table(("", "seconds per round", "local steps", "model", "memory"), rows, *paths)
