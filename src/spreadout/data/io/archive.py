"""Reading published archives in place: zip, tar, or the folder they unpack to, all alike.

Nothing is ever unpacked to disk. Members are refused that point outside the archive, and reading stops
where a member is larger than it says or than anything published: a bomb is a message, not a full disk.
"""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import os
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO, Any

from spreadout.core.errors import UserError

DENSEST = 200  # times the packed size; published text packs 10 to 30 times, a bomb about 1,000
HARMLESS = 1 << 27  # bytes that may be packed as densely as they like
PICTURES = (".png", ".jpg", ".jpeg", ".bmp", ".webp", ".gif", ".tif", ".tiff")
BROKEN = (zipfile.BadZipFile, tarfile.TarError, zlib.error, lzma.LZMAError, EOFError)


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
        with _complaining(f"{self.path}: {name} cannot be read"), self._open(name) as stream:
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
    with _complaining(f"{path}: not a readable archive"):
        if path.is_dir():
            yield Archive(path, files_below(path), lambda name: _unpacked(path / name))
        elif zipfile.is_zipfile(path):
            with zipfile.ZipFile(path) as file:
                yield _zip(path, file)
        elif tarfile.is_tarfile(path):
            with tarfile.open(path) as tar:
                yield _tar(path, tar)
        elif path.suffix in (".zip", ".tar", ".tgz") or path.name.endswith(".tar.gz"):
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
    with _complaining(f"{path}: cannot be read"), _unpacked(path) as stream:
        yield stream


@contextmanager
def _complaining(what: str) -> Iterator[None]:
    """What the unpackers raise about broken files, as one line; errors of the disk pass."""
    try:
        yield
    except (*BROKEN, OSError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise
        reason = str(error) or "it ends too early"
        raise UserError(f"{what}, it may be cut short ({reason})") from None


def _unpacked(path: Path) -> IO[bytes]:
    unpackers: dict[str, Callable[..., Any]] = {".gz": gzip.open, ".bz2": bz2.open}
    unpack = unpackers.get(path.suffix.lower())
    if unpack is None:
        return open(path, "rb")
    return io.BufferedReader(_Bounded(unpack(path), path))


def _zip(path: Path, file: zipfile.ZipFile) -> Archive:
    members = [i for i in file.infolist() if not i.is_dir() and not _is_junk(i.filename)]
    for info in file.infolist():
        _refuse_outside(path, info.filename)
    _refuse_bomb(path, sum(info.file_size for info in members))  # zipfile reads no more than that

    def open_member(name: str) -> IO[bytes]:
        try:
            return file.open(name)
        except RuntimeError as error:  # encrypted, or packed in some rare way
            raise UserError(f"{path}: {name} cannot be read ({error})") from None

    return Archive(path, sorted(info.filename for info in members), open_member)


def _tar(path: Path, tar: tarfile.TarFile) -> Archive:
    members, total = {}, 0
    for info in tar:
        _refuse_outside(path, info.name)
        if info.isfile() and not _is_junk(info.name):  # links are not followed
            members[info.name] = info
            total += info.size
            _refuse_bomb(path, total)

    def open_member(name: str) -> IO[bytes]:
        stream = tar.extractfile(members[name])
        assert stream is not None  # it is a plain file
        return stream

    return Archive(path, list(members), open_member)  # as packed: going back would unpack it all again


class _Bounded(io.RawIOBase):
    """A stream that ends in an error where it turns out a bomb: packed files do not say their size."""

    def __init__(self, stream: IO[bytes], path: Path) -> None:
        self._stream, self._path, self._given = stream, path, 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        found = self._stream.read(len(buffer))
        buffer[: len(found)] = found
        self._given += len(found)
        _refuse_bomb(self._path, self._given)
        return len(found)

    def close(self) -> None:
        self._stream.close()
        super().close()


def _allowed(path: Path) -> int:
    return max(HARMLESS, DENSEST * path.stat().st_size)


def _refuse_bomb(path: Path, unpacked: int) -> None:
    if unpacked > _allowed(path):
        raise UserError(
            f"{path}: unpacks to {unpacked:,} bytes or more, over {DENSEST} times its size: "
            "refused as a bomb"
        )


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
        raise UserError(f"{path}: member {name!r} points outside the archive: refused")
