"""What every objective of a table comes to: a value, and a gradient for the rows it moves."""

from __future__ import annotations

from typing import Literal, NamedTuple

import torch
from torch import Tensor

from spreadout.core.rows import Rows

Reduction = Literal["sum", "mean", "row"]
"""Over pairs: their sum; their mean; or for each row the mean over its own pairs, summed over rows. By
the last one a row is pushed equally hard whatever k and however many classes there are."""


class TableLoss(NamedTuple):
    """A table objective's value, and its gradient for the rows it moves.

    >>> import torch
    >>> import spreadout as so
    >>> found = so.regularizers.all_pairs(torch.eye(2), so.regularizers.FarPenalty())
    >>> found.value, found.gradient.ids  # −1² for either order
    (tensor(-2.), tensor([0, 1]))
    """

    value: Tensor  # ()
    gradient: Rows
    neighbours: Tensor | None = None  # (n, k) of each anchor, where pairs were mined


def of_first(count: int, values: Tensor) -> Rows:
    """Rows of the first classes: of all, or of none where only a value is asked for."""
    return Rows(torch.arange(count, device=values.device), values)
