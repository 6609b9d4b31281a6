"""Being asked to stop: a run ends its round, saves, and can be gone on with."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager


class Stop:
    """The first Ctrl-C (or SIGTERM) asks a run to stop after its round; a second one stops it now."""

    def __init__(self, signals: Sequence[signal.Signals] = (signal.SIGINT, signal.SIGTERM)) -> None:
        self._requested = False
        self._signals = signals

    def requested(self) -> bool:
        return self._requested

    def _request(self, _signum: int, _frame: object) -> None:
        if self._requested:
            raise KeyboardInterrupt
        self._requested = True
        if speaks():
            print("\nstopping after this round; interrupt again to stop now (Ctrl-C)", file=sys.stderr)

    def __enter__(self) -> Stop:
        self._before = [signal.signal(s, self._request) for s in self._signals]
        return self

    def __exit__(self, *exc: object) -> None:
        for s, handler in zip(self._signals, self._before, strict=True):
            signal.signal(s, handler)


@contextmanager
def stoppable(stop: Callable[[], bool] | None) -> Iterator[Callable[[], bool]]:
    """The caller's own way to ask; without one, Ctrl-C does, or a notebook's button.

    Who handles Ctrl-C in a way of their own goes on doing so, and threads hear no signals.
    """
    plain = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if stop is not None:
        yield stop
    elif plain and threading.current_thread() is threading.main_thread():
        with Stop((signal.SIGINT,)) as asked:
            yield asked.requested
    else:
        yield lambda: False


def speaks() -> bool:
    """Whether this process prints: under torchrun only the first one does."""
    return os.environ.get("RANK", "0") == "0"
