"""The plain weighted mean: what there is without a rule, and instead of a deployment's default."""

from __future__ import annotations

from typing import ClassVar, Literal, Self

from pydantic import model_validator

from spreadout.federated.robust.base import RobustRule, register_robust_rule


@register_robust_rule
class Mean(RobustRule):
    """Nothing is limited, and nothing is looked at."""

    holds_updates: ClassVar[bool] = False

    name: Literal["mean"] = "mean"

    @model_validator(mode="after")
    def _has_no_limits(self) -> Self:
        if (self.quantile, self.row_limit) != tuple(
            RobustRule.model_fields[name].default for name in ("quantile", "row_limit")
        ):
            raise ValueError('limits nothing: "norm_clipping" does')
        return self
