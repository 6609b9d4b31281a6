"""A lock on a file that dies with its process: however that ends, the next one can take it.

`flock` is used. On Linux it works on local file systems and on NFS, there between machines too. Where a
file system has no locks, the work goes on and a warning says so.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import socket
from contextlib import suppress
from pathlib import Path

from spreadout.core.errors import UserError
from spreadout.core.files import naming

HELD_ELSEWHERE = {errno.EWOULDBLOCK, errno.EAGAIN, errno.EACCES}
UNSUPPORTED = {errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOTSUP, errno.EINVAL}
_open: set[int] = set()  # descriptors of the locks this process holds


class Lock:
    """A file this process holds; `take` it, `release` it."""

    def __init__(self, path: Path, file: int, *, locked: bool) -> None:
        self.path, self._file, self.locked = path, file, locked
        _open.add(file)

    @classmethod
    def take(cls, path: Path) -> Lock:
        """Hold this file, which is made if need be; if another process holds it, say which."""
        while True:
            with naming(path):
                file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
            try:
                locked = _lock(path, file)
                if _is_at(file, path):
                    break
            except BaseException:
                os.close(file)
                raise
            os.close(file)  # whoever held it has just removed it
        lock = cls(path, file, locked=locked)
        try:
            lock._sign()
        except BaseException:
            lock.release()
            raise
        return lock

    @property
    def lost(self) -> bool:
        """Whether the file has been deleted, or replaced by another."""
        return not _is_at(self._file, self.path)

    def release(self, *, remove: bool = False) -> None:
        """Let others have it; remove: and leave no file behind."""
        if self._file not in _open:
            return
        if remove and not self.lost:
            with suppress(OSError):
                os.unlink(self.path)
        _open.discard(self._file)
        os.close(self._file)

    def _sign(self) -> None:
        """Write down who holds it, for those who are refused. Once it is signed it always is."""
        signature = json.dumps(_myself()).encode()
        with naming(self.path):
            os.pwrite(self._file, signature.ljust(os.fstat(self._file).st_size), 0)
            os.ftruncate(self._file, len(signature))


def is_signed(path: Path) -> bool:
    """Whether a file is one that some process has held: by what is written in it."""
    try:
        found = json.loads(path.read_bytes()[:1000])
    except (OSError, ValueError, RecursionError):
        return False
    return isinstance(found, dict) and found.keys() == _myself().keys()


def _lock(path: Path, file: int) -> bool:
    """Whether it is locked now: False where the file system has no locks."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in HELD_ELSEWHERE:
            raise UserError(
                f"{path.parent}: is in use by {_holder(file)}; wait until it ends, or stop it"
            ) from None
        if error.errno in UNSUPPORTED:
            return False
        raise
    return True


def _is_at(file: int, path: Path) -> bool:
    """Whether an open file is the one of this name."""
    try:
        there = os.stat(path)
    except OSError:
        return False
    return os.path.samestat(os.fstat(file), there)


def _myself() -> dict[str, str | int]:
    return {"process": os.getpid(), "host": socket.gethostname()}


def _holder(file: int) -> str:
    """The process that signed a lock file, as a person looks for it."""
    try:
        found = json.loads(os.pread(file, 1000, 0))
        if found == _myself():
            return "another run of this process"
        return f"process {found['process']} on {found['host']}"
    except (OSError, ValueError, KeyError, TypeError):  # it has not signed yet
        return "another process"


def _close_in_child() -> None:
    """A forked child would keep its parent's locks alive; the parent's own are untouched by this."""
    for file in _open:
        with suppress(OSError):
            os.close(file)
    _open.clear()


os.register_at_fork(after_in_child=_close_in_child)
