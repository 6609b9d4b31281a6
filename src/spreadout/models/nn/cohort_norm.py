"""BatchNorm whose statistics are the server's: over a round's whole cohort, never over one client.

A client with one class would bring the mean of that class to zero, and with it what tells classes apart.
So while a cohort trains, mean and variance are those of all its examples, and the server keeps running
ones of them, with which the model is evaluated, asked and exported. The running ones are parameters, so
that they travel and are saved with the others; they get no gradient, so no optimiser moves them.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from spreadout.core.types import Tensors

MOMENTUM = 0.1  # share of a round's statistics in the running ones
_whole_cohort: ContextVar[bool] = ContextVar("whole_cohort", default=False)


class CohortNorm(nn.Module):
    """Channels at mean 0 and deviation 1, then scaled and shifted; (B, channels, height, width)."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(channels))
        self.bias = nn.Parameter(torch.zeros(channels))
        self.mean = nn.Parameter(torch.zeros(channels))
        self.variance = nn.Parameter(torch.ones(channels))

    def forward(self, x: Tensor) -> Tensor:
        mean, variance = self.mean.detach(), self.variance.detach()
        of_batch = _whole_cohort.get()  # then torch moves both in place: they are copies
        return F.batch_norm(x, mean, variance, self.weight, self.bias, of_batch, MOMENTUM)


def statistics_in(encoder: nn.Module) -> list[str]:
    """The names of the encoder's running means and variances; none without such a norm."""
    return [
        f"{name}.{part}" if name else part
        for name, module in encoder.named_modules()
        if isinstance(module, CohortNorm)
        for part in ("mean", "variance")
    ]


@contextmanager
def over_cohort(encoder: nn.Module, dense: Tensors) -> Iterator[tuple[Tensors, Tensors]]:
    """Weights for one call of the encoder on the examples of a whole cohort, and its statistics.

    These are copies of the running ones, which the call moves towards those of the cohort; the server's
    own stay as they are until the round is accepted. Both are as given where there is no such norm.
    """
    names = statistics_in(encoder)
    if not names:
        yield dense, {}
        return
    with torch.no_grad():
        # In one kernel; torch has no clone of many.
        copies = torch._foreach_mul([dense[name].detach() for name in names], 1.0)
    moved = dict(zip(names, copies, strict=True))
    token = _whole_cohort.set(True)
    try:
        yield {**dense, **moved}, moved
    finally:
        _whole_cohort.reset(token)
