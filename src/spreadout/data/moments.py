"""What features are like: whether they are numbers or words, and their mean and variance."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional as F

from spreadout.core.ragged import offsets_from_lengths
from spreadout.data.columns import Column

AT_ONCE = 1 << 22  # numbers of features in memory at once
CONSTANT = 1e-6  # a deviation below this share of the mean is rounding, not a difference
Of = Callable[[Tensor], Tensor]  # (n, d) → (n, e): what the moments are of
FILLED = 0.25  # share of values that are not 0, from which features are numbers and no counts of words


def are_numbers(column: Column) -> bool:
    """Whether features are quantities, many of them not 0, rather than words that occur or do not.

    Features that are 0 or 1 say nothing against it: a table of a few numbers may have many indicators.
    """
    if not len(column) or not column.count:  # a server of real clients has no features
        return False
    some = torch.linspace(0, len(column) - 1, min(len(column), 1000)).long()
    x = column.take(some).flatten(1)
    filled = (x != 0).float()
    counts = ((x != 0) & (x != 1)).any(0)  # (d,) those with other values
    parts = (filled, filled[:, counts])
    return any(part.numel() > 0 and float(part.mean()) >= FILLED for part in parts)


def as_they_are(x: Tensor) -> Tensor:
    return x


def moments(column: Column, at: Tensor, of: Of = as_they_are) -> tuple[Tensor, Tensor]:
    """Mean and variance of each feature of some examples, (d,) double, a block at a time.

    of: what is made of the features first.
    """
    width = max(1, column.example_bytes // 4)
    count, mean, variance = 0, torch.zeros(()), torch.zeros(())
    for some in torch.split(at, max(1, AT_ONCE // width)):
        x = of(column.take(some).flatten(1).double())
        here, spread = x.mean(0), x.var(0, correction=0)
        total = count + len(some)
        apart = here - mean
        # Two groups together: Chan, Golub and LeVeque 1983, Eq. 2.1
        variance = (count * variance + len(some) * spread + count * len(some) / total * apart**2) / total
        mean, count = mean + apart * (len(some) / total), total
    return mean, variance


def group_moments(
    column: Column, at: Tensor, lengths: Tensor, of: Of = as_they_are
) -> tuple[Tensor, Tensor]:
    """The same of groups of examples, one after another: (g, d) each, 0 of a group without any."""
    x = of(column.take(at).flatten(1).double())
    group = torch.repeat_interleave(torch.arange(len(lengths)), lengths).to(x.device)
    count = lengths.to(x).clamp_min(1)[:, None]
    start = offsets_from_lengths(lengths)[:-1].to(x.device)
    every = torch.arange(len(x), device=x.device)
    mean = F.embedding_bag(every, x, start, mode="sum") / count
    return mean, F.embedding_bag(every, (x - mean[group]) ** 2, start, mode="sum") / count


def factor_of(mean: Tensor, variance: Tensor) -> Tensor:
    """What brings each feature to deviation 1: (d,). One that does not vary is left as it is."""
    deviation = variance.sqrt()
    varies = deviation > CONSTANT * mean.abs().clamp_min(torch.finfo(torch.float32).tiny)
    return torch.where(varies, 1 / deviation, 1.0)
