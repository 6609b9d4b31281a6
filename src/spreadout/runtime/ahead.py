"""One thing made ready in the background while another is at work."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Generic, TypeVar

T = TypeVar("T")


class Ahead(Generic[T]):
    """What belongs to one number (a round), computed in a thread of its own; the latest only."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="ahead")
        self._number: int | None = None
        self._future: Future[T] | None = None

    def start(self, number: int, work: Callable[[], T]) -> None:
        """Begin with what belongs to this number, unless it is begun already."""
        if self._number != number:
            self._number, self._future = number, self._pool.submit(work)

    def get(self, number: int) -> T | None:
        """What belongs to this number, waiting for it; None if it was never begun."""
        return self._future.result() if self._future is not None and self._number == number else None
