"""How the defaults were chosen: a choice judged on the set it was made without."""

from __future__ import annotations

import statistics
from collections.abc import Collection
from typing import Any

from benchmarks.quote.tables import read, table

METHODS = {"fedaws": "FedAwS", "fedalc": "FedALC", "fedss": "FedSS"}
ALL = {**METHODS, "fedavg": "FedAvg", "fedmlh": "FedMLH"}
CENTRAL = {"centralized": "softmax", "centralized-sets": "label sets"}
REFERENCES = ("most frequent", "nearest neighbours", "ridge")
HISTORIES, NEXT = "dual_encoder", ("R@1", "R@10", "nDCG@10")
TUNED = {  # files of configs that were tuned on a set: their arms, and which method each is
    "bibtex": (
        "results/fedalc/bibtex.json",
        {"fedaws": "fedaws", "fedaws-mined": "fedaws", "fedalc": "fedalc", "fedalc-mined": "fedalc"},
    ),
    "omniglot": ("results/fedss/omniglot.json", {"fedss-10": "fedss", "full": "fedavg"}),
}
Runs = list[dict[str, Any]]


def reached(path: str) -> str:
    """P@1 of every method on every set with nothing set, beside what trivial and central models have."""
    rows = []
    for name, found in _by_set(path).items():
        known = next(iter(found.values()))[0]["references"]
        references = [f"{known[one]['P@1']:.1f}" if one in known else "" for one in REFERENCES]
        metric = _metric(found)
        label = name if metric == "P@1" else f"{name}, {metric}"
        rows.append([label, *references, *(_mean(found.get(m, [])) for m in (*CENTRAL, *ALL))])
    head = ("", *REFERENCES, *(f"{label}, centralised" for label in CENTRAL.values()), *ALL.values())
    seeds = "P@1, mean of two or three seeds; in parentheses one seed."
    return table(head, rows, path, note=seeds)


def shares(path: str) -> str:
    """What the methods have of the best central model: the best of ridge, neighbours and one place."""
    rows = []
    for name, found in _by_set(path).items():
        known = next(iter(found.values()))[0]["references"]
        central = {one: known[one]["P@1"] for one in REFERENCES[1:] if one in known}
        central |= {f"{CENTRAL[m]}, centralised": _p1(found[m]) for m in CENTRAL if m in found}
        best = max(central, key=lambda one: central[one])
        own = (_percent(_p1(found[m]) / central[best]) if m in found else "" for m in METHODS)
        rows.append([name, best, f"{central[best]:.1f}", *own])
    return table(("", "best central model", "its P@1", *METHODS.values()), rows)


def unseen(path: str, known: Collection[str] = ("digits",)) -> str:
    """Sets that nothing was chosen on: the three methods beside what is trivial and the best reference.

    known: sets of the file that were looked at before.
    """
    rows = []
    for name, found in _by_set(path).items():
        if name in known:
            continue
        beside = _references(found)
        best = max(REFERENCES[1:], key=lambda one: beside.get(one, 0.0))
        cells = [f"{beside[one]:.1f}" for one in (REFERENCES[0], best)]
        cells.insert(1, best)
        for method in METHODS:
            runs = found.get(method, [])
            cells.append(f"{_mean(runs)}: {_percent(_p1(runs) / beside[best])}" if runs else "")
        rows.append([name, *cells])
    head = ("", "most frequent", "best reference", "its P@1", *METHODS.values())
    note = "P@1, mean of two or three seeds; in parentheses one seed. In percent of the best reference."
    return table(head, rows, path, note=note)


def _references(found: dict[str, Runs]) -> dict[str, float]:
    """P@1 of each reference, mean over all runs: without a test part seeds hold out other rows."""
    runs = [run["references"] for own in found.values() for run in own]
    return {one: statistics.mean(run[one]["P@1"] for run in runs) for one in runs[0]}


def tuned(path: str, defaults: str) -> str:
    """What the best of some drawn configs, by validation examples, adds to the default."""
    plain, rows = _by_set(defaults), []
    points: dict[tuple[str, str], dict[str, Runs]] = {}
    for run in read(path)["runs"]:
        points.setdefault((run["set"], run["method"]), {}).setdefault(run["split"], []).append(run)
    for (name, method), own in points.items():
        if "test" not in own:
            continue
        best = own["test"]
        seeds = {run["seed"] for run in best}
        ours = [run for run in plain[name][method] if run["seed"] in seeds]
        rows.append(
            [
                name,
                METHODS[method],
                str(len(own["validation"])),
                str(len(seeds)),
                f"{_p1(ours):.1f}",
                f"{_p1(best):.1f}",
                _percent(_p1(ours) / _p1(best)),
                _changed(best[0]) if best[0]["changes"] else "the default",
            ]
        )
    scores = ("default", "tuned", "default in % of tuned")
    head = ("set", "method", "points", "seeds", *scores, "best point")
    return table(head, rows, path, note="P@1 on the test part, mean over the same seeds.")


def beside_tuned(path: str) -> str:
    """The defaults beside configs that were tuned on the set by validation examples, for other pages."""
    plain, rows = _by_set(path), []
    for name, (file, methods) in TUNED.items():
        arms = {one["name"]: one for one in read(file)["variants"]}
        for arm, method in methods.items():
            metric, ours = _metric(plain[name]), plain[name][method]
            best = arms[arm]["metrics"][metric]["mean"]
            share = _percent(_p1(ours) / best)
            rows.append([name, arms[arm]["label"], metric, _mean(ours), f"{best:.1f}", share])
    head = ("set", "method", "metric", "default", "tuned", "default in % of tuned")
    return table(head, rows, *(file for file, _ in TUNED.values()))


