"""Requests that come while the model is busy are answered together: one batch at a time.

There is no clock in it. A lone request is answered at once; under load a batch is as large as what came
during the one before.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Generic, TypeVar

from spreadout.use.serve.refused import Refused

Q = TypeVar("Q")
A = TypeVar("A")


class Batcher(Generic[Q, A]):
    """Hands questions to `work` in batches, in the order they came."""

    def __init__(
        self,
        work: Callable[[Sequence[Q]], Sequence[A]],
        size: Callable[[Q], int],
        *,
        batch: int,
        waiting: int,
    ) -> None:
        self._work, self._size, self._batch, self._most = work, size, batch, waiting
        self._queue: deque[tuple[Q, asyncio.Future[A]]] = deque()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="model")
        self._running: asyncio.Task[None] | None = None
        self.waiting = 0  # inputs in the queue
        self.batches = 0  # so far

    async def ask(self, question: Q) -> A:
        """The answer; refused where too many wait already."""
        size = self._size(question)
        if self.waiting + size > self._most:
            raise Refused(503, f"busy: {self.waiting:,} inputs wait already; try again later")
        future: asyncio.Future[A] = asyncio.get_running_loop().create_future()
        self._queue.append((question, future))
        self.waiting += size
        if self._running is None or self._running.done():
            self._running = asyncio.get_running_loop().create_task(self._run())
        return await future

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        while self._queue:
            batch = self._next()
            if batch:
                self.batches += 1
                found = await loop.run_in_executor(self._thread, self._answered, [q for q, _ in batch])
                for (_, future), answer in zip(batch, found, strict=True):
                    _settle(future, answer)

    def _next(self) -> list[tuple[Q, asyncio.Future[A]]]:
        """The oldest questions that somebody still waits for, as many as fit in a batch."""
        batch: list[tuple[Q, asyncio.Future[A]]] = []
        total = 0
        while self._queue:
            question, future = self._queue[0]
            size = self._size(question)
            if batch and total + size > self._batch:
                break
            self._queue.popleft()
            self.waiting -= size
            if not future.done():  # who asked has not gone
                batch.append((question, future))
                total += size
        return batch

    def _answered(self, questions: Sequence[Q]) -> Sequence[A | Exception]:
        """The answers; where a batch fails each is asked alone, so that one does not spoil them all."""
        try:
            return list(self._work(questions))
        except Exception as error:
            if len(questions) == 1:
                return [error]
            return [self._answered([question])[0] for question in questions]

    def close(self) -> None:
        self._thread.shutdown(wait=False, cancel_futures=True)


def _settle(future: asyncio.Future[A], answer: A | Exception) -> None:
    if future.done():
        return
    if isinstance(answer, Exception):
        future.set_exception(answer)
    else:
        future.set_result(answer)
