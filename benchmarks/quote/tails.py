"""What roots of long tails bring by default runs, for several rules of what counts as long."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from benchmarks.quote.columns import METHODS
from benchmarks.quote.tables import read, table

Scores = Mapping[str, Mapping[float, Mapping[int, float]]]  # of a set, by method, rule and seed
PLAIN = 0.0  # in place of a rule: features are standardised and nothing more


def gains(path: str, rules: Sequence[float], *, half: int | None = None, mean: bool = True) -> str:
    """What roots add to standardised features, a row for each set and a column for each rule.

    half: of every second set by its name: a rule is chosen on one half and looked at on the other.
    A rule that takes no root of a set leaves it as it is.
    """
    found = _by_set(path)
    names = sorted(found) if half is None else sorted(found)[half::2]
    told: dict[tuple[str, float], list[float]] = defaultdict(list)
    rows = []
    for name in names:
        seeds = _seeds(found[name].values())
        cells = [str(len(seeds))]
        for method in METHODS:
            own = found[name][method]
            plain = own[PLAIN]
            cells.append(f"{statistics.mean(plain[seed] for seed in seeds):.1f}")
            for rule in rules:
                scores = own.get(rule, {})
                gain = statistics.mean(scores.get(seed, plain[seed]) - plain[seed] for seed in seeds)
                told[method, rule].append(gain)
                cells.append(f"{gain:+.1f}" if set(seeds) & set(scores) else "")
        rows.append([name, *cells])
    if mean:
        means = [["", *(_with_error(told[method, rule]) for rule in rules)] for method in METHODS]
        rows.append(["mean", "", *(cell for cells in means for cell in cells)])
    head = ["seeds"]
    for label in METHODS.values():
        head += [f"{label}, standardised", *(f"tails above {rule:g}" for rule in rules)]
    note = "P@1 on validation rows, and what roots add; nothing: no tail is that long."
    if mean:
        note += " Means over sets, with a standard error."
    return table(("", *head), rows, path, note=note)


def _with_error(values: Sequence[float]) -> str:
    return f"{statistics.mean(values):+.2f} ± {statistics.stdev(values) / len(values) ** 0.5:.2f}"


def _seeds(methods: Iterable[Mapping[float, Mapping[int, float]]]) -> list[int]:
    """Those with which both methods ran by the same rules: other rows may have no long tail."""
    one, other = ({(seed, rule) for rule, own in rules.items() for seed in own} for rules in methods)
    partly = {seed for seed, _ in one ^ other}
    return sorted({seed for seed, rule in one & other if rule == PLAIN} - partly)


def _by_set(path: str) -> Mapping[str, Scores]:
    """Scores of sets on which both methods ran in all ways with some seed."""
    found: dict[str, dict[str, dict[float, dict[int, float]]]] = defaultdict(
        lambda: defaultdict(lambda: defaultdict(dict))
    )
    for run in read(path)["runs"]:
        for rule in run["rules"] or [PLAIN]:
            found[run["set"]][run["method"]][rule][run["seed"]] = run["metrics"]["P@1"]
    ran = {name: own for name, own in found.items() if set(own) == set(METHODS)}
    return {name: own for name, own in ran.items() if _seeds(own.values())}
