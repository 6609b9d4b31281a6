"""Everything a program does to the files below a folder, seen before it happens.

A process killed right before an operation leaves the disk as it is at that moment, so a copy taken there
is what the next process finds. Half of every write is done first, and counts as a moment of its own.
"""

import builtins
import errno
import fcntl
import io
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

WRITING = os.O_WRONLY | os.O_RDWR
Moment = Callable[[str, Path], None]  # what is about to be done, and to which file


@contextmanager
def watched(root: Path, moment: Moment) -> Iterator[None]:
    """Within it, `moment` is called before every change below `root`. Nothing waits for the disk."""
    root = root.resolve()
    real = {name: getattr(os, name) for name in ("open", "write", "pwrite", "ftruncate", "close")}
    opened: dict[int, Path] = {}
    halved: set[int] = set()

    def below(path: Any, dir_fd: int | None = None) -> Path | None:
        base = Path(os.readlink(f"/proc/self/fd/{dir_fd}")) if dir_fd is not None else Path.cwd()
        full = Path(os.path.abspath(base / os.fspath(path)))
        return full if full == root or root in full.parents else None

    def open_(path: Any, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        file = below(path, dir_fd) if flags & WRITING else None
        if file is not None:
            moment("open", file)
        number: int = real["open"](path, flags, mode, dir_fd=dir_fd)
        if file is not None:
            opened[number] = file
        return number

    def close(file: int) -> None:
        opened.pop(file, None)
        halved.discard(file)
        real["close"](file)

    def write(file: int, data: Any) -> int:
        if file not in opened:
            return int(real["write"](file, data))
        if file in halved:  # the other half, as `os.write` may ask for
            halved.discard(file)
            moment("half of a write", opened[file])
            return int(real["write"](file, data))
        moment("write", opened[file])
        half = memoryview(data)[: (len(data) + 1) // 2]
        halved.update({file} if len(half) < len(data) else ())
        return int(real["write"](file, half))

    def on_path(name: str) -> Callable[..., Any]:
        inner = getattr(os, name)

        def act(path: Any, *more: Any, **options: Any) -> Any:
            file = below(path, options.get("dir_fd"))
            if file is not None:
                moment(name, file)
            return inner(path, *more, **options)

        return act

    def on_file(module: Any, name: str) -> Callable[..., Any]:
        inner = getattr(module, name)

        def act(file: int, *more: Any) -> Any:
            if file in opened:
                moment(name, opened[file])
            return inner(file, *more)

        return act

    def no_other_way(inner: Callable[..., Any]) -> Callable[..., Any]:
        def act(file: Any, mode: str = "r", *more: Any, **options: Any) -> Any:
            if set(mode) & set("wax+") and not isinstance(file, int) and below(file):
                raise AssertionError(f"{file} is written past spreadout.core.files")
            return inner(file, mode, *more, **options)

        return act

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda file: None)
        for name in ("replace", "rename", "unlink", "remove", "rmdir", "mkdir", "truncate"):
            patch.setattr(os, name, on_path(name))
        for name in ("pwrite", "ftruncate"):
            patch.setattr(os, name, on_file(os, name))
        patch.setattr(fcntl, "flock", on_file(fcntl, "flock"))
        for module in (builtins, io):
            patch.setattr(module, "open", no_other_way(module.open))  # type: ignore[attr-defined]
        patch.setattr(os, "open", open_)
        patch.setattr(os, "write", write)
        patch.setattr(os, "close", close)
        yield


class Snapshots:
    """The distinct states of a folder at all moments of some work, each as a copy."""

    def __init__(self, root: Path, copies: Path) -> None:
        self.root, self.copies = root, copies
        self.moments: list[str] = []
        self.states: dict[str, tuple[str, Path]] = {}  # by content: the first moment, and the copy

    def __call__(self, what: str, file: Path) -> None:
        said = f"{len(self.moments)}: {what} {os.path.relpath(file, self.root)}"
        self.moments.append(said)
        key = contents(self.root)
        if key not in self.states:
            copy = self.copies / f"{len(self.states)}"
            if self.root.exists():
                shutil.copytree(self.root, copy)
            else:
                copy.parent.mkdir(parents=True, exist_ok=True)
            self.states[key] = (said, copy)


def contents(root: Path) -> str:
    """A digest of names and contents; of lock files the name only, as they name the process."""
    digest = sha256()
    for path in sorted(root.rglob("*")):
        mark = path.name.startswith(".spreadout-")
        digest.update(f"{path.relative_to(root)}\0".encode())
        digest.update(path.read_bytes() if path.is_file() and not mark else b"")
    return digest.hexdigest() + str(root.exists())


class FullDisk:
    """A disk that is full from the n-th moment that needs room."""

    NAMED = ("open", "mkdir", "replace", "rename")  # their errors have the file's name
    NAMELESS = ("write", "half of a write")

    def __init__(self, at: int) -> None:
        self.left, self.first = at, ""  # the file of the first moment without room

    def __call__(self, what: str, file: Path) -> None:
        if what not in self.NAMED + self.NAMELESS:
            return
        self.left -= 1
        if self.left < 0:
            self.first = self.first or str(file)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), *([str(file)] * (what in self.NAMED)))
