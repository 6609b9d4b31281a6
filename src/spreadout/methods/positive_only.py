"""Training with positives alone, and the baselines it makes (Yu et al., ICML 2020; FLAG).

Clients hold only their own class rows: they can pull examples and classes together (Eq. 23), and
nothing pushes classes apart.
"""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar, Literal, Self

import torch
from pydantic import Field, model_validator
from torch import Tensor

from spreadout.core import randomness
from spreadout.core.hashing import HashFamily
from spreadout.core.merging import RowMerge, Weighting
from spreadout.core.rows import project_to_sphere
from spreadout.core.state import ServerState
from spreadout.core.tables import local_of
from spreadout.core.traffic import Traffic
from spreadout.core.types import Batch, Params, RowInfo
from spreadout.methods.base import Prior, reads_params_via_model, register_method
from spreadout.methods.by_frequency import FrequencyMargins
from spreadout.methods.collapse import ClassSpread, collapse_of
from spreadout.methods.context import SetupContext
from spreadout.models.embedding import EmbeddingModel
from spreadout.objectives import losses


class PositiveOnly(FrequencyMargins):
    """Clients pull examples and their own class together; nothing pushes classes apart.

    >>> import spreadout as so
    >>> class Wide(so.PositiveOnly):
    ...     name: str = "wide"
    ...     margin: float = 0.5
    >>> so.run(so.Experiment(rounds=1), method=Wide()).summary["method"]
    'wide'
    """

    weighting: Weighting = "uniform"  # Algorithm 1 line 12
    read_if: ClassVar = {
        "margin": ({"loss_form": ("hinge",)},),
        "margin_by_frequency": ({"loss_form": ("hinge",)},),
    }
    has_softmax: ClassVar[bool] = False  # instead of the losses of one score below

    loss_form: Literal["hinge", "square"] = "hinge"  # Eq. 23, or (1 − s)² of Eq. 12
    margin: float = Field(0.9, gt=-1, le=1)
    merge: RowMerge = "replace"
    prior: Prior = "auto"  # nothing else here learns p(class)

    @model_validator(mode="after")
    def _within_reach(self) -> Self:
        if not self.has_softmax and self.margin_by_frequency and self.margin_of_one > 1:
            raise ValueError(
                f"margin_by_frequency = {self.margin_by_frequency:g}: with margin = {self.margin:g} a "
                "class of one example would need a cosine above 1; lower one of them"
            )
        return self

    @property
    def margin_of_one(self) -> float:
        """The margin of a class that has one example."""
        return self.margin + self.margin_by_frequency

    def row_merge(self) -> dict[str, RowMerge]:
        return {"classes": self.merge}

    @reads_params_via_model
    def loss(self, model: EmbeddingModel, params: Params, batch: Batch, info: RowInfo) -> Tensor:
        return self.positive_loss(model.embed(params, batch), params, batch, info)

    def positive_loss(self, embedded: Tensor, params: Params, batch: Batch, info: RowInfo) -> Tensor:
        """The loss of positives, of examples embedded already: (B, d) → a scalar."""
        own = params.rows["classes"][batch["y"]]  # (B, d) w_y
        s = (embedded * own).sum(-1)  # (B,)
        if self.loss_form == "square":
            return losses.masked_mean(losses.positive_square(s), batch["mask"])
        more = self.margins(info)  # (m,)
        margin = self.margin if more is None else self.margin + more[batch["y"]]
        return losses.masked_mean(losses.positive_hinge(s, margin), batch["mask"])

    def collapse_advice(self, spread: ClassSpread) -> str:
        return f'{collapse_of(spread)}; nothing keeps them apart here: try method.name = "fedaws"'


@register_method
class Baseline1(PositiveOnly):
    """Positive loss and nothing else: every embedding falls onto one point."""

    name: Literal["baseline-1"] = "baseline-1"


@register_method
class Baseline2(PositiveOnly):
    """Positive loss with the class rows fixed at their random start.

    With `hash_tables` a class's row is the sum of the random rows of its buckets: FedMLH with fixed
    rows, as FedALC's paper compares it, around one encoder.
    """

    name: Literal["baseline-2"] = "baseline-2"
    hash_tables: int | None = Field(None, ge=1, le=64)  # R; None: every class has a row of its own
    buckets: int | None = Field(None, ge=2)  # B, with hash_tables

    @model_validator(mode="after")
    def _both_or_neither(self) -> Baseline2:
        if (self.hash_tables is None) != (self.buckets is None):
            raise ValueError("hash_tables and buckets: give both, or neither")
        return self

    def fixed_tables(self) -> frozenset[str]:
        return frozenset({"classes"})

    def collapse_advice(self, spread: ClassSpread) -> str:
        """Random rows of their own lie apart; those of shared buckets do not."""
        more = "raise method.buckets, or method.hash_tables"
        remedy = "raise model.dim" if self.hash_tables is None else more
        return f"{collapse_of(spread)}; they are fixed: {remedy}"

    @property
    def can_shard(self) -> bool:
        return self.hash_tables is None and super().can_shard

    def server_setup(self, setup: SetupContext, state: ServerState, model: EmbeddingModel) -> Traffic:
        """The rows of buckets in place of rows of classes."""
        traffic = super().server_setup(setup, state, model)
        if self.hash_tables is not None and self.buckets is not None:
            seed, table = setup.seed, local_of(state.tables["classes"])
            hashes = HashFamily.telling_apart(
                len(table), self.hash_tables, self.buckets, seed=seed, use="labels"
            )
            count = self.hash_tables * self.buckets
            shape = replace(model.tables["classes"], count=count)
            drawn = shape.drawn(randomness.key(seed, "bucket rows") >> 1, 0, count)
            place = hashes(torch.arange(len(table)))  # (R, C)
            place = place + self.buckets * torch.arange(self.hash_tables)[:, None]
            table.copy_(project_to_sphere(drawn[place].sum(0)))
        return traffic


@register_method
class Flag(PositiveOnly):
    """FLAG (Chang et al. 2023): a row is averaged by how many positives of its class a holder has."""

    name: Literal["flag"] = "flag"
    weighting: Weighting = "examples"
    merge: RowMerge = "positives"
