"""The shapes of what is passed around: tensors by name, what a client trains, a batch of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from torch import Tensor

Tensors = dict[str, Tensor]
Batch = Mapping[str, Tensor]  # columns of one step, each (B, …), and "mask" (B,)
Held = Mapping[str, Tensor]  # per table (m,) bool: which row slots are real and not padding


class Params(NamedTuple):
    """What a client trains: the dense tensors, and the values of the rows it holds."""

    dense: Tensors
    rows: Tensors  # (m, d) per table
