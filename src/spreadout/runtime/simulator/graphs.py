"""CUDA graphs of local training: all steps of all clients of a chunk in one launch.

A graph is captured once per shape and replayed on copied inputs. It needs every round to have the same
shapes, so each step has places for somewhat more clients than are usually still at work in it; those
whose clients are done rest behind a gate.
"""

from __future__ import annotations

import gc
import math
import warnings
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from itertools import zip_longest
from typing import Any

import torch
from torch import Tensor

from spreadout.core.types import Params, RowInfo, Tensors
from spreadout.federated.local import LocalTraining, Objective, local_update

MOST_GRAPHS = 4  # each keeps the memory of its steps
PATIENCE = 32  # captures, after which replays must have paid for them
MOST_STEPS = 512  # a graph of more takes long to capture and gains nothing
MOST_BYTES = 1 << 28  # of what is trained; beyond it a graph's copies cost more than it gains
Inputs = dict[str, Tensors]  # dense, rows, batches, RowInfo's parts, gate, offsets, memory


class GraphCache:
    """Captured graphs by the shapes they were captured for."""

    def __init__(self) -> None:
        self._graphs: dict[Any, _Captured] = {}
        self._room: dict[str, int] = {}
        self._places: tuple[int, ...] = ()
        self._captures, self._replays = 0, 0
        self.given_up = False

    def takes(self, steps: int, trained: int) -> bool:
        """Whether a stack of clients that take up to so many steps is worth a graph.

        Not where most of the graph's steps would be padding. trained: bytes of all they train.
        """
        small = steps <= MOST_STEPS and trained <= MOST_BYTES
        return not self.given_up and small and 2 * steps >= len(self._places)

    def room(self, what: str, needed: int, round_to: int = 1) -> int:
        """A length that is enough and rarely changes: the most that was ever needed, rounded up."""
        most = max(self._room.get(what, 0), -(-needed // round_to) * round_to)
        if most > self._room.get(what, 0):
            self._graphs.clear()  # shapes that will not come again
        self._room[what] = most
        return most

    def places(self, active: Sequence[int]) -> tuple[int, ...]:
        """How many clients each step of a stack has places for: enough, and rarely changing.

        active: clients still at work in each step, falling. Cohorts are drawn at random, so these
        numbers vary by some root of theirs; when they do not suffice, they grow by more than needed.
        """
        pairs = list(zip_longest(active, self._places, fillvalue=0))
        if any(count > known for count, known in pairs):
            most = max(pairs[0])
            slack = math.ceil(1.5 * most**0.5)
            self._places = tuple(
                max(known, min(most, count + slack) if count else 0) for count, known in pairs
            )
            self._graphs.clear()  # shapes that will not come again
        return self._places

    def run(
        self,
        objective: Objective,
        training: LocalTraining,
        inputs: Inputs,
        places: Sequence[int],
        about: Hashable,
    ) -> tuple[Params, Tensor] | None:
        """`local_update` of a stack under a gate; the result is valid until the next call.

        about: all that the objective depends on apart from the inputs. Returns None where the steps
        cannot be captured: some encoders do things no graph can hold.
        """
        shapes = tuple(
            (part, name, tuple(t.shape), t.dtype)
            for part, tensors in inputs.items()
            for name, t in tensors.items()
        )
        clients = inputs["batches"]["mask"].shape[0]
        active = [min(count, clients) for count in places]
        key = (shapes, tuple(active), repr(training), about)
        self._replays += 1
        if key not in self._graphs:
            self._captures += 1
            if self._captures > PATIENCE and 4 * self._captures > self._replays:
                self.given_up = True  # shapes that never come again: chunks of ever new sizes
                return None
            while len(self._graphs) >= MOST_GRAPHS:
                self._graphs.pop(next(iter(self._graphs)))
            try:
                self._graphs[key] = _Captured(
                    lambda given: _update(objective, training, given, active), inputs
                )
            except RuntimeError as error:
                self.given_up = True
                reason = str(error).splitlines()[0]
                warnings.warn(f"going on without CUDA graphs: {reason}", stacklevel=2)
                return None
        return self._graphs[key](inputs)


def _update(
    objective: Objective, training: LocalTraining, inputs: Inputs, active: Sequence[int]
) -> tuple[Params, Tensor]:
    start = Params(inputs["dense"], inputs["rows"])
    has_offset = "offset_dense" in inputs
    offset = Params(inputs["offset_dense"], inputs["offset_rows"]) if has_offset else None
    memory: dict[str, Tensors] = {}
    for key, value in inputs.get("memory", {}).items():
        name, _, slot = key.rpartition("|")
        memory.setdefault(name, {})[slot] = value
    return local_update(
        objective,
        training,
        start,
        inputs["batches"],
        RowInfo(*(inputs[part] for part in RowInfo._fields)),
        active=active,
        gate=inputs["gate"]["gate"],
        offset=offset,
        memory=memory or None,
    )


def keep_memory_(inputs: Inputs, own: Inputs) -> None:
    """What optimisers remember, back from a graph's own copy, which its steps have changed."""
    for name, tensor in inputs.get("memory", {}).items():
        tensor.copy_(own["memory"][name])


class _Captured:
    """One graph with the memory its inputs and outputs live in."""

    def __init__(self, work: Callable[[Inputs], tuple[Params, Tensor]], inputs: Inputs) -> None:
        self._inputs = {part: {n: t.clone() for n, t in ts.items()} for part, ts in inputs.items()}
        side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(2):  # libraries set themselves up outside the capture
                work(self._inputs)
        torch.cuda.current_stream().wait_stream(side)
        self._graph = torch.cuda.CUDAGraph()
        # Another thread may be at work on the next round: only this one's calls belong to the capture.
        with no_collection(), torch.cuda.graph(self._graph, capture_error_mode="thread_local"):
            self._outputs = work(self._inputs)

    def __call__(self, inputs: Inputs) -> tuple[Params, Tensor]:
        for part, tensors in inputs.items():
            for name, tensor in tensors.items():
                self._inputs[part][name].copy_(tensor)
        self._graph.replay()
        keep_memory_(inputs, self._inputs)
        return self._outputs


@contextmanager
def no_collection() -> Iterator[None]:
    """Without the cycle collector: were it to end an older graph now, the capture would be void."""
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()
