"""Settings and the number of rounds chosen on validation data, then every arm run as chosen and tested.

An arm is a label, the changes to a base config that make it, and a grid of settings to choose from.
Every point is trained once with a part of the training data held out; the best evaluation of all its
points says which setting an arm gets and for how many rounds. Then it is trained on all training data.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.common.record import read, write
from benchmarks.papers.suite import keep, run_folders, run_suites
from spreadout.config.effect import without_inherited
from spreadout.config.experiment import Experiment
from spreadout.config.values import overlay, read_toml
from spreadout.runs.compare import Suite

Changes = dict[str, Any]


@dataclass(frozen=True)
class Candidate:
    """One arm of a comparison, and what is still to be chosen about it."""

    label: str
    changes: Changes
    grid: Mapping[str, Sequence[Any]] = field(default_factory=dict)  # "section.key" → values

    def points(self) -> list[tuple[str, Changes]]:
        """Every setting: a name for it, and its changes to the base."""
        found = []
        for values in itertools.product(*self.grid.values()):
            config = dict(self.changes)
            for key, value in zip(self.grid, values, strict=True):
                section, name = key.split(".")
                config = overlay(config, {section: {name: value}})
            found.append(("-".join(map(_name, values)) or "only", config))
        return found


def _name(value: Any) -> str:
    """A setting in the name of a run: a section by what it holds."""
    return "-".join(map(str, value.values())) if isinstance(value, Mapping) else str(value)


def choose_and_run(
    name: str,
    base: Path,
    arms: Mapping[str, Candidate],
    out: Path,
    *,
    seeds: int,
    device: str,
    jobs: int,
    runs: Path | None,
    fraction: float = 0.2,
    still_held: float = 0.0,
    more: Changes | None = None,
    into: bool = False,
    by_users: bool = False,
) -> None:
    """Both stages; writes `NAME-tuning.json` and `NAME.json` below `out`.

    fraction: of the training data, chosen on; still_held: as much of it stays held out in the second
    stage. by_users: whether scores have errors by users. into: whether the arms take the place of those
    with their names in files that are there.
    """
    held = {"data": {"validation_fraction": fraction}, "eval": {"split": "validation"}}
    tried: dict[str, tuple[str, str, Changes]] = {}
    for arm, candidate in arms.items():
        for point, config in candidate.points():
            tried[f"{arm}-{point}"] = (arm, point, overlay(config, more or {}))
    points = {one: experiment_of(base, one, config, held) for one, (_, _, config) in tried.items()}
    chosen: dict[str, tuple[Changes, Mapping[str, float]]] = {}
    table = []
    with run_folders(runs) as folder:
        tuning = Suite(f"{name}-tuning", (0,), points, {one: one for one in points})
        (found,) = run_suites([tuning], folder, device, jobs)
        for one in found:
            arm, point, config = tried[one.name]
            summary = one.summaries[0]
            best, by = summary["best"], summary["best_by"] or one.metric_names[:1]
            table.append({"arm": arm, "point": point, **best})
            if arm not in chosen or _mean(best, by) > _mean(chosen[arm][1], by):
                chosen[arm] = (config, best)
        table = (_others(out / f"{name}-tuning.json", arms) if into else []) + table
        write(out / f"{name}-tuning.json", {"base": base.name, "fraction": fraction, "points": table})
        # As many rounds as were best, and none of the early stopping that found them.
        final = {
            arm: experiment_of(
                base,
                arm,
                config,
                {
                    "rounds": max(int(best["round"]), 1),
                    "data": {"validation_fraction": still_held},
                    "eval": {"split": "test"},
                },
                patience=False,
            )
            for arm, (config, best) in chosen.items()
        }
        suite = Suite(name, tuple(range(seeds)), final, {arm: arms[arm].label for arm in final})
        (ran,) = run_suites([suite], folder, device, jobs)
        placed = folder / name if by_users else None
        keep(suite, ran, out / f"{name}.json", into=into, runs=placed)


def _others(path: Path, arms: Mapping[str, Candidate]) -> list[dict[str, Any]]:
    """The points of a file, less those of these arms."""
    return [one for one in read(path)["points"] if one["arm"] not in arms] if path.is_file() else []


def _mean(best: Mapping[str, float], names: Sequence[str]) -> float:
    """By what the run's own best round was chosen, points are compared too."""
    return sum(best[name] for name in names) / len(names)


def experiment_of(
    base: Path, name: str, changes: Changes, more: Changes, *, patience: bool = True
) -> Experiment:
    merged = {**overlay(overlay(read_toml(str(base)), changes), more), "name": name}
    merged = without_inherited(merged, changes, Experiment.model_validate)
    if not patience:
        merged["eval"] = {key: value for key, value in merged["eval"].items() if key != "patience"}
    return Experiment.of(merged)