def next_items(path: str) -> str:
    """The same for histories, beside what knows the last item only, or none."""
    rows = []
    for name, found in _by_set(path, histories=True).items():
        known = {one: [scores] for one, scores in found[HISTORIES][0]["references"].items()}
        known["federated dual encoder"] = [run["metrics"] for run in found[HISTORIES]]
        for one, scores in known.items():
            cells = [statistics.mean(each[metric] for each in scores) for metric in NEXT]
            rows.append([name, one, *(f"{value:.1f}" for value in cells)])
    return table(("", "", *NEXT), rows, path)


def _by_set(path: str, *, histories: bool = False) -> dict[str, dict[str, Runs]]:
    """The runs that were not refused, by set and method: those on histories, or all others."""
    found: dict[str, dict[str, Runs]] = {}
    for run in read(path)["runs"]:
        if "metrics" in run and (run["method"] == HISTORIES) == histories:
            found.setdefault(run["set"], {}).setdefault(run["method"], []).append(run)
    return found


def _p1(runs: Runs) -> float:
    """The mean of the first metric, which is P@1 wherever there is one."""
    return statistics.mean(float(next(iter(run["metrics"].values()))) for run in runs)


def _metric(found: dict[str, Runs]) -> str:
    return str(next(iter(next(iter(found.values()))[0]["metrics"])))


def _mean(runs: Runs) -> str:
    if not runs:
        return ""
    return f"{_p1(runs):.1f}" if len(runs) > 1 else f"({_p1(runs):.1f})"


def trials(path: str) -> str:
    """What was changed of a default, and its first metric on a validation part."""
    rows = []
    for run in read(path)["runs"]:
        if "metrics" in run:
            name, value = next(iter(run["metrics"].items()))
            rows.append([run["set"], run["method"], _changed(run), f"{name} {value:.1f}"])
    return table(("set", "method", "changed", "score"), rows, path)


def found_rates(path: str) -> str:
    """One rate for all sets, a rate by a short range test, and no rate: P@1 as a share of the best."""
    scores: dict[tuple[str, str], dict[tuple[str, bool], float]] = {}
    for run in read(path)["runs"]:
        asked = dict(one.split("=") for one in run["changes"])
        rule = "DoG" if asked["server.optimizer"] == "dog" else asked["server.lr"]
        own = scores.setdefault((run["method"], run["set"]), {})
        own[rule, "rounds" in asked] = run["metrics"]["P@1"]
    shares: dict[tuple[str, str], list[float]] = {}
    for (method, _), own in scores.items():
        fixed = [rule for rule, short in own if rule != "DoG" and not short]
        tested = max(fixed, key=lambda rate: own[rate, True])
        best = max(own[rate, False] for rate in fixed)
        for rule in (*fixed, "DoG"):
            shares.setdefault((rule, method), []).append(own[rule, False] / best)
        shares.setdefault(("a range test", method), []).append(own[tested, False] / best)
    rules = list(dict.fromkeys(rule for rule, _ in shares))
    rows = []
    for rule in sorted(rules):
        both = [shares[rule, method] for method in ("fedaws", "fedss")]
        cells = [f"{100 * statistics.mean(own):.0f} / {100 * min(own):.0f} %" for own in both]
        rows.append([rule if rule in ("DoG", "a range test") else f"Adam at {rule}", *cells])
    return table(("server", "FedAwS, mean / smallest", "FedSS"), rows, path)


def _changed(run: dict[str, Any]) -> str:
    return ", ".join(f"`{one}`" for one in run.get("changes", [])) or "–"


def left_out(path: str, search: str) -> str:
    """For every set: P@1 of what was chosen on the others, and the best that was found there."""
    methods, sets = read(path)["methods"], read(search)["sets"]
    found = {method: {one["set"]: one for one in methods[method]["left out"]} for method in METHODS}
    rows = [
        [name, f"{about['rows']:,}", f"{about['classes']}", *(_share(found[m][name]) for m in METHODS)]
        for name, about in sets.items()
    ]
    for which in ("mean", "median"):
        rows.append([which, "", "", *(_percent(methods[m][f"{which} share"]) for m in METHODS)])
    head = ("left out", "rows", "classes", *METHODS.values())
    compared = ", ".join(f"{methods[m]['configs']} for {name}" for m, name in METHODS.items())
    note = f"P@1 in percent. Configs that were run on all sets: {compared}."
    return table(head, rows, path, note=note)


def _share(one: dict[str, Any]) -> str:
    return f"{one['P@1']:.1f} of {one['best P@1']:.1f}: {_percent(one['share'])}"


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"


def tried_later(path: str) -> str:
    """Configs put together by hand, by their share of the best that the search had found."""
    rows = []
    for method, name in METHODS.items():
        for i, one in enumerate(read(path)["methods"][method]["tried later"]):
            changed = ", ".join(f"`{key} = {value}`" for key, value in one["config"].items())
            shares = [
                _percent(one[key]) for key in ("mean share", "smallest", "best drawn on these sets")
            ]
            rows.append([name, changed if i else "put together", str(one["sets"]), *shares])
    head = ("", "config", "sets", "mean share", "smallest", "best drawn config, on the same sets")
    return table(head, rows)


def exact_steps(path: str) -> str:
    """The same configs with the steps of the search and with the package's."""
    points = read(path)["points"]
    names = list(dict.fromkeys(point["set"] for point in points))
    rows = []
    for method, label in METHODS.items():
        own = {point["set"]: point for point in points if point["method"] == method}
        cells = [
            f"{statistics.mean(own[name]['searched']):.1f} / {statistics.mean(own[name]['exact']):.1f}"
            for name in names
        ]
        rows.append([label, *cells])
    note = f"P@1, mean of {read(path)['seeds']} seeds, steps of the search / of the package."
    return table(("", *names), rows, path, note=note)
