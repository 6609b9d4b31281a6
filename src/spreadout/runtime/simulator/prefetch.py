"""A few values computed in background threads before they are needed."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Generic, TypeVar

T = TypeVar("T")


class Prefetcher(Generic[T]):
    """A value for each of a few keys, each computed in its own thread."""

    def __init__(self, threads: int = 1) -> None:
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="prefetch")
        self._futures: dict[Hashable, Future[T]] = {}

    def begin(self, works: Mapping[Hashable, Callable[[], T]]) -> None:
        """Start to compute the values of these keys, unless already started; forget all others."""
        for key in self._futures.keys() - works.keys():
            self._futures.pop(key).cancel()
        for key, work in works.items():
            if key not in self._futures:
                self._futures[key] = self._pool.submit(work)

    def get(self, key: Hashable) -> T | None:
        """The value of this key, waiting for it; None if it was not started, or failed."""
        future = self._futures.get(key)
        if future is None:
            return None
        if future.exception() is not None:
            del self._futures[key]  # the caller computes it again and meets the error itself
            return None
        return future.result()
