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
    from spreadout.config.experiment import Experiment
    from spreadout.core.errors import UserError
    from spreadout.data.columns import Dense, Lists, Sparse
    from spreadout.data.dataset import Examples, FederatedDataset, Splits
    from spreadout.data.load import DataConfig, load_data
    from spreadout.data.partition import Assignment, Pairs
    from spreadout.data.partitions import Partition, register_partition
    from spreadout.data.published import PublishedDataset, PublishedFile
    from spreadout.data.sources.base import Instances, RawDataset, Source, register_source
    from spreadout.evaluation import metrics
    from spreadout.evaluation.metrics import Metric, MetricInputs, register_metric
    from spreadout.models.build import DataShape, ModelConfig, register_encoder
    from spreadout.objectives import losses, regularizers
    from spreadout.runs.train import Interrupted, Observer, Result, resume, run

__all__ = [
    "Assignment",
    "DataConfig",
    "DataShape",
    "Dense",
    "Examples",
    "Experiment",
    "FederatedDataset",
    "Instances",
    "Interrupted",
    "Lists",
    "Metric",
    "MetricInputs",
    "ModelConfig",
    "Observer",
    "Pairs",
    "Partition",
    "PublishedDataset",
    "PublishedFile",
    "RawDataset",
    "Result",
    "Source",
    "Sparse",
    "Splits",
    "UserError",
    "load_data",
    "losses",
    "metrics",
    "register_encoder",
    "register_metric",
    "register_partition",
    "register_source",
    "regularizers",
    "resume",
    "run",
]

_MODULES = {
    "losses": "objectives.losses",
    "regularizers": "objectives.regularizers",
    "metrics": "evaluation.metrics",
}
_HOMES = {
    "Dense": "data.columns",
    "Lists": "data.columns",
    "Sparse": "data.columns",
    "DataConfig": "data.load",
    "load_data": "data.load",
    "Examples": "data.dataset",
    "FederatedDataset": "data.dataset",
    "Splits": "data.dataset",
    "Assignment": "data.partition",
    "Pairs": "data.partition",
    "Partition": "data.partitions",
    "register_partition": "data.partitions",
    "PublishedDataset": "data.published",
    "PublishedFile": "data.published",
    "Instances": "data.sources.base",
    "RawDataset": "data.sources.base",
    "Source": "data.sources.base",
    "register_source": "data.sources.base",
    "Metric": "evaluation.metrics",
    "MetricInputs": "evaluation.metrics",
    "register_metric": "evaluation.metrics",  # its own first, so that no other takes their names
    "DataShape": "models.build",
    "ModelConfig": "models.build",
    "register_encoder": "models.build",
    "UserError": "core.errors",
    "Experiment": "config.experiment",
    "Interrupted": "runs.train",
    "Observer": "runs.train",
    "Result": "runs.train",
    "resume": "runs.train",
    "run": "runs.train",
}


def __getattr__(name: str) -> Any:
    """Import on first use, so that `spreadout --help` does not wait for torch."""
    if name in _MODULES:
        return importlib.import_module(f"spreadout.{_MODULES[name]}")
    if name in _HOMES:
        return getattr(importlib.import_module(f"spreadout.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'spreadout' has no attribute {name!r}")
