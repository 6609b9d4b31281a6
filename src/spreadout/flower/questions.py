"""What a server says to a node, read with suspicion: what is no question is answered in one line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from flwr.app import RecordDict
from torch import Tensor

from spreadout.core.rows import SubModel
from spreadout.core.types import Tensors
from spreadout.federated.drift.control import TABLE
from spreadout.flower import messages
from spreadout.flower.messages import Malformed
from spreadout.models.embedding import EmbeddingModel

MOST_ROUNDS = 2**62
MOST_NAME = 64  # letters of a run's name
NUMBERS = (torch.float32, torch.float64, torch.int64)


@dataclass(frozen=True)
class Task:
    """Of which round a question is, and which clients it is about."""

    round: int
    clients: list[int]
    next: list[int]  # clients whose requests of the round after it are wanted
    setup: bool
    run: str  # what the run is known by, to whoever counts what it is given


def task_in(content: RecordDict, known: Sequence[int]) -> Task:
    """The task of a question. known: the numbers of the node's clients."""
    said = messages.numbers_in(content, "task")
    round, setup = said.get("round"), said.get("setup", False)
    if type(round) is not int or not 0 <= round < MOST_ROUNDS or type(setup) is not bool:
        raise Malformed("a task that does not say which round it is")
    run = said.get("run", "")
    if type(run) is not str or len(run) > MOST_NAME:
        raise Malformed("a task of a run without a name")
    clients, following = (_clients(said.get(name, []), known) for name in ("clients", "next"))
    return Task(round, clients, following, setup, run)


def _clients(said: Any, known: Sequence[int]) -> list[int]:
    if not isinstance(said, list) or any(type(client) is not int for client in said):
        raise Malformed("a task with something else than numbers of clients")
    if not set(said) <= set(known) or len(set(said)) < len(said):
        raise Malformed("a task for clients that are not this node's")
    return said


def sub_model_in(content: RecordDict, round: int, model: EmbeddingModel) -> SubModel:
    """What a node is sent of the model; in its tables, the rows it does not keep."""
    dense, control = (messages.tensors_in(content, name) for name in ("dense", "control"))
    rows = messages.rows_in(content, "rows")
    wanted = {n: value for n, value in model.encoder.named_parameters() if value.requires_grad}
    if dense.keys() != wanted.keys() or rows.keys() != model.tables.keys():
        raise Malformed("a model of other parts than this node's")
    for name, value in dense.items():
        _refuse_unlike(name, value, tuple(wanted[name].shape), wanted[name].dtype)
    for name, some in rows.items():
        table = model.tables[name]
        ids = messages.whole({"ids": some.ids}, "ids")
        if len(ids) and not 0 <= int(ids.min()) <= int(ids.max()) < table.count:
            raise Malformed(f"rows of {name} that there are not")
        if bool((ids.diff() <= 0).any()):
            raise Malformed(f"rows of {name} in no order")
        _refuse_unlike(name, some.values, (len(ids), table.dim))
    for name, value in control.items():
        _refuse_unlike(name, value, *_controlled(name, wanted, model))
    return SubModel(round, dense, rows, control)


def _controlled(name: str, dense: Mapping[str, Tensor], model: EmbeddingModel) -> tuple[tuple[int, ...]]:
    """The shape of a part that drift is corrected for."""
    if name in dense:
        return (tuple(dense[name].shape),)
    table = model.tables.get(name.removeprefix(TABLE))
    if table is None or not name.startswith(TABLE):
        raise Malformed(f"a control of {name[:40]!r}, which is no part of the model")
    return ((table.count - model.first_class, table.dim),)


def _refuse_unlike(
    name: str, value: Tensor, shape: tuple[int, ...], dtype: torch.dtype = torch.float32
) -> None:
    if tuple(value.shape) != shape or value.dtype != dtype:
        found = f"{tuple(value.shape)} of {value.dtype}"
        raise Malformed(f"{name[:40]} of shape {found}, not {shape} of {dtype}")


def public_in(content: RecordDict, classes: int) -> Tensors:
    """What the server tells all nodes: how many clients hold each class, and how often it occurs."""
    found = messages.tensors_in(content, "public")
    if other := found.keys() - {"popularity", "counts"}:
        raise Malformed(f"public values of an unknown kind: {min(other)[:40]!r}")
    for name, value in found.items():
        if value.shape != (classes,) or value.dtype not in NUMBERS:
            raise Malformed(f"{name} of {tuple(value.shape)}, but there are {classes} classes")
        if not bool(((value >= 0) & value.isfinite()).all()):
            raise Malformed(f"{name} below 0 or not finite")
    return found
