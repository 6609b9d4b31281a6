"""What the server takes and gives, as its OpenAPI page describes it."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, Field


class Ask(BaseModel):
    """The body of a request."""

    inputs: list[Any] = Field(
        description="Lists of numbers; of a model on histories, lists of items by id or title; of "
        'sparse features {"ids": […], "values": […]}; of pictures {"picture": base64 of a file}; of a '
        'table {"column": cell, …}, an empty cell being null.',
        examples=[[[0.0, 1.5, -2.0]]],
    )
    top: int = Field(10, ge=1, description="How many classes for every input.")
    unseen: bool = Field(False, description="Of histories: none that is in the history already.")


class Class(BaseModel):
    """A class, as the run's data calls it."""

    id: str
    name: str
    score: float


class Answer(BaseModel):
    """The best classes of every input, best first."""

    results: list[list[Class]]
    notes: list[str] | None = Field(None, description="What to know of how the inputs were read.")


class Vectors(BaseModel):
    """Every input as it is compared with classes."""

    embeddings: list[list[float]]


class Health(BaseModel):
    """Whether the model answers, and how many inputs wait."""

    status: str
    waiting: int


class About(BaseModel):
    """What the model is."""

    takes: str
    classes: int
    index: str
    limits: dict[str, float]
    run: dict[str, Any] | None


class Error(BaseModel):
    """Why a request was not answered."""

    error: str
