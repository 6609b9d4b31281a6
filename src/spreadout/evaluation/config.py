"""`[eval]` of a config."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, PositiveFloat, field_validator, model_validator

from spreadout.core.registry import Section
from spreadout.evaluation.frequencies import PROPENSITY
from spreadout.evaluation.metrics import find_metric


class EvalConfig(Section):
    """`[eval]`: what is measured, on which examples and how often."""

    every: int = Field(10, ge=1)
    metrics: list[str] = Field(["P@1"], min_length=1)
    split: Literal["test", "validation"] = "test"
    frequent: int = Field(100, ge=1)  # classes that count as frequent
    propensity: tuple[PositiveFloat, PositiveFloat] = PROPENSITY  # a and b of PSP@k
    best_by: list[str] = Field([])  # metrics whose mean says which round was best; none: the first one
    references: bool = True  # whether trivial and cheap central predictions are scored beside the run
    keep: Literal["last", "best"] = "last"  # which model a run leaves: the best by validation examples
    patience: int | None = Field(None, ge=1)  # stop after so many evaluations without a better one

    @field_validator("metrics")
    @classmethod
    def _known(cls, names: list[str]) -> list[str]:
        for name in names:
            find_metric(name)
        return names

    @model_validator(mode="after")
    def _measured(self) -> EvalConfig:
        for name in self.best_by:
            if name not in self.metrics:
                raise ValueError(
                    f"best_by: {name} is not among eval.metrics; add it there, or change eval.best_by"
                )
            one, other = find_metric(self.best_by[0]), find_metric(name)
            if (one.unit, one.better) != (other.unit, other.better):
                raise ValueError(
                    f"best_by: {name} has no mean with {one.name}: "
                    f"{other.title} and {one.title}; take metrics of one unit and direction"
                )
        return self
