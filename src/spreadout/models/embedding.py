"""An embedding classifier (Eq. 1 of FedAwS): an encoder, and one row per class in the same space."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn
from torch.func import functional_call

from spreadout import randomness
from spreadout.federated.local import Batch, Params
from spreadout.federated.rows import Tensors, project_to_sphere
from spreadout.federated.tables import Tables


@dataclass(frozen=True)
class Table:
    """A row table: how many rows of which width, and whether rows live on the unit sphere."""

    count: int
    dim: int
    sphere: bool = True
    scale: float = 1.0  # deviation of fresh rows that do not live on the sphere


@dataclass(frozen=True)
class EmbeddingModel:
    """Scores are dot products of the encoder's output with class rows, both of unit length."""

    encoder: nn.Module  # maps a batch of inputs to (B, dim); no batch statistics, no buffers that move
    tables: Mapping[str, Table]
    inputs: tuple[str, ...] = field(default=("x",))  # the columns the encoder takes
    first_class: int = 0  # rows below it are nobody's class and are never ranked
    refers: Mapping[str, str] = field(default_factory=dict)  # inputs that name rows of which table

    @property
    def sphere(self) -> frozenset[str]:
        return frozenset(name for name, table in self.tables.items() if table.sphere)

    def on(self, device: torch.device) -> EmbeddingModel:
        """The same with what it computes by, beside its parameters, on a device."""
        return self

    def activations(self, shape: tuple[int, ...] | None) -> int:
        """How many numbers the encoder's layers put out for one example of this shape, about.

        Where that cannot be told, as many as the layers are wide.
        """
        if shape is not None:
            with suppress(Exception):  # an encoder of the user's own may not run without values
                return activation_floats(self.encoder, shape)
        named = self.encoder.named_parameters()
        return sum(value.numel() for name, value in named if value.dim() == 1 or "bias" in name)

    def initial(self, seed: int, device: torch.device) -> tuple[Tensors, Tables]:
        """Fresh dense tensors and tables. The encoder keeps the weights it was built with.

        Its frozen parameters and buffers are part of the model's code: they do not travel.
        """
        parameters = dict(self.encoder.named_parameters())
        for value in [*self.encoder.buffers(), *parameters.values()]:
            if not value.requires_grad:
                value.data = value.data.to(device)
        dense = {
            name: value.detach().to(device, copy=True)
            for name, value in parameters.items()
            if value.requires_grad
        }
        tables: Tables = {}
        for name, table in self.tables.items():
            generator = torch.Generator().manual_seed(randomness.key(seed, "table", name) >> 1)
            rows = torch.randn(table.count, table.dim, generator=generator)
            rows = project_to_sphere(rows) if table.sphere else rows * table.scale
            tables[name] = rows.to(device)
        return dense, tables

    def embed(self, params: Params, batch: Batch) -> Tensor:
        """g(x): unit embeddings of a batch (B, dim)."""
        inputs = tuple(batch[name] for name in self.inputs)
        output: Tensor = functional_call(self.encoder, params.dense, inputs)
        return project_to_sphere(output.float())

    def class_vectors(self, params: Params) -> Tensor:
        """What embeddings are compared with, for every class row held: (m, dim)."""
        return params.rows["classes"]


@torch.no_grad()
def activation_floats(encoder: nn.Module, shape: tuple[int, ...]) -> int:
    """How many numbers the layers of an encoder put out for one example."""
    counted = 0

    def count(module: nn.Module, given: tuple[Tensor, ...], made: Tensor) -> None:
        nonlocal counted
        if isinstance(made, Tensor):
            counted += made.numel()

    leaves = [module for module in encoder.modules() if not list(module.children())]
    hooks = [module.register_forward_hook(count) for module in leaves]
    try:
        # One example is soon computed; torch's "meta" device would load its compiler first: a second.
        where = next((value.device for value in encoder.parameters()), torch.device("cpu"))
        encoder(torch.zeros(1, *shape, device=where))
    finally:
        for hook in hooks:
            hook.remove()
    return counted
