"""Federated learning when each client holds only a sliver of the label space.

>>> import spreadout as so
>>> result = so.run(so.Experiment(rounds=2, clients={"local_steps": 1}))
>>> result.summary["clients"]
10
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from spreadout import losses, metrics, regularizers
    from spreadout.data.columns import Dense, Lists, Sparse
    from spreadout.data.federated import Examples, FederatedDataset, Splits
    from spreadout.data.splits import DataConfig, load_data
    from spreadout.errors import UserError
    from spreadout.experiment import Experiment
    from spreadout.training import Interrupted, Observer, Result, resume, run

__all__ = [
    "DataConfig",
    "Dense",
    "Examples",
    "Experiment",
    "FederatedDataset",
    "Interrupted",
    "Lists",
    "Observer",
    "Result",
    "Sparse",
    "Splits",
    "UserError",
    "load_data",
    "losses",
    "metrics",
    "regularizers",
    "resume",
    "run",
]

_HOMES = {
    "Dense": "data.columns",
    "Lists": "data.columns",
    "Sparse": "data.columns",
    "DataConfig": "data.splits",
    "load_data": "data.splits",
    "Examples": "data.federated",
    "FederatedDataset": "data.federated",
    "Splits": "data.federated",
    "UserError": "errors",
    "Experiment": "experiment",
    "Interrupted": "training",
    "Observer": "training",
    "Result": "training",
    "resume": "training",
    "run": "training",
}


def __getattr__(name: str) -> Any:
    """Import on first use, so that `spreadout --help` does not wait for torch."""
    if name in ("losses", "metrics", "regularizers"):
        return importlib.import_module(f"spreadout.{name}")
    if name in _HOMES:
        return getattr(importlib.import_module(f"spreadout.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'spreadout' has no attribute {name!r}")
