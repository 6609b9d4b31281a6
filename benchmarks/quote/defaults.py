"""How the defaults were chosen: a choice judged on the set it was made without."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Collection
from typing import Any

from benchmarks.defaults.leave_one_out import BY_SIZE
from benchmarks.defaults.points import ADAM
from benchmarks.quote.tables import read, table

METHODS = {"fedaws": "FedAwS", "fedalc": "FedALC", "fedss": "FedSS"}
ALL = {**METHODS, "fedavg": "FedAvg", "flag": "FLAG", "fedmlh": "FedMLH"}
CENTRAL = {"centralized": "softmax", "centralized-sets": "label sets"}
REFERENCES = ("most frequent", "nearest neighbours", "ridge")
WHOLE = frozenset({"centralized-sets", "fedmlh"})  # clients of these, where they hold label sets
HISTORIES, NEXT = "dual_encoder", ("R@1", "R@10", "nDCG@10")
COUNTED = ("popularity", "successor", "item-kNN")  # what next items are compared with
BY_PRIOR = {  # what is changed of the default
    "no prior": ["method.prior=0"],
    "default": [],
    "clients' counts": ["method.prior=auto"],
}
TUNED = {  # files of configs that were tuned on a set: their arms, and which method each is
    "bibtex": (
        "results/fedalc/bibtex.json",
        {"fedaws": "fedaws", "fedaws-mined": "fedaws", "fedalc": "fedalc", "fedalc-mined": "fedalc"},
    ),
    "omniglot": ("results/fedss/omniglot.json", {"fedss-10": "fedss", "full": "fedavg"}),
}
PRIORS = {"fedss": "validation counts, cautiously", "fedaws": "clients' counts, cautiously"}
COUNTS_AS_THEY_ARE = "2 errors, else likeliest beyond 3.84"  # FedAwS's default before the next
TRUST = {  # the defaults of the package
    "fedaws": "likeliest beyond 0 where the prior has fewer than 0.6",
    "fedss": "exponent 0.5",
    "fedavg": "exponent 0.5",
}
FLOOR = "fedaws"  # was run on small sets before and after its present rule
CHOSEN = {"fedaws": "the default", "fedss": BY_SIZE}  # the rule of a search that is the default
Runs = list[dict[str, Any]]


def reached(path: str) -> str:
    """P@1 of every method on every set with nothing set, beside what trivial and central models have."""
    rows = []
    for name, found in _by_set(path).items():
        known = _references(found)
        references = [f"{known[one]:.1f}" if one in known else "" for one in REFERENCES]
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
        known = _references(found)
        central = {one: known[one] for one in REFERENCES[1:] if one in known}
        central |= {f"{CENTRAL[m]}, centralised": _p1(found[m]) for m in CENTRAL if m in found}
        best = max(central, key=lambda one: central[one])
        own = (f"{100 * _p1(found[m]) / central[best]:.1f} %" if m in found else "" for m in METHODS)
        rows.append([name, best, f"{central[best]:.1f}", *own])
    return table(("", "best central model", "its P@1", *METHODS.values()), rows)


def unseen(path: str, known: Collection[str] = ()) -> str:
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


def with_floor(now: str, before: str) -> str:
    """Small sets with the rule for models that are no better than the prior, and with the one before."""
    rows, below, runs = [], dict.fromkeys((before, now), 0), dict.fromkeys((before, now), 0)
    for name, found in _by_set(now).items():
        cells = [f"{_references(found)[REFERENCES[0]]:.1f}"]
        for path in (before, now):
            own = _by_set(path)[name][FLOOR]
            least = [run["references"][REFERENCES[0]]["P@1"] for run in own]
            pairs = zip(own, least, strict=True)
            below[path] += sum(run["metrics"]["P@1"] < one - 1e-6 for run, one in pairs)
            runs[path] += len(own)
            cells.append(_mean(own))
        unused = sum("inputs unused" in run["findings"] for run in own)
        rows.append([name, *cells, str(unused) if unused else ""])
    rows.append(["runs below", "", *(f"{below[path]} of {runs[path]}" for path in below), ""])
    head = ["", REFERENCES[0], *(f"{METHODS[FLOOR]}{when}" for when in (", before", "", ", by prior"))]
    note = "P@1, mean of three seeds; by prior: runs that rank by the prior alone."
    return table(head, rows, now, before, note=note)


def trust(path: str) -> str:
    """Rules of how far a model is trusted: means over sets, and runs below always the most frequent."""
    by_rule: dict[str, list[str]] = {}
    methods: dict[str, None] = {}
    made = read(path)["rules"]
    earlier = TRUST["fedaws"] not in {one["rule"] for one in made}
    default = {**TRUST, "fedaws": COUNTS_AS_THEY_ARE} if earlier else TRUST
    for one in made:
        methods[one["method"]] = None
        marks = "**" if one["rule"] == default[one["method"]] else ""
        cells = [f"{marks}{one['P@1']:.1f}{marks}", f"{one['below']} of {one['runs']}, {one['by']:.1f}"]
        by_rule.setdefault(one["rule"], []).extend(cells)
    head = [cell for method in methods for cell in (ALL[method], "below")]
    note = "P@1, mean over sets and seeds. Below: runs below always the most frequent label, and by how"
    note += " many points together. In bold what became the default."
    return table(("rule", *head), list(map(_row, by_rule.items())), path, note=note)


def trust_gained(*parts: tuple[str, str]) -> str:
    """What FedAwS gains by a rule on groups of sets, beside the rule before. parts: name and file."""
    by_rule: dict[str, list[str]] = {}
    for _, path in parts:
        for one in (one for one in read(path)["rules"] if one["method"] == "fedaws"):
            marks = "**" if one["rule"] == TRUST["fedaws"] else ""
            gained = f"{marks}{one['gain']:+.2f} ± {one['error']:.2f}{marks}"
            lost = one["worst"]["gain"] < 0
            worst = f"{one['worst']['set']} {one['worst']['gain']:+.1f}" if lost else ""
            cells = [gained, worst, f"{one['below']} of {one['runs']}, {one['by']:.1f}"]
            by_rule.setdefault(one["rule"], []).extend(cells)
    whole = {rule: cells for rule, cells in by_rule.items() if len(cells) == 3 * len(parts)}
    head = [cell for what, _ in parts for cell in (what, "worst", "below")]
    note = (
        "In bold the default. P@1 that FedAwS gains, mean over sets with a standard error; the set that"
    )
    note += " loses most, if one does; runs below always the most frequent label, and by how many"
    note += " points together."
    files = [path for _, path in parts]
    return table(("rule", *head), list(map(_row, whole.items())), *files, note=note)


def _row(named: tuple[str, list[str]]) -> list[str]:
    return [named[0], *named[1]]


def _references(found: dict[str, Runs]) -> dict[str, float]:
    """P@1 of each reference, mean over seeds: without a test part seeds hold out other rows.

    Of methods that were given whole label sets, references had instances without labels too when these
    files were made. They are passed over where other methods tell the same.
    """
    given = [found[m] for m in found if m not in WHOLE] or list(found.values())
    values: dict[str, dict[int, list[float]]] = {}
    for run in (run for own in given for run in own):
        for one, scores in run["references"].items():
            if "P@1" in scores:
                values.setdefault(one, {}).setdefault(run["seed"], []).append(scores["P@1"])
    return {
        one: statistics.mean(statistics.mean(own) for own in by_seed.values())
        for one, by_seed in values.items()
    }


def tuned(path: str, defaults: str) -> str:
    """What the best of some drawn configs, by validation examples, adds to the default."""
    plain, rows = {**_by_set(defaults), **_by_set(defaults, histories=True)}, []
    labels = {**ALL, HISTORIES: "dual encoder"}
    labels |= {method: f"{label}, centralised" for method, label in CENTRAL.items()}
    points: dict[tuple[str, str], dict[str, Runs]] = {}
    for run in read(path)["runs"]:
        points.setdefault((run["set"], run["method"]), {}).setdefault(run["split"], []).append(run)
    for (name, method), own in points.items():
        if "test" not in own:
            continue
        best = own["test"]
        ours = [run for run in plain[name][method] if run["seed"] in {one["seed"] for one in best}]
        seeds = {run["seed"] for run in ours}
        best = [run for run in best if run["seed"] in seeds]
        rows.append(
            [
                name,
                labels[method],
                str(len(own["validation"])),
                str(len(seeds)),
                _metric({method: ours}),
                f"{_p1(ours):.1f}",
                f"{_p1(best):.1f}",
                _percent(_p1(ours) / _p1(best)),
                _changed(best[0]) if best[0]["changes"] else "the default",
            ]
        )
    scores = ("default", "tuned", "default in % of tuned")
    head = ("set", "method", "points", "seeds", "metric", *scores, "best point")
    return table(head, rows, path, note="On the test part, mean over the same seeds.")


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


def popularity(path: str) -> str:
    """Logs without a prior, with the default one and with clients' counts, beside what is popular.

    Of each log the seeds that all its arms have: each draws other test users.
    """
    rows, every = [], dict[str, Runs]()
    for name, found in _by_set(path, histories=True).items():
        arms = {
            arm: {run["seed"]: run for run in found[HISTORIES] if run.get("changes", []) == changes}
            for arm, changes in BY_PRIOR.items()
        }
        seeds = sorted(set.intersection(*(set(runs) for runs in arms.values() if runs)))
        known = [next(runs[seed] for runs in arms.values() if runs)["references"] for seed in seeds]
        cells = [f"{statistics.mean(of[one]['R@10'] for of in known):.1f}" for one in COUNTED]
        for arm, runs in arms.items():
            own = [runs[seed] for seed in seeds if runs]
            every.setdefault(arm, []).extend(own)
            cells.append(_mean(own))
        rows.append([name, *cells])
    rows.append(
        ["runs below popularity", *("" for _ in COUNTED), *map(_below_popularity, every.values())]
    )
    note = "R@10 on test users, mean over seeds; in parentheses one seed. Runs below: by how many points"
    note += " together."
    return table(("", *COUNTED, *BY_PRIOR), rows, path, note=note)


def _below_popularity(runs: Runs) -> str:
    if not runs:
        return ""
    lost = [run["references"][COUNTED[0]]["R@10"] - run["metrics"]["R@10"] for run in runs]
    below = [points for points in lost if points > 1e-6]
    return f"{len(below)} of {len(runs)}" + (f", {sum(below):.1f}" if below else "")


def prior_rules(path: str) -> str:
    """Ways to find a prior: P@1 over sets, and what it is below always the most frequent label."""
    found = _by_rule(path)
    rows = []
    for rule in next(iter(found["fedss"].values())):
        cells = [rule]
        for method, own in found.items():
            lost = [max(0.0, one["most frequent"] - one[rule]) for one in own.values()]
            mean = f"{statistics.mean(one[rule] for one in own.values()):.1f}"
            cells.append(f"**{mean}**" if rule == PRIORS[method] else mean)
            cells.append(f"{sum(value > 0 for value in lost)}, {sum(lost):.1f}" if any(lost) else "")
        rows.append(cells)
    head = ("prior", *(cell for method in found for cell in (METHODS[method], "below")))
    sets, seeds = len(found["fedss"]), _seeds(path)
    note = (
        f"P@1, mean of {sets} sets and {seeds} seeds. Below: on how many sets it is below always the "
        "most frequent label, and by how many points together. In bold the default."
    )
    return table(head, rows, path, note=note)


def prior_gains(path: str) -> str:
    """What the default of each method, below 100 validation examples, adds to no prior: set by set."""
    found = _by_rule(path)
    rows = []
    for name, first in found["fedss"].items():
        cells = [name, f"{first['most frequent']:.1f}"]
        for method, own in found.items():
            plain, chosen = own[name]["no prior"], own[name][PRIORS[method]]
            cells += [f"{plain:.1f}", f"{chosen:.1f}", f"{chosen - plain:+.1f}"]
        rows.append(cells)
    each = [(f"{METHODS[method]}, no prior", "default", "gain") for method in found]
    head = ("200 rows of", "most frequent", *(cell for cells in each for cell in cells))
    return table(head, rows, path, note=f"P@1, mean of {_seeds(path)} seeds.")


def _by_rule(path: str) -> dict[str, dict[str, dict[str, float]]]:
    """P@1 by method, set and rule."""
    found: dict[str, dict[str, dict[str, float]]] = {}
    for run in read(path)["runs"]:
        found.setdefault(run["method"], {})[run["set"].rpartition("-")[0]] = run["P@1"]
    return found


def _seeds(path: str) -> int:
    return min(int(run["seeds"]) for run in read(path)["runs"])


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


def moved(path: str) -> str:
    """Default runs that were cut off: test scores of those that ended, the last told ones of others."""
    rows = []
    made = read(path)
    for method in dict.fromkeys(run["method"] for run in made["runs"]):
        for split in ("test", "validation"):
            runs = [run for run in made["runs"] if (run["method"], run["split"]) == (method, split)]
            if runs:
                scores = ", ".join(f"{run['metrics']['P@1']:.1f}" for run in runs)
                at = sorted({run["round"] for run in runs})
                span = f"{at[0]:,}" if len(at) == 1 else f"{at[0]:,} to {at[-1]:,}"
                label = {**ALL, **CENTRAL}[method]
                rows.append([label, split, scores, f"{span} of {runs[0]['rounds']:,}"])
    return table(("", "images", "P@1, a seed each", "round"), rows, path)


def sides(path: str) -> str:
    """What is common to the odd parts of a class, what is known in a mirror, and what follows."""
    rows, order = [], ("", "odd parts", "all")
    for one in sorted(read(path)["sets"], key=lambda one: order.index(one["fresh"])):
        cells = [f"{one['images']:,} of {one['classes']}"]
        for view in ("brightness", "edges"):
            share = round(one[view]["share"], 3) + 0.0  # no -0.000
            cells.append(f"{share:.3f} ± {one[view]['error']:.3f}")
        known, mirrored, error = (
            100 * one["recognition"][key] for key in ("known", "mirrored", "error")
        )
        cells.append(f"{known:.0f} → {mirrored:.0f} ± {error:.0f}")
        cells += [f"{one['continuity']:.2f}", "yes" if one["mirrored"] else ""]
        rows.append([one["set"], one["about"], *cells, one["fresh"]])
    head = ("set", "images", "looked at, of classes", "brightness", "edges", "known, in a mirror")
    note = "± standard error."
    return table((*head, "neighbours", "mirrored", "checked"), rows, path, note=note)


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


def left_out(path: str) -> str:
    """For every set: what the rule chosen on the others scores there, and the best of all rules."""
    methods = read(path)["methods"]
    found = {m: {one["set"]: one for one in methods[m]["left out"]} for m in METHODS if m in methods}
    rows = [
        [name, *(_share(own[name]) for own in found.values())]
        for name in dict.fromkeys(name for own in found.values() for name in own)
    ]
    for which in ("mean", "median"):
        rows.append([which, *(_percent(methods[m][f"{which} share"]) for m in found)])
    note = f"P@1 in percent. {_times_chosen(methods)}"
    return table(("left out", *(METHODS[m] for m in found)), rows, path, note=note)


def _times_chosen(methods: dict[str, Any]) -> str:
    """How often the others chose the rule that is the default, and how often another one."""
    told = []
    for method, own in methods.items():
        times = Counter(one["chosen"] for one in own["left out"])
        default, sets = times.pop(CHOSEN[method], 0), len(own["left out"])
        others = (f"`{rule}` {_times(count)}" for rule, count in times.most_common())
        told.append(f"{METHODS[method]}'s default on {default} of {sets} ({', '.join(others)})")
    return f"The other sets chose {' and '.join(told)}."


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"


def _share(one: dict[str, Any]) -> str:
    return f"{one['score']:.1f} of {one['best']:.1f}: {_percent(one['share'])}"


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"


def rules(path: str) -> str:
    """What was changed of the default, and its share of the best in the mean over sets."""
    rows = []
    for method, own in read(path)["methods"].items():
        for rule, found in sorted(own["rules"].items(), key=lambda one: -one[1]["mean share"]):
            named = f"`{rule}`" if "=" in rule else rule
            rows.append([METHODS[method], named, *map(_percent, found.values())])
    return table(("", "changed", "mean share", "smallest"), rows)


def pictures(path: str, sets: Collection[str] = ("cifar-small", "omniglot", "synthetic-20000")) -> str:
    """Points of the first search on the sets that take long, beside what was the default then."""
    rows = []
    for run in read(path)["runs"]:
        if run["set"] in sets and run.get("metrics"):
            changes = [one for one in run["changes"] if one not in ADAM]
            named = ", ".join(f"`{one}`" for one in changes) or "–"
            score = next(iter(run["metrics"].values()))
            rows.append([run["set"], METHODS[run["method"]], named, f"{score:.1f}"])
    return table(("set", "method", "changed", "P@1"), rows, path)
