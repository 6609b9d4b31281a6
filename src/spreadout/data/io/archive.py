"""Reading published archives in place: zip, tar, or the folder they unpack to, all alike.

Nothing is ever unpacked to disk. Members are refused that point outside the archive, and so is one that
becomes larger than `core/limits.py` allows: a bomb is a message, not a full memory.
"""

from __future__ import annotations

import bz2
import errno
import gzip
import io
import os
import tarfile
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO, Any, TypeVar

from spreadout.core.errors import UserError
from spreadout.core.limits import refuse_bomb
from spreadout.data.io.tar import MEMBER, open_tar, plain_members

CHUNK = 1 << 20
PICTURES = (".png", ".jpg", ".jpeg", ".bmp", ".webp", ".gif", ".tif", ".tiff")
PACKED = (".zip", ".tar", ".tgz", ".tbz2", ".txz", ".tar.gz", ".tar.bz2", ".tar.xz")
T = TypeVar("T")


@dataclass(frozen=True)
class Archive:
    """Named members, each to be opened or read."""

    path: Path
    names: list[str]
    _open: Callable[[str], IO[bytes]]

    def only(self, ending: str, *, what: str) -> str:
        """The one member whose path ends so."""
        found = self.find(ending)
        if not found:
            raise UserError(f"{self.path}: has no {ending} ({what}); the archive may be another one")
        if len(found) > 1:
            raise UserError(f"{self.path}: has both {found[0]} and {found[1]}; give one of them")
        return found[0]

    def find(self, ending: str) -> list[str]:
        """Members with this file name (or this end of their path), whatever folder they lie in."""
        return [name for name in self.names if name == ending or name.endswith("/" + ending)]

    @contextmanager
    def open(self, name: str) -> Iterator[IO[bytes]]:
        with self._open(name) as stream:
            yield stream

    def read(self, name: str) -> bytes:
        with self.open(name) as stream:
            return stream.read()

    def label(self, name: str) -> str:
        """How errors name a member."""
        return str(self.path / name) if self.path.is_dir() else f"{self.path}:{name}"


@contextmanager
def opened(path: Path) -> Iterator[Archive]:
    """An archive, or a folder as one, or a single file as one member."""
    if path.is_dir():
        yield Archive(path, files_below(path), lambda name: _unpacked(path / name))
    elif zipfile.is_zipfile(path):
        with _careful(f"{path}: not a readable archive", lambda: zipfile.ZipFile(path)) as file:
            yield _zip(path, file)
    elif (tar := _careful(f"{path}: not a readable archive", lambda: open_tar(path))) is not None:
        with tar:
            listed = _careful(f"{path}: not a readable archive", lambda: _tar(path, tar))
            yield listed
    elif path.name.lower().endswith(PACKED):
        raise UserError(f"{path}: not a readable archive; it may be cut short: fetch it again")
    else:
        yield Archive(path.parent, [path.name], lambda name: _unpacked(path))


def beside(path: Path) -> Archive:
    """The files of the folder a file lies in, that file among them, without the folders below."""
    here = path.parent
    names = sorted(file.name for file in here.iterdir() if file.is_file() and not _is_junk(file.name))
    return Archive(here, names, lambda name: _unpacked(here / name))


@contextmanager
def open_plain(path: Path) -> Iterator[IO[bytes]]:
    """A file as it is, or what a .gz or .bz2 file holds."""
    with _unpacked(path) as stream:
        yield stream


def _careful(what: str, read: Callable[[], T]) -> T:
    """Whatever an unpacker raises about a broken file, as one line; errors of the disk pass."""
    try:
        return read()
    except (UserError, MemoryError):
        raise
    except Exception as error:
        if isinstance(error, OSError) and error.errno not in (None, errno.EINVAL):
            raise  # EINVAL: the file sends its reader to a place before its beginning
        reason = str(error).partition("\n")[0][:120] or "it ends too early"
        short = "" if isinstance(error, RuntimeError) else ", it may be cut short"  # or: encrypted
        raise UserError(f"{what}{short} ({reason})") from None


def _unpacked(path: Path) -> IO[bytes]:
    unpackers: dict[str, Callable[..., Any]] = {".gz": gzip.open, ".bz2": bz2.open}
    unpack = unpackers.get(path.suffix.lower())
    if unpack is None:
        return open(path, "rb")
    return _guarded(unpack(path), path, f"{path}: cannot be read")


def _zip(path: Path, file: zipfile.ZipFile) -> Archive:
    members = [i for i in file.infolist() if not i.is_dir() and not _is_junk(i.filename)]
    for info in file.infolist():
        _refuse_outside(path, info.filename)
    total = sum(info.file_size + MEMBER for info in members)
    refuse_bomb(path, total, path.stat().st_size)  # zipfile reads no more than that

    def open_member(name: str) -> IO[bytes]:
        what = f"{path}: {name} cannot be read"
        return _guarded(_careful(what, lambda: file.open(name)), path, what)

    return Archive(path, sorted(info.filename for info in members), open_member)


def _tar(path: Path, tar: tarfile.TarFile) -> Archive:
    packed = path.stat().st_size
    members = {}
    for info in plain_members(tar, lambda size: refuse_bomb(path, size, packed)):
        _refuse_outside(path, info.name)
        if info.isfile() and not _is_junk(info.name):  # links are not followed
            members[info.name] = info

    def open_member(name: str) -> IO[bytes]:
        return _guarded(tar.extractfile(members[name]), path, f"{path}: {name} cannot be read")

    return Archive(path, list(members), open_member)  # as packed: going back would unpack it all again


def _guarded(stream: Any, path: Path, what: str) -> IO[bytes]:
    return io.BufferedReader(_Guarded(stream, path, what))


class _Guarded(io.RawIOBase):
    """A packed stream whose errors are one line, and which ends in one where it turns out a bomb.

    Packed files need not say how large they are.
    """

    def __init__(self, stream: IO[bytes], path: Path, what: str) -> None:
        self._stream, self._path, self._what = stream, path, what
        self._given, self._packed = 0, path.stat().st_size

    def readable(self) -> bool:
        return True

    def read_some(self, most: int) -> bytes:
        found = _careful(self._what, lambda: self._stream.read(most))
        self._given += len(found)
        refuse_bomb(self._path, self._given, self._packed)
        return found

    def readinto(self, buffer: Any) -> int:
        found = self.read_some(len(buffer))
        buffer[: len(found)] = found
        return len(found)

    def readall(self) -> bytes:
        return b"".join(iter(lambda: self.read_some(CHUNK), b""))

    def close(self) -> None:
        self._stream.close()
        super().close()


def files_below(folder: Path) -> list[str]:
    """Every file, through links to folders too, but never around in a circle."""
    found, seen = [], set()
    for here, below, files in os.walk(folder, followlinks=True):
        real = os.path.realpath(here)
        if real in seen:
            below.clear()
            continue
        seen.add(real)
        inside = Path(here).relative_to(folder)
        found += [name for file in files if not _is_junk(name := (inside / file).as_posix())]
    return sorted(found)


def _is_junk(name: str) -> bool:
    """What systems leave behind: hidden files, and the second file that Macs add to each one."""
    parts = PurePosixPath(name).parts
    return any((part.startswith(".") and part != "..") or part == "__MACOSX" for part in parts)


def _refuse_outside(path: Path, name: str) -> None:
    parts = PurePosixPath(name.replace("\\", "/"))
    drive = len(name) > 1 and name[1] == ":"
    if parts.is_absolute() or ".." in parts.parts or drive:
        raise UserError(f"{path}: member {name[:80]!r} points outside the archive: refused")
