"""What a trained model is asked, and what it answers."""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Protocol

from torch import Tensor

from spreadout.objectives.neighbours import Nearest
from spreadout.runs.asked import Asked


@dataclass(frozen=True)
class Guess:
    """One class, as the run's data calls it, and its score."""

    id: str
    name: str
    score: float


@dataclass(frozen=True)
class Question:
    """Inputs to be answered with so many classes each; unseen: none that is in the history already."""

    asked: Asked
    top: int
    unseen: bool

    @property
    def skipped(self) -> list[AbstractSet[int]]:
        """The rows that are no answer, for every input."""
        if self.unseen and self.asked.histories is not None:
            return [frozenset(rows) for rows in self.asked.histories]
        return [frozenset()] * len(self.asked)


class ClassSearch(Protocol):
    """Something that finds the classes nearest to an embedding, such as an index of them."""

    def search(self, embedded: Tensor, k: int) -> Nearest:
        """The k best for embeddings (B, dim), counted from the first class; below 0: no more found."""
        ...
