"""How often training has each class, and how much a find of a rare one counts (Jain et al. 2016)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

PROPENSITY = (0.55, 1.5)  # a and b of PSP@k for most data sets (Jain et al. 2016)


def inverse_propensity(
    counts: Tensor, instances: int, *, a: float = PROPENSITY[0], b: float = PROPENSITY[1]
) -> Tensor:
    """1/p of each label: how much a find counts, the more the rarer the label is in training.

    Jain et al. 2016: 1 + (log N − 1)(b + 1)^a (n_l + b)^−a.

    >>> import torch
    >>> import spreadout as so
    >>> counts = torch.tensor([1, 4])
    >>> so.metrics.inverse_propensity(counts, 1000, a=1, b=0).round(decimals=2)  # 1 + (log 1000 − 1) / n
    tensor([6.9100, 2.4800], dtype=torch.float64)
    """
    scale = (math.log(max(instances, 1)) - 1) * (b + 1) ** a
    found: Tensor = 1 + scale * (counts.double() + b) ** -a
    return found


@dataclass(frozen=True)
class Frequencies:
    """How many training instances have each class, and how many classes count as frequent.

    >>> import torch
    >>> import spreadout as so
    >>> so.metrics.Frequencies(torch.tensor([5, 1, 3]), instances=9, frequent=2).is_frequent
    tensor([ True, False,  True])
    """

    counts: Tensor  # (C,)
    instances: int
    frequent: int = 100
    propensity: tuple[float, float] = PROPENSITY

    @cached_property
    def inverse(self) -> Tensor:
        a, b = self.propensity
        return inverse_propensity(self.counts, self.instances, a=a, b=b)

    @cached_property
    def is_frequent(self) -> Tensor:
        """(C,) bool"""
        top = torch.argsort(self.counts, descending=True, stable=True)[: self.frequent]
        return torch.zeros(len(self.counts), dtype=torch.bool).index_fill(0, top, True)
