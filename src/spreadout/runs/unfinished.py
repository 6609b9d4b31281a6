"""A run that is going on or was cut short, as far as its last checkpoint tells: a summary of that."""

from __future__ import annotations

import math
from dataclasses import asdict
from typing import Any

from spreadout.config.experiment import Experiment
from spreadout.core.errors import UserError
from spreadout.core.traffic import Traffic
from spreadout.evaluation.early_stopping import best_of
from spreadout.evaluation.geometry import Geometry
from spreadout.runs.claim import CONFIG
from spreadout.runs.deployed import deployed_of
from spreadout.runs.files import RunFiles
from spreadout.runs.sums import check


def summary_so_far(run: RunFiles) -> dict[str, Any]:
    """What `summary.json` would say of its last checkpoint; what only its end tells is missing."""
    check(run.path, CONFIG)
    experiment = Experiment.load(run.config)
    history, saved = run.history(experiment.eval.metrics), run.saved()
    if saved is None or not history:
        raise UserError(f"{run.path}: has no evaluation yet; wait for its first checkpoint")
    names = experiment.eval.metrics
    scores = [{**one, **{n: _number(one[n]) for n in names}} for one in history]
    last, best = history[-1], history[best_of(experiment.eval, scores)]
    traffic = Traffic(**{n: saved["traffic"].get(n, 0) for n in Traffic.__dataclass_fields__})
    deployed = deployed_of(run.path)  # its clients have the data that the config names
    own = "data" in saved["extra"]["own"] and deployed is None
    there = deployed.there if deployed is not None else None
    return {
        "name": experiment.name,
        "method": experiment.method.name,
        "is_centralized": experiment.method.is_centralized,
        "dataset": "data given in Python" if own else experiment.data.source.name,
        "clients": there["clients"] if there else None,
        "classes": None,
        "rounds": last["round"],
        "unfinished": {"round": last["round"], "of": experiment.rounds},
        "metrics": {name: last[name] for name in names},
        "best": {
            "round": best["round"],
            **{name: best[name] for name in names},
            "bytes": best["bytes_down"] + best["bytes_up"],
        },
        "geometry": {name: last.get(name) for name in Geometry.__dataclass_fields__},
        "bytes": {"down": traffic.down, "up": traffic.up, **asdict(traffic)},
        "seconds": last["seconds"],
        "refused_updates": dict(saved["refused"]),
        "data_notes": saved["extra"].get("data_notes", []),
        "seed": experiment.seed,
        "device": "",
        "versions": {},
    }


def _number(value: float | None) -> float:
    """As it was before it was written: numbers that are not finite are read back as null."""
    return math.nan if value is None else float(value)
