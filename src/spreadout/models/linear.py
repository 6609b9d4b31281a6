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
        found: Tensor = _Linear.apply(input, self.weight, self.bias)  # type: ignore[no-untyped-call]
        return found


class _Linear(torch.autograd.Function):
    """x (…, i), weight (o, i), bias (o,) → (…, o)"""

    @staticmethod
    def forward(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        return F.linear(x, weight, bias)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor, Tensor | None], output: Tensor) -> None:
        ctx.save_for_backward(*inputs[:2])

    @staticmethod
    def backward(ctx: Any, slope: Tensor) -> tuple[Tensor | None, ...]:
        x, weight = ctx.saved_tensors
        flat = slope.flatten(0, -2)  # (n, o)
        of_x = slope @ weight if ctx.needs_input_grad[0] else None
        of_weight = flat.T @ x.flatten(0, -2) if ctx.needs_input_grad[1] else None
        return of_x, of_weight, flat.sum(0) if ctx.needs_input_grad[2] else None

    @staticmethod
    def vmap(
        info: Any,
        in_dims: tuple[int | None, int | None, int | None],
        x: Tensor,
        weight: Tensor,
        bias: Tensor | None,
    ) -> tuple[Tensor, int]:
        k = info.batch_size
        x = _every(x, in_dims[0], k)
        if in_dims[1] is None and in_dims[2] is None:  # shared weights: one product for all
            return _Linear.apply(x, weight, bias), 0  # type: ignore[no-untyped-call]
        weight = _every(weight, in_dims[1], k)
        bias = None if bias is None else _every(bias, in_dims[2], k)
        flat = x.reshape(k, -1, x.shape[-1])  # (k, n, i)
        found = _Stacked.apply(flat, weight, bias)  # type: ignore[no-untyped-call]
        return found.view(*x.shape[:-1], -1), 0


def _every(value: Tensor, dim: int | None, k: int) -> Tensor:
    """One for each of k: those there are, or the same for all."""
    return value.expand(k, *value.shape) if dim is None else value.movedim(dim, 0)


class _Stacked(torch.autograd.Function):
    """x (k, n, i), weight (k, o, i), bias (k, o) → (k, n, o)"""

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        if bias is None:
            return x @ weight.mT
        return torch.baddbmm(bias[:, None], x, weight.mT)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor, Tensor | None], output: Tensor) -> None:
        ctx.save_for_backward(*inputs[:2])

    @staticmethod
    def backward(ctx: Any, slope: Tensor) -> tuple[Tensor | None, ...]:
        x, weight = ctx.saved_tensors
        of_x = slope @ weight if ctx.needs_input_grad[0] else None
        of_weight = slope.mT @ x if ctx.needs_input_grad[1] else None
        return of_x, of_weight, slope.sum(1) if ctx.needs_input_grad[2] else None
