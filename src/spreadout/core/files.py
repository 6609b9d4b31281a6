"""Files that are never half-written, and logs that grow by whole lines.

What is written is first a temporary file, flushed, then moved into place: a reader finds the old file
or the new one. Whatever goes wrong, the error names the file.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

Bytes = bytes | memoryview
TEMPORARY = re.compile(r"\.(?P<name>.+)\.\d+")  # of `name`, by the process of this number


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Errors of the file system name this file: not a descriptor, not a temporary one."""
    try:
        yield
    except OSError as error:
        raise OSError(error.errno, error.strerror or str(error), str(path)) from None


def write_atomic(path: Path, payload: Bytes | Iterable[Bytes]) -> str:
    """Write a file so that no reader ever finds half of it; the SHA-256 of what it holds."""
    pieces = (payload,) if isinstance(payload, bytes | memoryview) else payload
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    digest = hashlib.sha256()
    with naming(path):
        try:
            with _opened(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC) as file:
                for piece in pieces:
                    _write(file, piece)
                    digest.update(piece)
                os.fsync(file)
            os.replace(temporary, path)
        except BaseException:
            with suppress(OSError):
                os.unlink(temporary)
            raise
        _sync_folder(path.parent)
    return digest.hexdigest()


def write_json(path: Path, value: Mapping[str, Any]) -> str:
    """As `write_atomic`, of `json_bytes`."""
    return write_atomic(path, json_bytes(value))


def append(path: Path, payload: bytes, *, sync: bool = False) -> None:
    """Add to the end of a log; sync: so that it lasts through a power cut."""
    with naming(path):
        with _opened(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND) as file:
            _write(file, payload)
            if sync:
                os.fsync(file)
        if sync:
            _sync_folder(path.parent)


def cut(path: Path, length: int) -> None:
    """Take everything beyond so many bytes off the end of a log."""
    with naming(path):
        os.truncate(path, length)


def sweep(folder: Path, names: Iterable[str]) -> None:
    """Remove temporary files of these names or patterns, left behind by processes that were killed."""
    for item in folder.iterdir() if folder.is_dir() else ():
        found = TEMPORARY.fullmatch(item.name)
        if found and any(fnmatch(found["name"], name) for name in names):
            item.unlink(missing_ok=True)


@contextmanager
def _opened(path: Path, flags: int) -> Iterator[int]:
    file = os.open(path, flags | os.O_CLOEXEC, 0o666)
    try:
        yield file
    finally:
        os.close(file)


def _write(file: int, piece: Bytes) -> None:
    rest = memoryview(piece).cast("B")
    while rest:
        rest = rest[os.write(file, rest) :]


def _sync_folder(folder: Path) -> None:
    """Make the new name last through a power cut, where the file system can do so."""
    with suppress(OSError), _opened(folder, os.O_RDONLY) as file:
        os.fsync(file)


def json_bytes(value: Mapping[str, Any]) -> bytes:
    """A JSON file as people read it."""
    return (as_json(value, indent=2) + "\n").encode()


def as_json(value: Any, indent: int | None = None) -> str:
    """JSON that any reader takes: numbers that are not finite become null."""
    return json.dumps(_finite(value), indent=indent, allow_nan=False)


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: _finite(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(inner) for inner in value]
    return value
