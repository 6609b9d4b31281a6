"""A CUDA graph of a fused step on images: the encoder's call, the losses of all clients, the gradients.

A deep network on small images has hundreds of kernels that a GPU runs faster than a host can name them.
The batches of a fused step have the same shapes in every round, and the server moves its weights in
place: so the step is captured once, reads the weights where they are, and is replayed on copied inputs.
The kernels are the same, and so are their numbers.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Hashable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from spreadout.core.types import Tensors
from spreadout.runtime.simulator.graphs import no_collection

WARM_UP = 3  # calls in which libraries set themselves up and choose their kernels
PATIENCE = 8  # captures, after which replays must have paid for them


class Step(NamedTuple):
    """What one step of many clients comes to before anything is moved."""

    loss: Tensor  # (k,)
    gradients: list[Tensor]
    statistics: Tensors  # running ones of the encoder's norms, moved by the cohort


Work = Callable[[Tensors, Tensors], Step]
"""A step from weights and everything else that differs from round to round."""


class FusedGraph:
    """The graph of the shapes that came last; a plain call when they come for the first time."""

    def __init__(self) -> None:
        self._key: Hashable = None
        self._captured: Captured | None = None
        self._captures, self._calls = 0, 0
        self.given_up = False

    def run(self, work: Work, dense: Tensors, inputs: Tensors, about: Hashable) -> Step | None:
        """The step, valid until the next; None where it is not to be replayed.

        about: all that the work depends on besides.
        """
        if self.given_up or not on_gpu([*dense.values(), *inputs.values()]):
            return None
        where = tuple((name, value.data_ptr()) for name, value in dense.items())
        shapes = tuple((name, value.shape, value.dtype) for name, value in inputs.items())
        self._calls += 1
        if (key := (where, shapes, about)) != self._key:  # captured when it comes a second time
            self._key, self._captured = key, None
            return None
        if self._captured is None:
            self._captures += 1
            if self._captures > PATIENCE and 16 * self._captures > self._calls:
                self.given_up = True  # shapes that never come again
                return None
            try:
                self._captured = Captured(work, dense, inputs)
            except RuntimeError as error:
                self.given_up = True
                reason = str(error).splitlines()[0]
                warnings.warn(f"going on without a graph of the step: {reason}", stacklevel=2)
                return None
        return self._captured(inputs)


def on_gpu(tensors: Sequence[Tensor]) -> bool:
    return all(tensor.is_cuda for tensor in tensors)


class Captured:
    """One graph with the memory its inputs and outputs live in; of the weights, where they are."""

    def __init__(self, work: Work, dense: Tensors, inputs: Tensors) -> None:
        self._inputs = {name: value.detach().clone() for name, value in inputs.items()}
        weights = {name: value.detach() for name, value in dense.items()}
        side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(WARM_UP):
                work(weights, self._inputs)
        torch.cuda.current_stream().wait_stream(side)
        self._graph = torch.cuda.CUDAGraph()
        # Another thread may be at work on the next round: only this one's calls belong to the capture.
        with no_collection(), torch.cuda.graph(self._graph, capture_error_mode="thread_local"):
            self._made = work(weights, self._inputs)

    def __call__(self, inputs: Tensors) -> Step:
        for name, value in inputs.items():
            self._inputs[name].copy_(value)
        self._graph.replay()
        return self._made
