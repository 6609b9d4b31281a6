"""What the server's step on the class table remembers between rounds."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from spreadout.core.state import MethodState


@dataclass
class SpreadoutState(MethodState):
    """What the server's step remembers."""

    length: Tensor | None = None  # () of the last step, a first guess for the next
    index_rows: Tensor | None = None  # (C, d) the table as it was when the index was made
    watched: Tensor | None = None  # (2,) plain steps looked at, and those that raised the objective
    class_examples: Tensor | None = None  # (C,) examples that clients have reported of each class
    # With class features: those of all classes, one class after another, and the tower fitted to them.
    feature_ids: Tensor | None = None  # (n,)
    feature_weights: Tensor | None = None  # (n,)
    feature_offsets: Tensor | None = None  # (C + 1,)
    tower: Tensor | None = None  # (f, d)
    taught: Tensor | None = None  # (C,) bool: classes whose rows clients have trained
