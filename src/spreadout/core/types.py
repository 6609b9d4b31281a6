"""The shapes of what is passed around: tensors by name, what a client trains, a batch of it.

>>> import torch
>>> import spreadout as so
>>> batch: so.Batch = {"x": torch.zeros(2, 3), "y": torch.tensor([0, 1]), "mask": torch.ones(2)}
>>> params = so.Params(dense={}, rows={"classes": torch.eye(4)[:2]})
>>> params.rows["classes"][batch["y"]].shape  # y names places among the rows a client holds
torch.Size([2, 4])
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

from torch import Tensor

Tensors = dict[str, Tensor]
Record = dict[str, Any]  # one evaluation, as a line of metrics.jsonl
Batch = Mapping[str, Tensor]  # columns of one step, each (B, …), and "mask" (B,)
Counted = Literal["own", "all"]
"""Whose examples a loss counts: the client's own, which nobody has to tell it, or those of all."""
NOTHING: Tensors = {}


class Params(NamedTuple):
    """What a client trains: the dense tensors, and the values of the rows it holds.

    >>> import torch
    >>> import spreadout as so
    >>> held = so.Params(dense={"0.bias": torch.zeros(3)}, rows={"classes": torch.eye(2)})
    >>> held.rows["classes"].shape
    torch.Size([2, 2])
    """

    dense: Tensors
    rows: Tensors  # (m, d) per table


class RowInfo(NamedTuple):
    """What a client knows of the rows it holds, by table; a stack of clients has a leading k.

    >>> import torch
    >>> import spreadout as so
    >>> three_of_four = {"classes": torch.tensor([True, True, True, False])}
    >>> so.RowInfo(present=three_of_four, own={}, size={}, share={}).present["classes"].sum()
    tensor(3)
    """

    present: Tensors  # (m,) bool: which row slots are real and not padding
    own: Tensors  # (m,) bool: which of them its own examples name; if the loss needs it
    size: Tensors  # (): how many rows of the table are classes at all; likewise
    share: Tensors  # (m,) popularity among all that are not its own; where draws go by popularity
    examples: Tensors = NOTHING  # (m,) how many examples each row's class has; if the loss needs it

    def at(self, place: Any) -> RowInfo:
        """Of one client of a stack, or of some."""
        return RowInfo(*({name: value[place] for name, value in part.items()} for part in self))
