"""One thing made ready in the background while another is at work."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Generic, TypeVar

T = TypeVar("T")


class Ahead(Generic[T]):
    """What belongs to one key, computed in a thread of its own; the latest only."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="ahead")
        self._key: Hashable = None
        self._future: Future[T] | None = None

    def start(self, key: Hashable, work: Callable[[], T]) -> None:
        """Begin with what belongs to this key, unless it is begun already."""
        if self._future is None or self._key != key:
            self._key, self._future = key, self._pool.submit(work)

    def get(self, key: Hashable) -> T | None:
        """What belongs to this key, waiting for it; None if it was not begun, or failed."""
        if self._future is None or self._key != key:
            return None
        if self._future.exception() is not None:
            self._future = None  # whoever needs it makes it again, and meets the error itself
            return None
        return self._future.result()
