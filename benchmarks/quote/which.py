"""Which method: what our own results say to each question of the decision."""

from __future__ import annotations

from statistics import mean

from benchmarks.privacy import COUNT
from benchmarks.quote.dual_encoder import ties_of
from benchmarks.quote.fedaws import TUNED
from benchmarks.quote.fedmlh import chosen_round, cohort, rounds_to
from benchmarks.quote.fedss import merges_of
from benchmarks.quote.tables import Made, read, table


def facts() -> str:
    """A line for each question: the answer with its figures, and the file they are from."""
    told = (
        ("one class per client, no negatives", _collapse, "results/fedalc/bibtex.json"),
        ("FedSS or FedAwS?", _several, "results/defaults/table.json"),
        ("FedALC or FedAwS?", _together, "results/defaults/table.json"),
        ("a class table small enough to send: FedAvg or FedAwS?", _whole, "results/defaults/table.json"),
        ("a class table too large to send", _sampled, "results/fedss/omniglot.json"),
        ("a class layer too large to send", _hashed, "results/fedmlh/wiki31-matched.json"),
        ("few classes: does hashing help?", _hashed, "results/fedmlh/bibtex.json"),
        ("histories of items", _histories, "results/dual_encoder/ours-file-ties.json"),
        ("which classes does a client have?", _requests, "results/fedss/requests.json"),
        ("the same, with whole blocks of classes", _covered, "results/privacy/requests.json"),
        ("noise for (ε, δ)", _noise, "results/privacy/utility.json"),
    )
    rows = [
        [asked, answer(read(path)), seeds_of(read(path)), f"[`{path}`](/{path})"]
        for asked, answer, path in told
    ]
    return table(("question", "our results", "seeds", "file"), rows)


def seeds_of(made: Made) -> str:
    """How many seeds the figures of a file have; some of its rows may have fewer."""
    if "seeds" in made:
        return str(len(made["seeds"]))
    if "runs" not in made:
        scores = [one["MAP@10"]["values"] for one in made["draws"] if "MAP@10" in one]
        return str(min(map(len, scores))) if scores else "–"
    by_cell: dict[tuple[str, ...], set[int]] = {}
    for run in (run for run in made["runs"] if run.get("split", "test") == "test"):
        cell = tuple(str(run.get(key)) for key in ("set", "method", "arm", "model", "epsilon"))
        by_cell.setdefault(cell, set()).add(run["seed"])
    counts = {len(seeds) for seeds in by_cell.values()}
    return str(max(counts)) if len(counts) == 1 else f"{min(counts)} to {max(counts)}"


def _variant(made: Made, name: str) -> Made:
    found: Made = next(one for one in made["variants"] if one["name"] == name)
    return found


def _mean(made: Made, name: str, metric: str) -> float:
    return float(_variant(made, name)["metrics"][metric]["mean"])


def _collapse(made: Made) -> str:
    scores = {label.partition(" (")[0]: _mean(made, name, "P@1") for name, label in TUNED.items()}
    return "Bibtex, P@1: " + ", ".join(f"{label} {score:.1f}" for label, score in scores.items())


def _by_set(made: Made, one: str, other: str) -> list[tuple[str, list[float], list[float]]]:
    """P@1 of every seed with defaults, on every set on which both methods ran."""
    found: dict[str, dict[str, list[float]]] = {}
    for run in made["runs"]:
        if "P@1" in run.get("metrics", {}):
            found.setdefault(run["set"], {}).setdefault(run["method"], []).append(run["metrics"]["P@1"])
    return [
        (name, by[one], by[other]) for name, by in sorted(found.items()) if one in by and other in by
    ]


def _several(made: Made) -> str:
    return _ahead(made, "fedss", "FedSS", "fedaws", "FedAwS")


def _together(made: Made) -> str:
    return _ahead(made, "fedalc", "FedALC", "fedaws", "FedAwS")


def _whole(made: Made) -> str:
    return _ahead(made, "fedavg", "FedAvg", "fedaws", "FedAwS")


def _ahead(made: Made, one: str, label: str, other: str, beside: str) -> str:
    pairs = _by_set(made, one, other)
    both = [(name, mean(a) - mean(b)) for name, a, b in pairs]
    won = sum(round(off, 1) > 0 for _, off in both)
    above = sum(min(a) > max(b) for _, a, b in pairs)
    below = sum(max(a) < min(b) for _, a, b in pairs)
    most, least = (pick(both, key=lambda each: each[1]) for pick in (max, min))
    return (
        f"with defaults {label} is ahead of {beside} in the mean of P@1 on {won} of {len(both)} sets, "
        f"{most[1]:+.1f} ({most[0]}) to {round(least[1], 1) + 0:+.1f} ({least[0]}); every seed of the "
        f"one is above every seed of the other on {above}, and below on {below}"
    ).replace(" -", " −")


