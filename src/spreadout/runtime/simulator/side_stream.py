"""A CUDA stream for every thread, so that rounds can be staged while another trains."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import torch

_of_thread = threading.local()


@contextmanager
def side_stream(device: torch.device) -> Iterator[None]:
    """Within it, this thread's GPU work runs on its own stream, concurrent with that of other threads.

    One stream for each thread and device, so that memory freed on a stream is reused on it.
    """
    if device.type != "cuda":
        yield
        return
    streams: dict[torch.device, torch.cuda.Stream] = _of_thread.__dict__.setdefault("streams", {})
    if device not in streams:
        # High priority: else its small kernels wait for all blocks of a large product.
        streams[device] = torch.cuda.Stream(device, priority=-1)  # type: ignore[no-untyped-call]
    with torch.cuda.stream(streams[device]):
        yield
