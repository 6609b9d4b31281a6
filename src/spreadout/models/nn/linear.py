"""A dense layer whose gradients lie in memory as its weights do, for many clients at once too.

`torch.vmap` makes a dense layer a product with transposed weights, whose gradient comes transposed too:
adding it to the weights then strides through memory, and takes longer than the product did.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class Linear(nn.Linear):
    """`nn.Linear`; by hand on a CPU, where strides cost most."""

    def forward(self, input: Tensor) -> Tensor:
        if input.is_cuda or input.dim() < 2 or torch.is_autocast_enabled("cpu"):
            return super().forward(input)
        flat = input.flatten(0, -2)  # (n, i)
        found: Tensor = _Linear.apply(flat, self.weight, self.bias)  # type: ignore[no-untyped-call]
        return found.view(*input.shape[:-1], found.shape[-1])


class _Linear(torch.autograd.Function):
    """x (…, n, i), weight (…, o, i), bias (…, o) → (…, n, o)"""

    @staticmethod
    def forward(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        if weight.dim() == 2:
            return F.linear(x, weight, bias)
        found = x @ weight.mT
        return found if bias is None else found.add_(bias[..., None, :])

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor, Tensor | None], output: Tensor) -> None:
        ctx.save_for_backward(*inputs[:2])

    @staticmethod
    def backward(ctx: Any, slope: Tensor) -> tuple[Tensor | None, ...]:
        x, weight = ctx.saved_tensors
        of_x = slope @ weight if ctx.needs_input_grad[0] else None
        of_weight = slope.mT @ x if ctx.needs_input_grad[1] else None
        return of_x, of_weight, slope.sum(-2) if ctx.needs_input_grad[2] else None

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, ...], *given: Tensor | None) -> tuple[Tensor, int]:
        """Of clients that share weights the examples follow one another; else all are stacked."""
        k = info.batch_size
        if in_dims[1] is None and in_dims[2] is None and given[1].dim() == 2:  # type: ignore[union-attr]
            x = _every(given[0], in_dims[0], k)
            assert x is not None
            found = _Linear.apply(x.flatten(0, 1), *given[1:])  # type: ignore[no-untyped-call]
            return found.view(*x.shape[:2], -1), 0
        stacked = (_every(one, dim, k) for one, dim in zip(given, in_dims, strict=True))
        return _Linear.apply(*stacked), 0  # type: ignore[no-untyped-call]


def _every(value: Tensor | None, dim: int | None, k: int) -> Tensor | None:
    """One for each of k: those there are, or the same for all."""
    if value is None:
        return None
    return value.expand(k, *value.shape) if dim is None else value.movedim(dim, 0)
