"""What the server does in an emulated round: Adam on merged gradients, and a step of spreadout."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor
from torch.nn import functional as F

MOST = 0.3  # radians a row may move in one step of the spreadout


@dataclass
class Adam:
    """Adam as the server has it (β 0.9 and 0.99), for several tensors by name."""

    slots: dict[str, tuple[Tensor, Tensor]] = field(default_factory=dict)
    steps: dict[str, int] = field(default_factory=dict)

    def step_(self, name: str, value: Tensor, gradient: Tensor, lr: float, eps: float = 1e-8) -> None:
        if name not in self.slots:
            self.slots[name] = torch.zeros_like(value), torch.zeros_like(value)
        first, second = self.slots[name]
        count = self.steps[name] = self.steps.get(name, 0) + 1
        first.mul_(0.9).add_(gradient, alpha=0.1)
        second.mul_(0.99).addcmul_(gradient, gradient, value=0.01)
        rise = (second / (1 - 0.99**count)).sqrt() + eps
        value.sub_(lr * (first / (1 - 0.9**count)) / rise)


def rate_factor(round: int, rounds: int) -> float:
    """Every rate falls with a cosine."""
    return (1 + math.cos(math.pi * round / rounds)) / 2


def pair_weights(counts: Tensor, together: Tensor) -> Tensor:
    """FedALC's γ (Eq. 10): how often a class occurs without another, every row scaled to sum 1.

    counts: (C,) instances with a class; together: (C, C) instances with both. → (C, C)
    """
    alone = (counts[:, None] - together).clamp_min(0)
    alone.fill_diagonal_(0)
    return alone / alone.sum(1, keepdim=True).clamp_min(1e-9)


def spreadout(table: Tensor, margin: float, weights: Tensor | None) -> tuple[Tensor, Tensor]:
    """Eq. 7 of FedAwS over all pairs, and its gradient; weights: Eq. 10 of FedALC."""
    short = (margin - 1 + table @ table.T).clamp_min(0)  # (C, C) ν − d
    short.fill_diagonal_(0)
    if weights is None:
        return (short * short).sum(), 4 * short @ table
    return (weights * short * short).sum(), 2 * (short * (weights + weights.T)) @ table


def along_sphere(gradient: Tensor, rows: Tensor) -> Tensor:
    return gradient - (gradient * rows).sum(-1, keepdim=True) * rows


def descend_(
    table: Tensor,
    objective: Callable[[Tensor], tuple[Tensor, Tensor]],
    share: float,
    length: Tensor | None,
) -> Tensor:
    """`objectives/line_search.py` without a halt for the host: a share of the best step, in place."""
    value, gradient = objective(table)
    way = -along_sphere(gradient, table)
    steepness = way.square().sum()
    if length is None:
        length = MOST * (len(table) / steepness) ** 0.5

    def moved(by: Tensor) -> Tensor:
        step = by * way
        far = step.norm(dim=-1, keepdim=True).clamp_min(1e-30)
        return F.normalize(table + step * (MOST / far).clamp_max(1))

    bend = 2 * (objective(moved(length))[0] - value + length * steepness) / length**2
    best = torch.where(bend > 0, steepness / bend, 4 * length)
    best = torch.minimum(torch.maximum(best, length / 4), length * 4)
    new = moved(share * best)
    table.copy_(torch.where(objective(new)[0] <= value, new, moved(share * best / 4)))
    return best
