"""A CUDA graph of one encoder's call on a cohort's images, and one of its gradient.

A deep network on small images has hundreds of kernels that a GPU runs faster than a host can name them.
The images of a fused step have the same shape in every round, and the server moves its weights in place:
so both passes are captured once, read the weights where they are, and are replayed on copied images. The
kernels are the same, and so are their numbers.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Hashable
from typing import Any

import torch
from torch import Tensor

from spreadout.core.types import Tensors
from spreadout.runtime.simulator.graphs import no_collection

Encode = Callable[[Tensors, Tensor], tuple[Tensor, Tensors]]
"""From weights and images to outputs (n, dim), and to statistics that the call has moved."""
WARM_UP = 3  # calls in which libraries set themselves up and choose their kernels
PATIENCE = 8  # captures, after which replays must have paid for them


class EncoderGraph:
    """The graph of the shape that came last; a plain call for the first round of every shape."""

    def __init__(self) -> None:
        self._key: Hashable = None
        self._captured: _Captured | None = None
        self._captures, self._calls = 0, 0
        self.given_up = False

    def run(
        self,
        encode: Encode,
        dense: Tensors,
        images: Tensor,
        untrained: frozenset[str],
        about: Hashable,
    ) -> tuple[Tensor, Tensors] | None:
        """The call, to be differentiated once before the next; None where it is not to be replayed.

        untrained: weights that get no gradient. about: all that `encode` depends on besides.
        """
        if not images.is_cuda or self.given_up:
            return None
        where = tuple((name, value.data_ptr(), tuple(value.shape)) for name, value in dense.items())
        key = (tuple(images.shape), images.dtype, where, about)
        self._calls += 1
        if key != self._key:  # a shape is captured when it comes a second time
            self._key, self._captured = key, None
            return None
        if self._captured is None:
            self._captures += 1
            if self._captures > PATIENCE and 16 * self._captures > self._calls:
                self.given_up = True  # shapes that never come again
                return None
            try:
                self._captured = _Captured(encode, dense, images, untrained)
            except RuntimeError as error:
                self.given_up = True
                reason = str(error).splitlines()[0]
                warnings.warn(f"going on without a graph of the encoder: {reason}", stacklevel=2)
                return None
        captured = self._captured
        found: Tensor = _Replay.apply(captured, images, *(dense[name] for name in captured.trained))  # type: ignore[no-untyped-call]
        return found, captured.statistics


class _Captured:
    """Both graphs with the memory their inputs and outputs live in."""

    def __init__(
        self, encode: Encode, dense: Tensors, images: Tensor, untrained: frozenset[str]
    ) -> None:
        self.trained = [name for name in dense if name not in untrained]
        self.images = images.detach().clone(memory_format=torch.preserve_format)
        weights = {name: value.detach() for name, value in dense.items()}  # where they are, not copies
        leaves = [weights[name].requires_grad_() for name in self.trained]
        side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(WARM_UP):
                made, _ = encode(weights, self.images)
                torch.autograd.grad(made, leaves, torch.zeros_like(made), allow_unused=True)
        torch.cuda.current_stream().wait_stream(side)
        self.forward, self.backward = torch.cuda.CUDAGraph(), torch.cuda.CUDAGraph()
        # Another thread may be at work on the next round: only this one's calls belong to the capture.
        mode: Any = {"capture_error_mode": "thread_local"}
        with no_collection():
            with torch.cuda.graph(self.forward, **mode):
                self.outputs, self.statistics = encode(weights, self.images)
            self.slope = torch.zeros_like(self.outputs)
            with torch.cuda.graph(self.backward, pool=self.forward.pool(), **mode):
                self.gradients = torch.autograd.grad(
                    self.outputs, leaves, self.slope, allow_unused=True
                )


class _Replay(torch.autograd.Function):
    """The captured call as one operation; its results are valid until the next."""

    @staticmethod
    def forward(ctx: Any, captured: _Captured, images: Tensor, *weights: Tensor) -> Tensor:
        ctx.captured = captured
        captured.images.copy_(images)
        captured.forward.replay()
        return captured.outputs.detach()

    @staticmethod
    def backward(ctx: Any, slope: Tensor) -> Any:
        captured = ctx.captured
        captured.slope.copy_(slope)
        captured.backward.replay()
        found = (None if g is None else g.detach() for g in captured.gradients)
        return None, None, *found
