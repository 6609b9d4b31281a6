"""A CUDA stream of its own for every thread, so that rounds can be staged beside the training."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import torch

_of_thread = threading.local()


@contextmanager
def side_stream(device: torch.device) -> Iterator[None]:
    """Within it, what is asked of a GPU goes beside what other threads ask of it.

    One stream for each thread and device: memory freed on a stream is found again on it.
    """
    if device.type != "cuda":
        yield
        return
    streams: dict[torch.device, torch.cuda.Stream] = _of_thread.__dict__.setdefault("streams", {})
    if device not in streams:
        # Its small kernels go first: they would wait for all blocks of a large product otherwise.
        streams[device] = torch.cuda.Stream(device, priority=-1)  # type: ignore[no-untyped-call]
    with torch.cuda.stream(streams[device]):
        yield
