"""What roots of long tails bring by default runs, for several rules of what counts as long."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Mapping

from benchmarks.defaults.tails import RULES
from benchmarks.quote.columns import METHODS
from benchmarks.quote.tables import read, table

Scores = Mapping[str, Mapping[float | None, Mapping[int, float]]]  # by method, rule and seed


def by_rule(path: str, half: int) -> str:
    """Gains over standardised features, of every second set by its name: a rule is chosen on one half.

    A rule that takes no root of a set leaves it as it is.
    """
    found = _by_set(path)
    rows = []
    gains: dict[tuple[str, float], list[float]] = defaultdict(list)
    for name in sorted(found)[half::2]:
        cells = []
        for method in METHODS:
            own = found[name][method]
            plain = own[None]
            cells.append(f"{statistics.mean(plain.values()):.1f}")
            for rule in RULES:
                with_roots = own.get(rule, plain)
                gain = statistics.mean(with_roots[seed] - plain[seed] for seed in plain)
                gains[method, rule].append(gain)
                cells.append(f"{gain:+.1f}" if rule in own else "")
        rows.append([name, str(len(plain)), *cells])
    means = []
    for method in METHODS:
        means.append("")
        means += [f"{statistics.mean(gains[method, rule]):+.2f}" for rule in RULES]
    head = ["seeds"]
    for label in METHODS.values():
        head += [f"{label}, standardised", *(f"tails above {rule:g}" for rule in RULES)]
    note = "P@1 on validation rows, and what roots change; nothing: no tail is that long."
    return table(("", *head), [*rows, ["mean", "", *means]], path, note=note)


def _by_set(path: str) -> Mapping[str, Scores]:
    """Scores of sets on which both methods ran in all ways with the same seeds."""
    found: dict[str, dict[str, dict[float | None, dict[int, float]]]] = defaultdict(
        lambda: defaultdict(lambda: defaultdict(dict))
    )
    for run in read(path)["runs"]:
        for rule in run["rules"] or [None]:
            found[run["set"]][run["method"]][rule][run["seed"]] = run["metrics"]["P@1"]
    whole = {}
    for name, own in found.items():
        seeds = {tuple(sorted(scores)) for rules in own.values() for scores in rules.values()}
        if len(seeds) == 1 and set(own) == set(METHODS) and all(None in rules for rules in own.values()):
            whole[name] = own
    return whole
