"""A lock that no two processes hold, and that dies with its process."""

import errno
import fcntl
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from spreadout.core.errors import UserError
from spreadout.core.locks import Lock

HOLDS = """
import os, sys
from pathlib import Path
from spreadout.core.locks import Lock
lock = Lock.take(Path(sys.argv[1]))
child = os.fork() if sys.argv[2] == "with a child" else None
if child != 0:
    print(child or "", flush=True)
sys.stdin.read()
"""


@contextmanager
def holder(path: Path, how: str = "") -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A process that holds a lock until it is told to end, and the number of its child."""
    command = [sys.executable, "-c", HOLDS, str(path), how]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        try:
            yield process, process.stdout.readline().strip()
        finally:
            process.kill()


def test_a_second_process_is_told_which_one_holds_it_and_gets_it_when_that_is_killed(
    tmp_path: Path,
) -> None:
    path = tmp_path / "mark"
    with holder(path) as (process, _):
        whose = f"{tmp_path}: is in use by process {process.pid} on {socket.gethostname()}; wait"
        with pytest.raises(UserError, match=whose):
            Lock.take(path)
        process.kill()
        process.wait()
        Lock.take(path).release()


def test_a_child_that_outlives_its_parent_does_not_keep_the_lock(tmp_path: Path) -> None:
    path = tmp_path / "mark"
    with holder(path, "with a child") as (process, child):
        os.kill(int(child), 0)  # it is there
        with pytest.raises(UserError, match=f"process {process.pid} "):
            Lock.take(path)
        process.kill()
        process.wait()
        os.kill(int(child), 0)  # and waits for its input, which is still open
        for _ in range(50):  # the system may take a moment to close what a killed process had open
            with suppress(UserError):
                Lock.take(path).release()
                return
            time.sleep(0.1)
        pytest.fail("the child keeps the lock")


def test_two_runs_of_one_process_do_not_share_it_either(tmp_path: Path) -> None:
    lock = Lock.take(tmp_path / "mark")
    with pytest.raises(UserError, match="is in use by another run of this process"):
        Lock.take(tmp_path / "mark")
    lock.release()
    lock.release()  # once more is once
    Lock.take(tmp_path / "mark").release(remove=True)
    assert not (tmp_path / "mark").exists()


def test_a_lock_whose_file_was_deleted_or_replaced_is_lost(tmp_path: Path) -> None:
    path = tmp_path / "mark"
    lock = Lock.take(path)
    assert not lock.lost
    path.unlink()
    assert lock.lost
    other = Lock.take(path)
    assert lock.lost
    assert not other.lost
    lock.release(remove=True)  # it is another's by now
    assert path.exists()
    other.release()


def test_a_file_removed_while_it_is_taken_is_taken_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, real = tmp_path / "mark", fcntl.flock
    calls = iter(range(10))

    def flock(file: int, how: int) -> None:
        if next(calls) == 0:
            path.unlink()  # as the process that held it does when it ends
        real(file, how)

    monkeypatch.setattr(fcntl, "flock", flock)
    lock = Lock.take(path)
    assert not lock.lost
    lock.release()


@pytest.mark.parametrize("code", [errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP])
def test_where_there_are_no_locks_that_is_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    def flock(file: int, how: int) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(fcntl, "flock", flock)
    lock = Lock.take(tmp_path / "mark")
    assert not lock.locked
    lock.release()
