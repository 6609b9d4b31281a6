"""A few things made ready in the background while another is at work."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Generic, TypeVar

T = TypeVar("T")


class Prefetcher(Generic[T]):
    """What belongs to each of a few keys, computed in threads of their own."""

    def __init__(self, threads: int = 1) -> None:
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="ahead")
        self._futures: dict[Hashable, Future[T]] = {}

    def begin(self, works: Mapping[Hashable, Callable[[], T]]) -> None:
        """Begin with what belongs to these keys, unless it is begun already, and forget all others."""
        for key in self._futures.keys() - works.keys():
            self._futures.pop(key).cancel()
        for key, work in works.items():
            if key not in self._futures:
                self._futures[key] = self._pool.submit(work)

    def get(self, key: Hashable) -> T | None:
        """What belongs to this key, waiting for it; None if it was not begun, or failed."""
        future = self._futures.get(key)
        if future is None:
            return None
        if future.exception() is not None:
            del self._futures[key]  # whoever needs it makes it again, and meets the error itself
            return None
        return future.result()
