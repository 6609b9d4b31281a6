"""Federated learning when each client holds only a sliver of the label space.

`run` an experiment, `resume` or `compare` some, `load` what was trained. A part of one's own is a class
or a function with the decorator of its kind; then configs know it by name.

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
    from spreadout.config.presets import register_preset
    from spreadout.core.count_sketch import CountSketch
    from spreadout.core.errors import UserError
    from spreadout.core.merging import RowMerge
    from spreadout.core.optimizers import Optimizer
    from spreadout.core.ragged import Ragged
    from spreadout.core.rows import Rows
    from spreadout.core.state import MethodState, ServerState
    from spreadout.core.traffic import Traffic
    from spreadout.core.types import Batch, Params, RowInfo
    from spreadout.data.columns import Dense, Lists, Sparse
    from spreadout.data.dataset import FederatedDataset
    from spreadout.data.held_out import Examples
    from spreadout.data.load import DataConfig, load_data
    from spreadout.data.partition import Assignment, Pairs
    from spreadout.data.partitions import Partition, register_partition
    from spreadout.data.published import PublishedDataset, PublishedFile
    from spreadout.data.sources.base import Instances, RawDataset, Source, register_source
    from spreadout.data.splits import Splits
    from spreadout.evaluation import metrics
    from spreadout.evaluation.metrics import Metric, MetricInputs, register_metric
    from spreadout.evaluation.references import Reference, best_central, references_of
    from spreadout.federated.drift.base import DriftCorrection, register_drift_correction
    from spreadout.federated.executor import Executor
    from spreadout.federated.robust.base import RobustRule, register_robust_rule
    from spreadout.methods.base import Method, reads_params_via_model, register_method
    from spreadout.methods.context import ServerContext, SetupContext
    from spreadout.methods.fedavg import FullSoftmax
    from spreadout.methods.positive_only import PositiveOnly
    from spreadout.models.build import DataShape, ModelConfig, register_encoder
    from spreadout.models.embedding import EmbeddingModel
    from spreadout.models.nn.scaling import Standardized
    from spreadout.objectives import losses, regularizers
    from spreadout.runs.compare import compare
    from spreadout.runs.comparison import Comparison
    from spreadout.runs.observer import Interrupted, Observer
    from spreadout.runs.predict import Predictor, load
    from spreadout.runs.result import Result
    from spreadout.runs.train import resume, run
    from spreadout.runtime import register_executor
    from spreadout.runtime.sequential import Sequential
    from spreadout.use.export import export
    from spreadout.use.serve.server import serve

__all__ = [  # noqa: RUF022 (in the order in which people meet them)
    # Runs
    "Experiment",
    "run",
    "resume",
    "compare",
    "load",
    "export",
    "serve",
    "Result",
    "Comparison",
    "Predictor",
    "Reference",
    "references_of",
    "best_central",
    "Observer",
    "Interrupted",
    "UserError",
    # Data
    "load_data",
    "DataConfig",
    "Splits",
    "FederatedDataset",
    "Examples",
    "Dense",
    "Lists",
    "Sparse",
    "Ragged",
    # Functions of tensors
    "losses",
    "regularizers",
    "metrics",
    "CountSketch",
    # A method of one's own
    "Method",
    "PositiveOnly",
    "FullSoftmax",
    "register_method",
    "reads_params_via_model",
    "EmbeddingModel",
    "Params",
    "Batch",
    "RowInfo",
    "RowMerge",
    "Rows",
    "Optimizer",
    "ServerState",
    "MethodState",
    "ServerContext",
    "SetupContext",
    "Traffic",
    # A correction of client drift
    "DriftCorrection",
    "register_drift_correction",
    # A robust rule
    "RobustRule",
    "register_robust_rule",
    # An encoder
    "register_encoder",
    "DataShape",
    "ModelConfig",
    "Standardized",
    # A source of data
    "Source",
    "register_source",
    "RawDataset",
    "Instances",
    "PublishedDataset",
    "PublishedFile",
    # A partition
    "Partition",
    "register_partition",
    "Pairs",
    "Assignment",
    # A metric
    "Metric",
    "register_metric",
    "MetricInputs",
    # An executor
    "Executor",
    "Sequential",
    "register_executor",
    # A preset
    "register_preset",
]

_MODULES = {
    "losses": "objectives.losses",
    "regularizers": "objectives.regularizers",
    "metrics": "evaluation.metrics",
}
_HOMES = {  # module → the names that are imported from it
    "config.experiment": "Experiment",
    "config.presets": "register_preset",
    "core.count_sketch": "CountSketch",
    "core.errors": "UserError",
    "core.merging": "RowMerge",
    "core.optimizers": "Optimizer",
    "core.ragged": "Ragged",
    "core.rows": "Rows",
    "core.state": "MethodState ServerState",
    "core.traffic": "Traffic",
    "core.types": "Batch Params RowInfo",
    "data.columns": "Dense Lists Sparse",
    "data.dataset": "FederatedDataset",
    "data.held_out": "Examples",
    "data.load": "DataConfig load_data",
    "data.partition": "Assignment Pairs",
    "data.partitions": "Partition register_partition",
    "data.published": "PublishedDataset PublishedFile",
    "data.sources.base": "Instances RawDataset Source register_source",
    "data.splits": "Splits",
    "evaluation.metrics": "Metric MetricInputs register_metric",
    "evaluation.references": "Reference best_central references_of",
    "federated.drift.base": "DriftCorrection register_drift_correction",
    "federated.executor": "Executor",
    "federated.robust": "RobustRule register_robust_rule",  # with its own first
    "methods.base": "Method reads_params_via_model register_method",
    "methods.context": "ServerContext SetupContext",
    "methods.fedavg": "FullSoftmax",
    "methods.positive_only": "PositiveOnly",
    "models.build": "DataShape ModelConfig register_encoder",
    "models.embedding": "EmbeddingModel",
    "models.nn.scaling": "Standardized",
    "runs.compare": "compare",
    "runs.comparison": "Comparison",
    "runs.predict": "Predictor load",
    "runs.result": "Result",
    "runs.observer": "Interrupted Observer",
    "runs.train": "resume run",
    "runtime": "register_executor",  # with its own first, so that no other takes their names
    "runtime.sequential": "Sequential",
    "use.export": "export",
    "use.serve.server": "serve",
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names.split()}


def __getattr__(name: str) -> Any:
    """Import on first use, so that `spreadout --help` does not wait for torch."""
    if name in _MODULES:
        return importlib.import_module(f"spreadout.{_MODULES[name]}")
    if name in _HOME_OF:
        return getattr(importlib.import_module(f"spreadout.{_HOME_OF[name]}"), name)
    raise AttributeError(f"module 'spreadout' has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
