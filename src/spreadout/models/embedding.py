"""An embedding classifier (Eq. 1 of FedAwS): an encoder, and one row per class in the same space."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn
from torch.func import functional_call

from spreadout import randomness
from spreadout.federated.local import Batch, Params
from spreadout.federated.rows import Tensors, project_to_sphere


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

    def initial(self, seed: int, device: torch.device) -> tuple[Tensors, Tensors]:
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
        tables = {}
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
