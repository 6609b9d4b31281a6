"""One client's work, written once: some optimiser steps on the sub-model it was sent.

The loop below trains one client, or a stack of clients side by side. Clients share nothing, so the
gradient of the sum of their losses is the stack of their own gradients; the only difference is
whether `objective` is the one-client function itself or its `torch.vmap`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import EllipsisType
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor

from spreadout.core.optimizers import Optimizer
from spreadout.core.rows import along_sphere, project_to_sphere
from spreadout.core.types import Batch, Params, RowInfo, Tensors
from spreadout.federated.example_noise import ExampleNoise


@runtime_checkable
class GradientListener(Protocol):
    """A column whose later steps depend on the loss's gradients at the earlier ones."""

    def receive_gradient(self, gradient: Tensor) -> None: ...


Objective = Callable[[Params, Batch, RowInfo], Tensor]  # one client's loss on one batch, a scalar


@dataclass(frozen=True)
class LocalTraining:
    """How every client trains: its optimisers, and which tables live on the unit sphere."""

    dense: Optimizer
    rows: Mapping[str, Optimizer]
    sphere: frozenset[str] = frozenset()
    fixed: frozenset[str] = frozenset()  # tables a client may read but not train
    pull: float = 0.0  # μ of a pull back to where the round began (see drift/base.py)

    def scaled(self, factor: float, classes: float = 1.0) -> LocalTraining:
        """The same with every rate multiplied, for schedules over rounds; that of class rows by both."""
        more = {name: classes if name == "classes" else 1.0 for name in self.rows}
        rows = {name: optimizer.scaled(factor * more[name]) for name, optimizer in self.rows.items()}
        return replace(self, dense=self.dense.scaled(factor), rows=rows)

    @property
    def averages_gradients(self) -> bool:
        """Whether averaging clients after one step equals one step on their averaged gradient."""
        used = [self.dense, *self.rows.values()]
        return all(optimizer.is_linear_in_first_gradient for optimizer in used)


def local_update(
    objective: Objective,
    training: LocalTraining,
    start: Params,
    batches: Batch,
    info: RowInfo,
    *,
    active: Sequence[int] | None = None,
    gate: Tensor | None = None,
    offset: Params | None = None,
    examples: ExampleNoise | None = None,
    memory: Mapping[str, Tensors] | None = None,
) -> tuple[Params, Tensor]:
    """Train from `start` over the batches; return how far every tensor moved, and the mean loss.

    One client: `batches` are (S, B, …) and the loss is a scalar. A stack of k clients, sorted by
    falling number of steps: everything has a leading k, and `active[s]` clients are still at work
    in step s. `start` is not changed. `gate` (k, S) multiplies every move of a stack: 0 once a client
    has done all its steps, so that it can stay in the stack to the end. `offset` is added, in every
    step, to the gradients of the tensors it has. `examples` makes the gradients, clipped one by one and
    noised, in place of the objective. `memory` is what the optimisers remember, by tensor: it is
    changed in place; None: they begin from rest.
    """
    stacked = active is not None
    params = Params(*({name: value.clone() for name, value in part.items()} for part in start))
    state = _Slots(training, params, memory)
    steps = batches["mask"].shape[1 if stacked else 0]
    loss_sum = torch.zeros(batches["mask"].shape[:1] if stacked else (), device=_device(params))
    followed = {name: column for name, column in batches.items() if isinstance(column, GradientListener)}
    for step in range(steps):
        # The clients still at work: the first few of a stack, or all there is of one client.
        now = slice(0, active[step]) if active is not None else ...
        live = Params(*({n: v[now].detach() for n, v in part.items()} for part in params))
        trained = [*live.dense.values(), *(live.rows[name] for name in state.tables)]
        batch = {n: column[now, step] if stacked else column[step] for n, column in batches.items()}
        leaves = [*trained, *(batch[name] for name in followed)]
        gradients: Sequence[Tensor | None]
        if examples is not None:
            loss, gradients = examples.gradients(live, state.tables, batch, info.at(now), step, now)
        else:
            for tensor in leaves:
                tensor.requires_grad_()
            loss = objective(live, batch, info.at(now))
            gradients = torch.autograd.grad(loss.sum(), leaves, allow_unused=True)
        for column, gradient in zip(followed.values(), gradients[len(trained) :], strict=True):
            assert gradient is not None
            column.receive_gradient(gradient)
        with torch.no_grad():
            share = None if gate is None else gate[now, step]
            loss_sum[now] += loss.detach() * (1.0 if share is None else (share > 0).float())
            left = list(reversed(gradients[: len(trained)]))
            # Two parameters that are added share one gradient.
            users = Counter(_memory_of(gradient) for gradient in left if gradient is not None)
            del gradients, loss
            for name, optimizer, value in state.parts:
                gradient = left.pop()  # after this step its memory is free
                if gradient is None:  # the loss does not depend on it
                    continue
                sphere = name in training.sphere
                alone = users[_memory_of(gradient)] == 1
                corrected = _corrected(gradient, value[now], name, start, training.pull, offset, now)
                if corrected is not gradient:
                    gradient, alone = corrected, True
                _step_(value[now], gradient, optimizer, state.at(name, now), sphere, share, alone)
    with torch.no_grad():
        state.forget()
        dense = {name: value.sub_(start.dense[name]) for name, value in params.dense.items()}
        rows = {name: params.rows[name].sub_(start.rows[name]) for name in state.tables}
        steps_taken = batches["mask"].sum(-1) if gate is None else gate
        taken = (steps_taken > 0).sum(-1).clamp_min(1)  # by each client
        return Params(dense, rows), loss_sum / taken


