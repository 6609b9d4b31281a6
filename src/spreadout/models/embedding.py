"""An embedding classifier (Eq. 1 of FedAwS): an encoder, and one row per class in the same space."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from typing import ClassVar

import torch
from torch import Tensor, nn

from spreadout.core import randomness
from spreadout.core.rows import project_to_sphere
from spreadout.core.tables import Sharded, Table, Tables
from spreadout.core.types import Batch, Params, Tensors
from spreadout.models.nn.cohort_norm import statistics_in
from spreadout.models.nn.scaling import standardized_in
from spreadout.models.nn.unit import unit
from spreadout.models.nn.untouched import output_of
from spreadout.objectives.neighbours import Nearest, nearest

DRAWN_AT_ONCE = 1 << 16  # rows; a multiple of sixteen, in which torch draws


@dataclass(frozen=True)
class TableShape:
    """A row table: how many rows of which width, and whether rows live on the unit sphere."""

    count: int
    dim: int
    sphere: bool = True
    scale: float = 1.0  # deviation of fresh rows that do not live on the sphere

    def drawn(self, seed: int, start: int, stop: int) -> Tensor:
        """Some of its fresh rows. A row does not depend on which others are drawn with it."""
        generator = torch.Generator().manual_seed(seed)
        found = torch.empty(stop - start, self.dim)
        blocks = max(1, self.count // DRAWN_AT_ONCE)  # the last takes what is left over
        for first in range(0, min(stop, blocks * DRAWN_AT_ONCE), DRAWN_AT_ONCE):
            last = first + DRAWN_AT_ONCE >= blocks * DRAWN_AT_ONCE
            size = self.count - first if last else DRAWN_AT_ONCE
            rows = torch.randn(size, self.dim, generator=generator)
            low, high = max(start, first), min(stop, first + size)
            if low < high:
                kept = rows[low - first : high - first]
                found[low - start : high - start] = (
                    project_to_sphere(kept) if self.sphere else kept * self.scale
                )
        return found


@dataclass(frozen=True)
class EmbeddingModel:
    """Scores are dot products of the encoder's output with class rows, both of unit length.

    >>> import torch
    >>> import spreadout as so
    >>> model = so.run(so.Experiment(rounds=1)).federation.model
    >>> dense, tables = model.initial(seed=0, device=torch.device("cpu"))
    >>> model.embed(so.Params(dense, tables), {"x": torch.ones(2, 64)}).shape
    torch.Size([2, 128])
    """

    takes_histories: ClassVar[bool] = False  # whether inputs are items somebody had, not numbers

    encoder: nn.Module  # maps a batch of inputs to (B, dim); no batch statistics, no buffers that move
    tables: Mapping[str, TableShape]
    inputs: tuple[str, ...] = field(default=("x",))  # the columns the encoder takes
    first_class: int = 0  # rows below it are no class and are never ranked
    row_columns: Mapping[str, str] = field(default_factory=dict)  # inputs that name rows of which table

    @property
    def sphere(self) -> frozenset[str]:
        return frozenset(name for name, table in self.tables.items() if table.sphere)

    @property
    def has_class_table(self) -> bool:
        """Whether every class has a row, and so a score and a place in the embedding space."""
        return "classes" in self.tables

    @cached_property  # asked in every round
    def constant_dense(self) -> frozenset[str]:
        """Dense tensors that no optimiser moves: found before the first round, or statistics."""
        prefix = standardized_in(self.encoder)
        own = () if prefix is None else (f"{prefix}{name}" for name in ("mean", "factor", "power"))
        scaling = {name for name, _ in self.encoder.named_parameters()}.intersection(own)
        return frozenset(scaling | {*self.cohort_statistics})

    @cached_property
    def cohort_statistics(self) -> tuple[str, ...]:
        """Those that are running means and variances over whole cohorts."""
        return tuple(statistics_in(self.encoder))

    @property
    def class_count(self) -> int:
        """How many classes are ranked."""
        return self.tables["classes"].count - self.first_class

    @property
    def outputs(self) -> int:
        """Numbers put out for one example."""
        return self.tables["classes"].dim

    def on(self, device: torch.device) -> EmbeddingModel:
        """The same with its constants, such as hash functions, on a device."""
        return self

    def activations(self, shape: tuple[int, ...] | None) -> int:
        """How many numbers the encoder's layers put out for one example of this shape, about.

        Where the encoder cannot be run, as many as the layers are wide.
        """
        if shape is not None:
            with suppress(Exception):  # an encoder of the user's own may not run without values
                return activation_floats(self.encoder, shape)
        named = self.encoder.named_parameters()
        return sum(value.numel() for name, value in named if value.dim() == 1 or "bias" in name)

    def initial(
        self, seed: int, device: torch.device, sharded: frozenset[str] = frozenset()
    ) -> tuple[Tensors, Tables]:
        """Fresh dense tensors and tables. The encoder keeps the weights it was built with.

        sharded: tables of which this process makes only its own rows.

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

            def rows(start: int, stop: int, name: str = name, table: TableShape = table) -> Tensor:
                drawn = table.drawn(randomness.key(seed, "table", name) >> 1, start, stop)
                return drawn.to(device)

            tables[name] = Sharded.made(table.count, rows) if name in sharded else rows(0, table.count)
        return dense, tables

    def embed(self, params: Params, batch: Batch) -> Tensor:
        """g(x): unit embeddings of a batch (B, dim)."""
        inputs = tuple(batch[name] for name in self.inputs)
        output = output_of(self.encoder, params.dense, inputs)
        return unit(output.float())

    def class_vectors(self, params: Params) -> Tensor:
        """What embeddings are compared with, for every class row of the client: (m, dim)."""
        return params.rows["classes"]

    def ranked_rows(self, classes: Table) -> Table:
        """The class vectors that are ranked: rows below `first_class` are no class."""
        # A sharded table has no such rows.
        return classes[self.first_class :] if isinstance(classes, Tensor) else classes

    def best_classes(self, embedded: Tensor, classes: Table | None, k: int) -> Nearest:
        """The k best classes of embedded inputs: (B, dim) against all class vectors (C, dim) → (B, k).

        A model without a class table is given None for them.
        """
        assert classes is not None
        found = nearest(embedded, self.ranked_rows(classes), k)
        return Nearest(found.scores, found.ids + self.first_class)


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
