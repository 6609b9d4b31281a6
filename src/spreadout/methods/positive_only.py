"""Training with positives alone, and the baselines it makes (Yu et al., ICML 2020; FLAG).

Clients hold only their own class rows: they can pull examples and classes together (Eq. 23), and
nothing pushes classes apart.
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field
from torch import Tensor

from spreadout.core.merging import RowMerge, Weighting
from spreadout.core.types import Batch, Params, RowInfo
from spreadout.methods.base import (
    ClassSpread,
    Method,
    collapse_of,
    reads_params_via_model,
    register_method,
)
from spreadout.models.embedding import EmbeddingModel
from spreadout.objectives import losses


class PositiveOnly(Method):
    """Clients pull examples and their own class together; nothing pushes classes apart.

    >>> import spreadout as so
    >>> class Wide(so.PositiveOnly):
    ...     name: str = "wide"
    ...     margin: float = 0.5
    >>> so.run(so.Experiment(rounds=1), method=Wide()).summary["method"]
    'wide'
    """

    weighting: Weighting = "uniform"  # Algorithm 1 line 12
    read_if: ClassVar = {"margin": ({"loss_form": ("hinge",)},)}

    loss_form: Literal["hinge", "square"] = "hinge"  # Eq. 23, or (1 − s)² of Eq. 12
    margin: float = Field(0.9, gt=-1, le=1)
    merge: RowMerge = "replace"
    prior: Annotated[float, Field(ge=0)] | Literal["auto"] = "auto"  # nothing else here learns p(class)

    def row_merge(self) -> dict[str, RowMerge]:
        return {"classes": self.merge}

    @reads_params_via_model
    def loss(self, model: EmbeddingModel, params: Params, batch: Batch, info: RowInfo) -> Tensor:
        own = params.rows["classes"][batch["y"]]  # (B, d) w_y
        s = (model.embed(params, batch) * own).sum(-1)  # (B,)
        hinge = self.loss_form == "hinge"
        each = losses.positive_hinge(s, self.margin) if hinge else losses.positive_square(s)
        return losses.masked_mean(each, batch["mask"])

    def collapse_advice(self, spread: ClassSpread) -> str:
        if "classes" in self.fixed_tables():
            return super().collapse_advice(spread)
        return f'{collapse_of(spread)}; nothing keeps them apart here: try method.name = "fedaws"'


@register_method
class Baseline1(PositiveOnly):
    """Positive loss and nothing else: every embedding falls onto one point."""

    name: Literal["baseline-1"] = "baseline-1"


@register_method
class Baseline2(PositiveOnly):
    """Positive loss with the class rows fixed at their random start."""

    name: Literal["baseline-2"] = "baseline-2"

    def fixed_tables(self) -> frozenset[str]:
        return frozenset({"classes"})


@register_method
class Flag(PositiveOnly):
    """FLAG (Chang et al. 2023): a row is averaged by how many positives of its class a holder has."""

    name: Literal["flag"] = "flag"
    weighting: Weighting = "examples"
    merge: RowMerge = "positives"
