"""The smallest runs there are: for tests that need hundreds of them."""

import json
from pathlib import Path
from typing import Any

import numpy as np

import spreadout as so
from spreadout.data.dataset import FederatedDataset
from spreadout.data.held_out import Examples
from spreadout.data.splits import Splits


def tiny_data() -> Splits:
    """Three clients with one class each."""
    y = np.repeat(np.arange(3), 2)
    x = np.eye(3, 4, dtype=np.float32)[y]
    return Splits("tiny", FederatedDataset.from_arrays(x, y, y), Examples.from_arrays(x, y))


def tiny(**changes: Any) -> so.Experiment:
    values: dict[str, Any] = {
        "rounds": 2,
        "model": {"hidden": [], "dim": 3},
        "method": {"name": "fedaws", "prior": 0},
        "clients": {"local_steps": 1, "lr": 0.1, "batch": 32, "per_round": "all"},
        "server": {"optimizer": "sgd", "lr": 1.0},
        "eval": {"every": 1, "metrics": ["P@1"], "references": False},
        "run": {"log_requests": True},
    }
    return so.Experiment.of({**values, **changes})


def result_of(folder: Path) -> dict[str, Any]:
    """All that a finished run leaves, but for what depends on the clock and the process."""
    summary = json.loads((folder / "summary.json").read_text())
    history = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    for record in (summary, *history):
        record.pop("seconds")
    summary.pop("peak_memory_bytes")
    files = sorted(
        str(path.relative_to(folder)) for path in folder.rglob("*") if path.name != ".spreadout-run"
    )
    return {
        "files": files,
        "summary": summary,
        "history": history,
        **{
            name: (folder / name).read_bytes()
            for name in files
            if name.startswith(("model/", "checkpoint/state-", "requests", "projection", "config"))
            and (folder / name).is_file()
        },
    }
