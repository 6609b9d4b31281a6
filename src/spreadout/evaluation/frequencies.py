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
    """
    scale = (math.log(max(instances, 1)) - 1) * (b + 1) ** a
    found: Tensor = 1 + scale * (counts.double() + b) ** -a
    return found


@dataclass(frozen=True)
class Frequencies:
    """How many training instances have each class, and how many classes count as frequent."""

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
