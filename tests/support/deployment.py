"""What tests of deployments share."""

from pathlib import Path

import numpy as np
import pytest
import torch

from spreadout.config.experiment import Experiment
from spreadout.runs.train import Result

AS_SIMULATED = {"claim_quantile": 1.0}  # what a deployment is wary of by default, it is not here
TOY = {
    "server": AS_SIMULATED,
    "rounds": 3,
    "chosen": [],  # a server sees no data to choose by, and the simulation is to be the same
    "model": {"hidden": [5], "dim": 4},
    "clients": {"batch": 3, "lr": 0.3, "local_steps": 3},
    "eval": {"every": 3, "metrics": ["P@1"]},
}

NODES = 3
METHODS = {
    "fedaws": {"name": "fedaws", "strength": 0.1},
    "fedss": {"name": "fedss", "negatives": 3, "scale": 5.0},
}


def assert_same(simulated: Result, deployed: Result) -> None:
    for part in ("dense", "tables"):
        ours, theirs = getattr(simulated.state, part), getattr(deployed.state, part)
        torch.testing.assert_close(theirs, ours, rtol=1e-4, atol=2e-6)
    assert deployed.state.refused == simulated.state.refused
    assert deployed.metrics == pytest.approx(simulated.metrics)
    assert deployed.history[-1]["loss"] == pytest.approx(simulated.history[-1]["loss"], rel=1e-4)


def federation(path: Path) -> Path:
    """Three clients with two of six classes each, as a file that says who holds what."""
    rng = np.random.default_rng(3)
    y = np.repeat(np.arange(6), 12)
    x = rng.normal(size=(72, 5)) + 2 * np.eye(6, 5)[y]
    np.savez(path, x=x, y=y, client=y // 2, x_test=x[::3], y_test=y[::3])
    return path


def config(data: Path, method: dict[str, object]) -> Experiment:
    return Experiment.of(
        {
            "name": str(method["name"]),
            "rounds": 3,
            "data": {"source": "npz", "path": str(data), "partition": "given"},
            "model": {"hidden": [8], "dim": 4},
            "method": method,
            "clients": {"batch": 4, "lr": 0.3, "local_steps": 3},
            "server": AS_SIMULATED,
            "eval": {"every": 3, "metrics": ["P@1"]},
            "deploy": {"nodes": NODES, "timeout": 60},
        }
    )