def _sampled(made: Made) -> str:
    full = _mean(made, "full", "MAP@10")
    shown = []
    for name in ("fedss-4", "fedss-10"):
        moved = [_variant(made, each)["bytes"] for each in (name, "full")]
        rows = [one["rows_down"] / one["participations"] for one in moved]
        share = 100 * _mean(made, name, "MAP@10") / full
        shown.append(f"{100 * rows[0] / rows[1]:.0f} % of the class rows give {share:.0f} %")
    said = f"FedSS on Omniglot: {', '.join(shown)} of FullSoftmax's MAP@10"
    return f"{said}. {merges_of(made).removesuffix('.')}"


def _hashed(made: Made) -> str:
    ours, plain = (_variant(made, name) for name in ("fedmlh", "fedavg"))
    spent = []
    for one in (ours, plain):
        each = sum(one["bytes_per_client_round"].values()) * cohort(made, one)
        passed = rounds_to(one["curve"], plain["curve"], chosen_round(made, plain))
        spent.append(each * (passed or 0))
    scores = (one["metrics"]["P@1"]["mean"] for one in (ours, plain))
    shape = made["suite"].rpartition("/")[2].removesuffix(".toml")
    shape = shape.removeprefix("fedmlh-").removesuffix("-matched")
    return (
        f"{shape}: P@1 {next(scores):.1f} with FedMLH, {next(scores):.1f} with FedAvg; FedMLH reaches "
        f"FedAvg's final score with {spent[0] / spent[1]:.2f} times FedAvg's bytes"
    )


def _histories(made: Made) -> str:
    shown = []
    for v in made["variants"]:
        if v["label"].endswith("attention"):
            moved = v["bytes_per_client_round"]["down"] / 1024
            name, recall = v["label"].partition(",")[0], v["metrics"]["R@10"]["mean"]
            shown.append(f"{name} R@10 {recall:.1f} at {moved:.0f} KiB down")
    ties = "" if ties_of(made) == "random" else " (items of one second in the order of the file)"
    return f"MovieLens-1M, attention: {', '.join(shown)}{ties}"


def _requests(made: Made) -> str:
    last = list(made["draws"][0]["after"])[-1]
    shown = (
        f"`{one['draw']}` {one['after'][last]['exposed']:.0f} % (MAP@10 {one['MAP@10']['mean']:.1f})"
        for one in made["draws"]
    )
    return f"FedSS, clients whose classes are all known after {last} requests: {', '.join(shown)}"


def _covered(made: Made) -> str:
    last = list(made["draws"][0]["after"])[-1]
    shown = (
        f"`{one['draw']}` {100 * one['after'][last]['exposed']:.0f} % "
        f"({one['bytes'] / 1024:.1f} KiB down)"
        for one in made["draws"]
        if one["draw"].startswith("cover")
    )
    return f"FedSS, clients whose classes are all known after {last} requests: {', '.join(shown)}"


def _noise(made: Made) -> str:
    def scores(data: str, model: str, epsilon: float | None, *arms: str) -> str:
        shown = []
        for arm in arms:
            asked = (data, arm, epsilon, "test")
            runs = [r for r in made["runs"] if (r["set"], r["arm"], r["epsilon"], r["split"]) == asked]
            score = mean(r["score"] or 0.0 for r in runs if epsilon is None or r["model"] == model)
            shown.append(f"{arm} {score:.1f}")
        return ", ".join(shown)

    every, items = ("FedAwS", "FedMLH", "FedSS", COUNT), ("sampled softmax", COUNT)
    return (
        f"Noise on the server, P@1: digits at ε = 4 {scores('digits', 'central', 4.0, *every)}; Bibtex "
        f"at ε = 8 {scores('bibtex', 'central', 8.0, *every)}, at ε = 1 "
        f"{scores('bibtex', 'central', 1.0, *every)}. R@10: MovieLens-1M at ε = 8 "
        f"{scores('movielens-1m', 'central', 8.0, *items)}. Noise on clients, P@1: digits at ε = 4 "
        f"{scores('digits', 'local', 4.0, *every)}. No noise: digits "
        f"{scores('digits', '', None, *every)}; Bibtex {scores('bibtex', '', None, *every)}; "
        f"MovieLens-1M {scores('movielens-1m', '', None, *items)}"
    )
