"""A search's result file: the drawn configs, and its runs as columns, one value a run in each."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from math import isfinite
from typing import Any

from benchmarks.defaults.emulation import Config, Scores

DEPTHS = (1, 3, 5)
Values = dict[str, Any]  # of a config: those of its keys that its method reads


@dataclass(frozen=True)
class Run:
    """One config on one set."""

    config: int  # its number
    set: str
    scores: Scores

    @property
    def diverged(self) -> bool:
        return not isfinite(self.scores.loss)


@dataclass(frozen=True)
class Search:
    """What a result file holds."""

    configs: dict[int, Values]
    runs: list[Run]

    @property
    def methods(self) -> list[str]:
        return list(dict.fromkeys(str(values["method"]) for values in self.configs.values()))


def to_columns(runs: Sequence[Run]) -> dict[str, list[Any]]:
    """Scores are in percent, P@k with the best τ and without a prior."""
    columns: dict[str, list[Any]] = {
        "config": [run.config for run in runs],
        "set": [run.set for run in runs],
        "tau": [run.scores.tau for run in runs],
        "loss": [None if run.diverged else round(run.scores.loss, 4) for run in runs],
    }
    for i, k in enumerate(DEPTHS):
        columns[f"P@{k}"] = [_at(run.scores.with_prior, i) for run in runs]
        columns[f"P@{k} without prior"] = [_at(run.scores.without, i) for run in runs]
    return columns


def _at(scores: Sequence[float], i: int) -> float | None:
    """Of a set with fewer than five classes there is no P@5."""
    return scores[i] if i < len(scores) else None


def from_columns(columns: dict[str, list[Any]]) -> list[Run]:
    runs = []
    for i, (config, name) in enumerate(zip(columns["config"], columns["set"], strict=True)):
        found = [columns[f"P@{k}"][i] for k in DEPTHS]
        plain = [columns[f"P@{k} without prior"][i] for k in DEPTHS]
        loss = columns["loss"][i]
        scores = Scores(
            [p for p in found if p is not None],
            [p for p in plain if p is not None],
            columns["tau"][i],
            float("nan") if loss is None else loss,
        )
        runs.append(Run(config, name, scores))
    return runs


def to_file(configs: dict[int, Values], runs: Sequence[Run]) -> dict[str, Any]:
    """Configs in which something was run, and the runs in the order of (config, set)."""
    used = {run.config for run in runs}
    ordered = sorted(runs, key=lambda run: (run.config, run.set))
    kept = [{"number": number, **values} for number, values in configs.items() if number in used]
    return {"configs": kept, "runs": to_columns(ordered)}


def from_file(made: dict[str, Any]) -> Search:
    """What `to_file` wrote."""
    configs = {
        values["number"]: {key: value for key, value in values.items() if key != "number"}
        for values in made["configs"]
    }
    return Search(configs, from_columns(made["runs"]))


def as_config(values: Values, **changes: Any) -> Config:
    given = {**asdict(Config()), **values, **changes}
    return Config(**{**given, "hidden": tuple(given["hidden"])})


def by_config(runs: Iterable[Run]) -> dict[int, dict[str, Run]]:
    """Runs by config and set."""
    found: dict[int, dict[str, Run]] = {}
    for run in runs:
        found.setdefault(run.config, {})[run.set] = run
    return found
