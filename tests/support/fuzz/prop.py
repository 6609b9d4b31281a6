"""The property: a result, or one line that says what is wrong. No other exception, no hang, no bomb."""

from __future__ import annotations

import os
import re
import resource
import shutil
import signal
import tempfile
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from spreadout.core.errors import LONGEST, UserError
from spreadout.core.limits import VARIABLE

SECONDS = 20  # on a busy machine; what is read takes milliseconds
ROOM = 3 << 30  # bytes of addresses beyond those in use
UNPACK_GB = "0.03"


class HangError(BaseException):
    """It took longer than anything of this size may."""


def outcome(work: Callable[[], object]) -> str:
    """What came of it: "done", or the line that was said. Anything else is raised."""
    with bounded(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            work()
        except UserError as error:
            said = str(error)
            assert said, "an empty message"
            assert len(said.splitlines()) == 1, said
            assert len(said) <= LONGEST + 2
            return said
        return "done"


@contextmanager
def bounded() -> Iterator[None]:
    """With a limit on time and memory."""
    before = resource.getrlimit(resource.RLIMIT_AS)
    held = re.search(r"VmSize:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert held is not None
    given = os.environ.get(VARIABLE)
    os.environ[VARIABLE] = UNPACK_GB

    def ring(*_: object) -> None:
        raise HangError

    handler = signal.signal(signal.SIGALRM, ring)
    resource.setrlimit(resource.RLIMIT_AS, ((int(held[1]) << 10) + ROOM, before[1]))
    signal.setitimer(signal.ITIMER_REAL, SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, handler)
        resource.setrlimit(resource.RLIMIT_AS, before)
        os.environ.pop(VARIABLE)
        if given is not None:
            os.environ[VARIABLE] = given


@contextmanager
def folder() -> Iterator[Path]:
    """An empty folder, in memory where there is such a place."""
    home = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    path = Path(tempfile.mkdtemp(prefix="fuzz-", dir=home))
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)
