"""One step of many clients as one gradient: `mean_i(θ − η∇_i) = θ − η·mean_i ∇_i`, without copies."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor

from spreadout.core.rows import along_sphere, project_to_sphere
from spreadout.core.state import ServerState
from spreadout.core.types import Params, RowInfo, Tensors
from spreadout.federated.aggregate import Aggregate
from spreadout.models.embedding import EmbeddingModel
from spreadout.runtime.simulator.chunk_sums import aggregate
from spreadout.runtime.simulator.fused_graph import FusedGraph, Step
from spreadout.runtime.simulator.shared_encoder import can_share, shared_outputs
from spreadout.runtime.simulator.staging import Chunk


def fused_step(
    chunk: Chunk,
    state: ServerState,
    meanwhile: Callable[[], None],
    graph: FusedGraph | None = None,
) -> Aggregate | None:
    """One step of every client as one gradient; None if some client's gradient is not finite."""
    f, training = chunk.federation, chunk.training
    weight = f.rules.client_weight(chunk.examples)  # (k,) ω_i
    rows = chunk.rows(state.tables)
    trained = [name for name in rows if name not in training.fixed]
    moving = [name for name in state.dense if name not in f.model.constant_dense]
    after, pooled = _pooled_inputs(chunk, state)
    step = _StepOfAll(chunk, after, moving, trained, list(pooled))
    batch = {name: column[:, 0] for name, column in chunk.batches.items()} | pooled
    inputs = step.flat(rows, batch, weight)
    found = None
    if graph is not None and step.shares and step.is_full:
        found = graph.run(step, state.dense, inputs, f.objective_key)
    loss, gradients, statistics = found or step(state.dense, inputs)
    with torch.no_grad():
        sound = torch.stack([loss.sum(), *torch._foreach_norm(gradients)]).isfinite().all()
        own = gradients[: len(moving)]  # an encoder may have no weights at all
        steps = torch._foreach_mul(own, -training.dense.lr) if own else []
        change = dict(zip(moving, steps, strict=True))
        moved = {}
        for name, gradient in zip(trained, gradients[len(moving) :], strict=False):
            start, slope = rows[name].detach(), gradient / weight[:, None, None]
            rate = training.rows[name].lr
            if name in training.sphere:
                moved[name] = project_to_sphere(start - rate * along_sphere(slope, start)) - start
            else:
                moved[name] = -rate * slope
        part = aggregate(chunk, state, change, chunk.sent_back(moved), loss)
        part.statistics = statistics
        if chunk.features is not None:
            (table,) = f.model.row_columns.values()
            share = f.rules.row_weight(table, chunk.examples) / weight
            rate = training.rows[table].lr
            part.rows[table] = chunk.features.row_sum(gradients[-1], share, rate)
    meanwhile()
    return part if bool(sound) else None


@dataclass(frozen=True)
class _StepOfAll:
    """One step of all clients of a chunk, as a function of weights and of what differs by round."""

    chunk: Chunk
    after: EmbeddingModel  # what is left of the model where features are pooled already
    moving: list[str]  # dense tensors that get a gradient
    trained: list[str]  # tables whose rows do
    pooled: list[str]  # columns that do

    @property
    def shares(self) -> bool:
        """Whether the encoder is called once, on the images of all clients."""
        return self.chunk.features is None and can_share(self.chunk.federation)

    @cached_property
    def filled(self) -> Tensor:
        """Slots that hold an example: (k, B), on the host."""
        assert self.chunk.cohort.plan is not None
        return self.chunk.cohort.plan.mask[:, 0] > 0

    @property
    def is_full(self) -> bool:
        return bool(self.filled.all())

    def flat(self, rows: Tensors, batch: Tensors, weight: Tensor) -> Tensors:
        """Everything but the weights, by names that `__call__` takes apart again."""
        info = self.chunk.info._asdict().items()
        return {
            **{f"rows/{name}": value for name, value in rows.items()},
            **{f"batch/{name}": value for name, value in batch.items()},
            **{f"{part}/{name}": value for part, named in info for name, value in named.items()},
            "weight/": weight,
        }

    def __call__(self, dense: Tensors, inputs: Tensors) -> Step:
        f, parts = self.chunk.federation, _by_part(inputs)
        rows, batch = parts.get("rows", {}), parts.get("batch", {})
        info = RowInfo(*(parts.get(part, {}) for part in RowInfo._fields))
        dense = {name: value.detach() for name, value in dense.items()}
        rows = {name: value.detach() for name, value in rows.items()}
        leaves = [*(dense[name] for name in self.moving), *(rows[name] for name in self.trained)]
        leaves += [batch[name] for name in self.pooled]
        for leaf in leaves:
            leaf.requires_grad_()
        after, read, statistics = self.after, dense, Tensors()
        if self.shares:
            after, outputs, statistics = shared_outputs(f, dense, batch["x"], self.filled)
            batch, read = batch | outputs, {}  # the loss finds no weights, and need not carry them
        objective = torch.vmap(
            replace(f, model=after).objective(),
            in_dims=(Params(None, 0), 0, 0),  # type: ignore[arg-type]
        )
        loss = objective(Params(read, rows), batch, info)  # (k,)
        found = torch.autograd.grad((parts["weight"][""] * loss).sum(), leaves, allow_unused=True)
        gradients = [torch.zeros_like(x) if g is None else g for x, g in zip(leaves, found, strict=True)]
        return Step(loss.detach(), gradients, statistics)


def _by_part(inputs: Tensors) -> dict[str, Tensors]:
    parts: dict[str, Tensors] = {}
    for key, value in inputs.items():
        part, _, name = key.partition("/")
        parts.setdefault(part, {})[name] = value
    return parts


def _pooled_inputs(chunk: Chunk, state: ServerState) -> tuple[EmbeddingModel, Tensors]:
    """A model of pooled features, and those of the step; or the model as it is, and nothing."""
    model, features = chunk.federation.model, chunk.features
    if features is None:
        return model, {}
    ((name, table),) = model.row_columns.items()
    pooled = features.pooled(state.tables[table]).requires_grad_()  # (k, B, width)
    return EmbeddingModel(model.encoder, model.tables, (name,), model.first_class), {name: pooled}
