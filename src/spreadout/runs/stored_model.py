"""The trained model of a run folder: its weights, its config, and the shape of its data."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from spreadout.config.experiment import Experiment
from spreadout.core.errors import UserError
from spreadout.core.state import ServerState
from spreadout.core.types import Tensors
from spreadout.data.input_columns import InputColumns
from spreadout.methods.base import Method
from spreadout.models.buckets import BucketModel
from spreadout.models.build import DataShape
from spreadout.models.embedding import EmbeddingModel, TableShape
from spreadout.runs.claim import CONFIG
from spreadout.runs.files import ABOUT, WEIGHTS, RunFiles
from spreadout.runs.parts import refuse_other_kinds
from spreadout.runs.sums import check
from spreadout.runs.written import About


@dataclass(frozen=True)
class StoredModel:
    """What a finished run left to be asked."""

    experiment: Experiment
    model: EmbeddingModel
    state: ServerState
    shape: DataShape
    names: Sequence[str]
    ids: Sequence[str]
    columns: InputColumns | None


def read_model(path: Path, encoder: nn.Module | None, method: Method | None) -> StoredModel:
    """The model of a run folder, around the parts that the run was given in Python."""
    folder = RunFiles.open(path)
    about = _about(folder)
    check(path, CONFIG, WEIGHTS)
    refuse_other_kinds(None, encoder, method)
    _refuse_other_parts(path, about["own"], {"encoder": encoder, "method": method})
    experiment, shape = Experiment.load(folder.config), _shape(about["shape"])
    try:
        tensors = load_file(path / WEIGHTS)
    except (OSError, SafetensorError) as error:
        raise UserError(f"{path / WEIGHTS}: is damaged ({error}); run it again") from None
    dense, tables, scoring = (
        {name.removeprefix(kind): t for name, t in tensors.items() if name.startswith(kind)}
        for kind in ("dense.", "table.", "scoring.")
    )
    method = method or experiment.method
    if encoder is not None:
        model = _around(encoder, path, dense, tables)
    else:
        model = _built(path, experiment, method, shape)
    _refuse_unfit(path, model, shape, tensors)
    state = ServerState(0, dense, dict(tables), scoring=scoring)
    try:
        model = method.as_trained(model, state, experiment.seed)
    except UserError as error:
        raise UserError(f"{path / WEIGHTS}: {error}; run it again") from None
    columns = InputColumns.from_json(about.get("columns"))
    if columns is not None and columns.width != shape.features:
        raise UserError(
            f"{path / ABOUT}: its columns make {columns.width} numbers, not {shape.features}"
        )
    return StoredModel(experiment, model, state, shape, about["names"], about["ids"], columns)


def _built(path: Path, experiment: Experiment, method: Method, shape: DataShape) -> EmbeddingModel:
    """As the config says, for data of this shape."""
    try:
        return method.build_model(experiment.model, shape, experiment.seed)
    except UserError:
        raise
    except Exception as error:  # of a shape that no data has
        reason = str(error).partition("\n")[0][:80]
        raise UserError(f"{path / ABOUT}: does not fit config.toml ({reason}); run it again") from error


def _refuse_unfit(path: Path, model: EmbeddingModel, shape: DataShape, tensors: Tensors) -> None:
    """Weights that are not those of this model, by shape or type."""
    named = {f"dense.{name}": value for name, value in model.encoder.named_parameters()}
    wanted = {name: _kind(v) for name, v in named.items() if v.requires_grad or name in tensors}
    for name, table in model.tables.items():
        wanted[f"table.{name}"] = f"{(table.count, table.dim)} float32"
    saved = {name: _kind(value) for name, value in tensors.items()}
    if isinstance(model, BucketModel) and model.hashes is not None and "scoring.hashes" in tensors:
        wanted["scoring.hashes"] = _kind(model.hashes.functions)
    for name, found in tensors.items():
        if name in ("scoring.counts", "scoring.prior") and found.shape == (shape.classes,):
            wanted[name] = saved[name]
    for name in sorted(wanted.keys() | saved.keys()):
        if wanted.get(name) != saved.get(name):
            here, there = wanted.get(name, "nothing"), saved.get(name, "missing")
            raise UserError(
                f"{path / 'model'}: does not fit config.toml ({name} is {there}, should be {here}); "
                "put back what was changed, or run it again"
            )


def _kind(value: Tensor) -> str:
    return f"{tuple(value.shape)} {str(value.dtype).removeprefix('torch.')}"


def _shape(about: Mapping[str, Any]) -> DataShape:
    """JSON has lists for tuples."""
    plain: dict[str, Any] = {key: tuple(v) if isinstance(v, list) else v for key, v in about.items()}
    return DataShape(**plain)


def _refuse_other_parts(path: Path, own: Sequence[str], given: Mapping[str, object]) -> None:
    """A run is asked with the parts it was given in Python, and with no others."""
    for name, part in given.items():
        if name in own and part is None:
            there = ", or name it with --encoder MODULE:NAME" if name == "encoder" else ""
            raise UserError(
                f"{path}: was trained with its own {name}; load it in Python: "
                f"so.load({str(path)!r}, {name}=...){there}"
            )
        if name not in own and part is not None:
            raise UserError(f"{path}: was trained with the {name} its config names; give no other")


def _around(encoder: nn.Module, path: Path, dense: Tensors, tables: Tensors) -> EmbeddingModel:
    """A model around the user's own encoder, if it is one that the saved weights fit."""
    module = copy.deepcopy(encoder).cpu().eval()
    trained = {n: tuple(v.shape) for n, v in module.named_parameters() if v.requires_grad}
    saved = {name: tuple(value.shape) for name, value in dense.items()}
    for name in sorted(trained.keys() | saved.keys()):
        if trained.get(name) != saved.get(name):
            kind, here, there = type(encoder).__name__, trained.get(name), saved.get(name)
            has = f"has a parameter {name} of shape {here}" if here else f"has no parameter {name}"
            had = f"one of shape {there}" if there else "none"
            raise UserError(
                f"{path}: encoder: this {kind} {has}, the trained one has {had}; give one that is made "
                "as for training"
            )
    classes = tables.get("classes")
    if classes is None or classes.dim() != 2:
        raise UserError(f"{path / WEIGHTS}: has no class table; run it again")
    return EmbeddingModel(module, {"classes": TableShape(*classes.shape)})


def _about(folder: RunFiles) -> dict[str, Any]:
    if not (folder.path / ABOUT).is_file() or not folder.finished:
        remedy = (
            "it is of an older version: run it again"
            if folder.finished
            else "let the run end, or resume it"
        )
        raise UserError(f"{folder.path}: has no model that can be asked; {remedy}")
    found = folder.read_json(ABOUT, About)
    older = ["encoder"] if found.get("own_encoder") else []
    return {"own": older, **found}
