"""A finished run in one value: what it reached, what it moved, what it promises, what it ran on."""

from __future__ import annotations

import platform
import resource
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import torch

from spreadout import __version__
from spreadout.config.experiment import Experiment
from spreadout.core.rows import nbytes
from spreadout.core.state import ServerState
from spreadout.core.tables import table_bytes
from spreadout.core.types import Record, Tensors
from spreadout.data.splits import Splits
from spreadout.evaluation.early_stopping import best_of, shown_of
from spreadout.evaluation.evaluate import Evaluation
from spreadout.evaluation.geometry import Geometry
from spreadout.evaluation.references import ReferenceSet, why_none
from spreadout.federated.federation import Federation
from spreadout.federated.robust.limits import limits_in
from spreadout.models.embedding import EmbeddingModel
from spreadout.runs.finding import Finding
from spreadout.runs.promises import privacy_of, table_privacy_of


def record_of(
    model: EmbeddingModel,
    state: ServerState,
    found: Evaluation,
    tau: float | None,
    loss: float | None,
    seconds: float,
) -> Record:
    """One evaluation, as a line of `metrics.jsonl`."""
    trained = {n: value for n, value in state.dense.items() if n not in model.constant_dense}
    return {
        "round": state.round,
        **found.metrics,
        **({} if tau is None else {"prior": tau}),
        "loss": loss,
        "weights_norm": _norm(trained),
        "bytes_down": state.traffic.down,
        "bytes_up": state.traffic.up,
        "seconds": round(seconds, 6),
        **(asdict(found.geometry) if found.geometry else {}),
        "refused": dict(state.refused),
    }


def _norm(dense: Tensors) -> float:
    """The length of the encoder's weights as one vector."""
    squares = [value.double().square().sum() for value in dense.values()]
    return float(torch.stack(squares).sum().sqrt()) if squares else 0.0


def summarize(
    experiment: Experiment,
    data: Splits,
    federation: Federation,
    state: ServerState,
    history: Sequence[Record],
    seconds: float,
    references: ReferenceSet,
    findings: Sequence[Finding],
    prior: Mapping[str, Any] | None = None,
    data_notes: Sequence[str] = (),
) -> dict[str, Any]:
    """All that `summary.json` says."""
    names = experiment.eval.metrics
    last = history[shown_of(experiment.eval, history)]
    best = last if experiment.eval.keep == "best" else history[best_of(experiment.eval, history)]
    moved = {"bytes": best["bytes_down"] + best["bytes_up"]}
    traffic = state.traffic
    return {
        "name": experiment.name,
        "method": federation.method.name,
        "is_centralized": federation.method.is_centralized,
        "dataset": data.name,
        "clients": federation.data.clients,
        "classes": data.train.class_count,
        "rounds": state.round,
        "metrics": {name: last[name] for name in names},
        "keep": experiment.eval.keep,
        "kept_round": last["round"],  # whose model it is
        "best_by": experiment.eval.best_by,
        "stopped_early": state.round < experiment.rounds,  # eval.patience or privacy.epsilon ran out
        "best": {"round": best["round"], **{name: best[name] for name in names}, **moved},
        "references": {
            name: {
                "metrics": one.metrics,
                "seconds": one.seconds,
                "note": one.note,
                "is_trivial": one.is_trivial,
            }
            for name, one in references.references.items()
        },
        "references_from": {"instances": references.instances, "scored": references.scored},
        "findings": [asdict(finding) for finding in findings],
        "data_notes": list(data_notes),
        "prior": prior,  # what it gains, and on which classes
        "references_note": _why_no_references(experiment, data),
        "geometry": {name: last.get(name) for name in Geometry.__dataclass_fields__},
        "client_state_bytes": sum(part.nbytes for part in state.clients.values()),
        "model_bytes": nbytes(state.dense.values()) + sum(map(table_bytes, state.tables.values())),
        "bytes": {"down": traffic.down, "up": traffic.up, **asdict(traffic)},
        "seconds": seconds,
        "peak_memory_bytes": peak_memory(federation.device),
        "refused_updates": dict(state.refused),
        "robust": _robust(federation, state),
        "privacy": privacy_of(federation, state),
        "table_privacy": table_privacy_of(federation, state),
        "seed": experiment.seed,
        "device": str(federation.device),
        "versions": {
            "spreadout": __version__,
            "torch": torch.__version__,
            "python": platform.python_version(),
        },
    }


def _why_no_references(experiment: Experiment, data: Splits) -> str:
    """Why there are none; empty where there are."""
    if not experiment.eval.references:
        return "eval.references = false"
    if experiment.privacy is not None:
        return "none with [privacy]: they are made of the training data, without noise"
    return why_none(data, experiment.eval.metrics, experiment.eval.split)


def _robust(federation: Federation, state: ServerState) -> dict[str, Any] | None:
    """The rule that guards the model against hostile clients, and how long updates may be by now."""
    rule = federation.server.robust
    if rule is None:
        return None
    limits = {part: float(limit) for part, limit in limits_in(state.robust).items()}
    return {**rule.model_dump(), "limits": limits}


def peak_memory(device: torch.device) -> int:
    """Peak bytes: of the GPU's allocator, or of this process."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