def _corrected(
    gradient: Tensor,
    value: Tensor,
    name: str,
    start: Params,
    pull: float,
    offset: Params | None,
    now: slice | EllipsisType,
) -> Tensor:
    """The gradient of μ/2 ‖w − w⁰‖² + ⟨offset, w⟩ added to a tensor's own; the same where neither is."""
    if pull:
        first = start.dense[name] if name in start.dense else start.rows[name]
        gradient = gradient + pull * (value - first[now])
    if offset is not None:
        added = offset.dense.get(name, offset.rows.get(name))
        gradient = gradient if added is None else gradient + added[now]
    return gradient


def _step_(
    value: Tensor,
    gradient: Tensor,
    optimizer: Optimizer,
    slots: Tensors,
    sphere: bool,
    share: Tensor | None,
    alone: bool,
) -> None:
    """One step, in place; share (k,): how much of it each client of a stack takes, None: all of it.

    alone: whether no other gradient shares its memory, so that it may be overwritten.
    """
    if share is not None:
        share = share.view(-1, *[1] * (gradient.dim() - 1))
    if optimizer.is_plain and not sphere:  # in one pass over memory
        if share is None:
            value.add_(gradient, alpha=-optimizer.lr)
        else:
            value.addcmul_(gradient, share, value=-optimizer.lr)
        return
    if share is None and not sphere and optimizer.is_fused:
        optimizer.step_(value, gradient, slots)
        return
    if sphere:
        gradient = along_sphere(gradient, value)
    move = optimizer.move(gradient, slots, spend=alone)
    if share is not None:
        move = move * share
    if sphere:
        value.copy_(project_to_sphere(value + move))
    else:
        value.add_(move)


class _Slots:
    """The local optimisers' state, from rest or as it is remembered, for everything that is trained."""

    def __init__(
        self, training: LocalTraining, params: Params, memory: Mapping[str, Tensors] | None
    ) -> None:
        self.tables = [name for name in params.rows if name not in training.fixed]
        self.parts: list[tuple[str, Optimizer, Tensor]] = [
            *((name, training.dense, value) for name, value in params.dense.items()),
            *((name, training.rows[name], params.rows[name]) for name in self.tables),
        ]
        self._slots: Mapping[str, Tensors] = memory or {
            name: optimizer.init(value) for name, optimizer, value in self.parts
        }

    def forget(self) -> None:
        """Free the memory of all slots."""
        self._slots = {}

    def at(self, name: str, now: slice | EllipsisType) -> Tensors:
        # A step count (1,) is shared: all clients still at work have taken equally many steps.
        return {
            slot: tensor if slot == "steps" else tensor[now]
            for slot, tensor in self._slots[name].items()
        }


def _memory_of(gradient: Tensor) -> int:
    return gradient.untyped_storage().data_ptr()


def _device(params: Params) -> torch.device:
    return next(iter([*params.dense.values(), *params.rows.values()])).device
