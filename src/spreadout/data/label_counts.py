"""How many examples of each class a client has."""

from __future__ import annotations

import torch
from torch import Tensor

from spreadout.core.ragged import Ragged
from spreadout.data.columns import Column, Lists


def counts_by_client(y: Column, offsets: Tensor, classes: int) -> tuple[Ragged, Ragged]:
    """By client, the classes of its examples, ascending, and how many examples have each.

    offsets: (clients + 1,) where each client's examples begin.

    >>> import torch
    >>> from spreadout.data.columns import Dense
    >>> named, times = counts_by_client(Dense(torch.tensor([2, 0, 2, 1])), torch.tensor([0, 3, 4]), 3)
    >>> [(named[i].tolist(), times[i].tolist()) for i in range(2)]
    [([0, 2], [1, 2]), ([1], [1])]
    """
    clients = offsets.numel() - 1
    owner = torch.repeat_interleave(torch.arange(clients), offsets.diff())
    if isinstance(y, Lists):
        sets = y.ragged()
        owner, labels = torch.repeat_interleave(owner, sets.lengths.cpu()), sets.values.cpu()
    else:
        labels = y.take(torch.arange(int(offsets[-1]))).cpu()
    pairs, times = torch.unique(owner * classes + labels, return_counts=True)
    ends = torch.searchsorted(pairs, torch.arange(clients + 1) * classes)
    return Ragged(ends, pairs % classes), Ragged(ends, times)


def total_counts(by_client: tuple[Ragged, Ragged], classes: int, most: int | None = None) -> Tensor:
    """Of each class, over all clients: (C,) float32.

    most: examples that a client may count for; one that has more has all its counts scaled down.
    """
    named, times = by_client
    counted = times.values.double()
    if most is not None:
        owner = torch.repeat_interleave(torch.arange(len(times)), times.lengths)
        said = torch.bincount(owner, weights=counted, minlength=len(times))
        counted = counted * (most / said.clamp_min(most))[owner]
    return torch.bincount(named.values, weights=counted, minlength=classes).float()
