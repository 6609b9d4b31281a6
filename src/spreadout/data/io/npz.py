"""Arrays that NumPy saved, read with suspicion: only those asked for, and none larger than its file."""

from __future__ import annotations

import errno
import math
import zipfile
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import numpy as np

from spreadout.core.errors import UserError
from spreadout.core.limits import refuse_bomb

Array = np.ndarray[Any, Any]
WORST = 4  # bytes that a value of one byte becomes as a feature


def read_npz(path: Path, known: Collection[str], *, others: bool = False) -> dict[str, Array]:
    """The arrays of these names in an .npz file. Others are never read: refused, or left alone."""
    with _readable(path, "a readable .npz file"), zipfile.ZipFile(path) as file:
        members = {info.filename.removesuffix(".npy"): info for info in file.infolist()}
        if len(members) < len(file.infolist()):
            raise ValueError("it has two arrays of one name")
        unknown = sorted(members.keys() - set(known))
        if unknown and not others:
            some = ", ".join(sorted(known))
            raise UserError(f"{path}: array {unknown[0][:40]!r} is unknown; known: {some}")
        members = {name: info for name, info in members.items() if name in known}
        packed = path.stat().st_size
        refuse_bomb(path, sum(info.file_size for info in members.values()), packed)
        found: dict[str, Array] = {}
        for name, info in members.items():
            with file.open(info) as stream:
                found[name] = _array(stream, info.file_size, packed, f"{path}: array {name!r}")
        return found


def read_npy(path: Path) -> Array:
    """The array of an .npy file."""
    with _readable(path, "an array that NumPy saved"), open(path, "rb") as stream:
        size = path.stat().st_size
        return _array(stream, size, size, str(path))


@contextmanager
def _readable(path: Path, what: str) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError:
        raise UserError(f"{path}: no such file") from None
    except IsADirectoryError:
        raise UserError(f"{path}: is a folder, not {what}") from None
    except UserError:
        raise
    except Exception as error:  # of a broken file, NumPy and zipfile may say anything
        if isinstance(error, OSError) and error.errno not in (None, errno.EINVAL):
            raise
        reason = (str(error) or type(error).__name__).splitlines()[0]
        raise UserError(f"{path}: not {what} ({reason[:120]})") from None


def _array(stream: IO[bytes], size: int, packed: int, what: str) -> Array:
    """An array whose header promises no more than the stream has."""
    version = np.lib.format.read_magic(stream)
    header = {
        (1, 0): np.lib.format.read_array_header_1_0,
        (2, 0): np.lib.format.read_array_header_2_0,
    }.get(version)
    if header is None:
        raise ValueError(f"version {version} of the format is unknown")
    shape, fortran, dtype = header(stream)
    if dtype.hasobject:
        raise UserError(
            f"{what}: holds Python objects, which are not read; save text as text, by .astype(str)"
        )
    if any(length < 0 for length in shape):
        raise ValueError(f"its shape is {shape}")
    count = math.prod(shape)
    refuse_bomb(what, count * max(dtype.itemsize, WORST), packed)
    if count * dtype.itemsize > size:
        raise ValueError(f"it promises {count * dtype.itemsize:,} bytes and has {size:,}")
    flat = np.empty(count, dtype)
    if flat.nbytes:
        _fill(stream, flat.view(np.uint8).data)
    return flat.reshape(shape, order="F" if fortran else "C")


def _fill(stream: IO[bytes], room: memoryview) -> None:
    while len(room):
        some = stream.read(min(len(room), 1 << 24))
        if not some:
            raise EOFError("it ends too early")
        room[: len(some)] = some
        room = room[len(some) :]
