"""The shapes of what is passed around: tensors by name, what a client trains, a batch of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from torch import Tensor

Tensors = dict[str, Tensor]
Record = dict[str, Any]  # one evaluation, as a line of metrics.jsonl
Batch = Mapping[str, Tensor]  # columns of one step, each (B, …), and "mask" (B,)


class Params(NamedTuple):
    """What a client trains: the dense tensors, and the values of the rows it holds."""

    dense: Tensors
    rows: Tensors  # (m, d) per table


class RowInfo(NamedTuple):
    """What a client knows of the rows it holds, by table; a stack of clients has a leading k."""

    present: Tensors  # (m,) bool: which row slots are real and not padding
    own: Tensors  # (m,) bool: which of them its own examples name; where a loss asks for it
    size: Tensors  # (): how many rows of the table are classes at all; likewise
    share: Tensors  # (m,) popularity among all that are not its own; where draws go by popularity

    def at(self, place: Any) -> RowInfo:
        """Of one client of a stack, or of some."""
        return RowInfo(*({name: value[place] for name, value in part.items()} for part in self))


NO_ROWS = RowInfo({}, {}, {}, {})  # of a model without tables
