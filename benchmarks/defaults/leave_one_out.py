"""What a choice of defaults gives on a data set that had no part in the choice.

    python -m benchmarks.defaults.leave_one_out results/defaults/search.json \
        --out results/defaults/leave-one-out.json

The score of a run is its share of the best P@1 that any config of the method has on the set. For every
set, the config with the best mean share on the other sets is chosen, and its share on this one is
looked at. Only configs that were run on all sets are compared. A run that diverged scores 0.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.common import record
from benchmarks.common.command import command, parser_of
from benchmarks.defaults.runs import Run, Search, Values, by_config, from_file
from spreadout.core.errors import UserError


@dataclass(frozen=True)
class Compared:
    """The configs of one method that were run on all sets."""

    method: str
    configs: dict[int, Values]
    runs: dict[int, dict[str, Run]]  # by config and set
    best: dict[str, float]  # the best P@1 on each set

    @classmethod
    def of(cls, method: str, found: Search) -> Compared:
        own = {n: values for n, values in found.configs.items() if values["method"] == method}
        runs = by_config(run for run in found.runs if run.config in own)
        sets = sorted({run.set for some in runs.values() for run in some.values()})
        full = {n: some for n, some in sorted(runs.items()) if len(some) == len(sets)}
        if len(full) < 2 or len(sets) < 2:
            there = f"{len(full)} configs were run on all of {len(sets)} sets"
            raise UserError(f"{method}: {there}; it takes two of each")
        best = {name: max(score(some[name]) for some in full.values()) for name in sets}
        if hopeless := [name for name, most in best.items() if not most > 0]:
            raise UserError(f"{method}: no config has a P@1 above 0 on {hopeless[0]}; leave it out")
        return cls(method, {n: own[n] for n in full}, full, best)

    @property
    def sets(self) -> list[str]:
        return list(self.best)

    def share(self, config: int, name: str) -> float:
        return score(self.runs[config][name]) / self.best[name]

    def mean_share(self, config: int, sets: Iterable[str]) -> float:
        return statistics.mean(self.share(config, name) for name in sets)

    def chosen(self, sets: Iterable[str]) -> int:
        """The config that is best on these sets; of equals the first drawn."""
        some = list(sets)
        return max(self.runs, key=lambda config: self.mean_share(config, some))


def score(run: Run) -> float:
    return 0.0 if run.diverged else run.scores.with_prior[0]


def left_out(compared: Compared, name: str) -> dict[str, Any]:
    """A set, and what the config chosen on the others gives there."""
    config = compared.chosen(other for other in compared.sets if other != name)
    run = compared.runs[config][name]
    return {
        "set": name,
        "chosen": config,
        "P@1": score(run),
        "P@1 without prior": run.scores.without[0],
        "tau": run.scores.tau,
        "best P@1": compared.best[name],
        "share": round(compared.share(config, name), 3),
    }


def marginals(compared: Compared) -> dict[str, dict[str, Any]]:
    """For every key and value: mean share of the configs that have it, the upper quartile, how many."""
    means = {config: compared.mean_share(config, compared.sets) for config in compared.runs}
    first = next(iter(compared.configs.values()))
    return {key: _by_value(compared, key, means) for key in first if key != "method"}


def _by_value(compared: Compared, key: str, means: Mapping[int, float]) -> dict[str, Any]:
    groups: dict[Any, list[float]] = {}
    for config, values in compared.configs.items():
        value = tuple(values[key]) if isinstance(values[key], list) else values[key]
        groups.setdefault(value, []).append(means[config])
    found = {}
    for value, shares in sorted(groups.items()):
        upper = sorted(shares)[-max(1, len(shares) // 4)]
        about = {"mean": round(statistics.mean(shares), 3), "upper quartile": round(upper, 3)}
        found[_shown(value)] = {**about, "configs": len(shares)}
    return found


def _shown(value: Any) -> str:
    return str(list(value)) if isinstance(value, tuple) else str(value)


def tried_later(compared: Compared, later: Search) -> list[dict[str, Any]]:
    """Configs put together by hand after the search, measured by what the search had found.

    Each is described by how it differs from the first of them.
    """
    own = {n: values for n, values in later.configs.items() if values["method"] == compared.method}
    found = []
    for config, runs in by_config(run for run in later.runs if run.config in own).items():
        values, first = own[config], next(iter(own.values()))
        shares = {name: score(run) / compared.best[name] for name, run in sorted(runs.items())}
        among = compared.chosen(shares)  # on the same sets, chosen by looking at them
        found.append(
            {
                "config": values if values is first else _changes(first, values),
                "sets": len(shares),
                "mean share": round(statistics.mean(shares.values()), 3),
                "smallest": round(min(shares.values()), 3),
                "best drawn on these sets": round(compared.mean_share(among, shares), 3),
            }
        )
    return found


def _changes(first: Values, values: Values) -> Values:
    return {key: value for key, value in values.items() if first.get(key) != value}


def judged(compared: Compared, later: Search | None = None) -> dict[str, Any]:
    """All that is said about one method."""
    every = [left_out(compared, name) for name in compared.sets]
    shares = [one["share"] for one in every]
    overall = compared.chosen(compared.sets)
    by_set = [compared.share(overall, name) for name in compared.sets]
    return {
        "configs": len(compared.runs),
        "left out": every,
        "mean share": round(statistics.mean(shares), 3),
        "median share": round(statistics.median(shares), 3),
        "chosen on all sets": {
            "number": overall,
            **compared.configs[overall],
            "mean share": round(statistics.mean(by_set), 3),
            "smallest": round(min(by_set), 3),
        },
        "by value": marginals(compared),
        "tried later": [] if later is None else tried_later(compared, later),
    }


def shown(methods: Mapping[str, dict[str, Any]]) -> str:
    """One line for every set and method."""
    lines = [f"{'method':8} {'left out':12} {'chosen':>6} {'P@1':>7} {'best':>7} {'share':>6}"]
    for method, made in methods.items():
        for one in made["left out"]:
            numbers = f"{one['chosen']:6} {one['P@1']:7.2f} {one['best P@1']:7.2f} {one['share']:6.3f}"
            lines.append(f"{method:8} {one['set']:12} {numbers}")
        lines.append(f"{method:8} {'mean':12} {made['mean share']:30.3f}")
    return "\n".join(lines)


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("results", type=Path, help="what the search wrote")
    parser.add_argument("--out", type=Path)
    a = parser.parse_args()
    made = record.read(a.results)
    found = from_file(made)
    later = from_file(made["later"]) if "later" in made else None
    methods = {method: judged(Compared.of(method, found), later) for method in found.methods}
    print(shown(methods))
    if a.out is not None:
        # Numbers of the search's machine, not of the one that compares them.
        origin = {key: made[key] for key in ("commit", "hardware", "versions")}
        record.write(a.out, {**origin, "search": a.results.name, "methods": methods})


if __name__ == "__main__":
    command(main)
