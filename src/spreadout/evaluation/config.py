"""`[eval]` of a config."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field, PositiveFloat, field_validator, model_validator

from spreadout.core.registry import Section
from spreadout.evaluation.frequencies import PROPENSITY
from spreadout.evaluation.metrics import find_metric

Decode = Literal["classes", "knn", "both"]
"""Classes by their own vectors, by the votes of known examples near the input, or by the sum of both."""


class EvalConfig(Section):
    """`[eval]`: what is measured, on which examples and how often."""

    read_if: ClassVar = {"neighbours": ({"decode": ("knn", "both")},)}

    every: int = Field(10, ge=1)
    metrics: list[str] = Field(["P@1"], min_length=1)
    split: Literal["test", "validation"] = "test"
    frequent: int = Field(100, ge=1)  # classes that count as frequent
    propensity: tuple[PositiveFloat, PositiveFloat] = PROPENSITY  # a and b of PSP@k
    best_by: list[str] = Field([])  # metrics whose mean says which round was best; none: the first one
    references: bool = True  # whether trivial and cheap central predictions are scored beside the run
    keep: Literal["last", "best"] = "last"  # which model a run leaves: the best by validation examples
    decode: Decode = "classes"  # what ranks classes; examples that vote are those of the validation part
    neighbours: int = Field(10, ge=1)  # that vote
    patience: int | None = Field(None, ge=1)  # stop after so many evaluations without a better one

    @property
    def uses_validation(self) -> bool:
        """Whether validation examples are scored, choose the model or an end, or vote."""
        chooses = self.keep == "best" or self.patience is not None
        return chooses or self.split == "validation" or self.decode != "classes"

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
