"""Parsed sources, kept next to the files they came from.

An entry is named by the content it was made from and the options it was made with. It is written to
one side and moved into place, under a lock, so that two processes make it once and nobody ever sees
half of it.
"""

from __future__ import annotations

import glob
import hashlib
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from spreadout.data.io import stored
from spreadout.data.io.archive import PICTURES, files_below

try:
    import fcntl
except ImportError:  # no such locks here: of two that make an entry at once, one has to try again
    fcntl = None  # type: ignore[assignment]

FORMAT = 11  # raise it when what readers write changes


def cached(source: Path, files: Sequence[Path], about: str, write: Callable[[Path], None]) -> Path:
    """A folder made by `write` out of a source's files, from the cache where it is there already."""
    folder = home(source if files else None) / f"{source.name.split('.')[0]}-{key(files, about)}"
    with _locked(folder):
        if stored.read_index(folder) is None:
            shutil.rmtree(folder, ignore_errors=True)  # damaged: made again
            with stored.whole_folder(folder) as temporary:
                write(temporary)
    return folder


def home(source: Path | None) -> Path:
    """Where entries lie: `SPREADOUT_CACHE`, next to the source, or in the user's own cache folder."""
    if folder := os.environ.get("SPREADOUT_CACHE"):
        return Path(folder)
    # Permission bits rather than access() alone: to root every folder looks writable.
    if source is not None:
        parent = source.absolute().parent
        if parent.stat().st_mode & 0o222 and os.access(parent, os.W_OK):
            return parent / ".spreadout-cache"
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "spreadout"


def key(files: Sequence[Path], about: str) -> str:
    """Changes with the content of any file and with the options.

    Pictures in a folder count by their names, sizes and times: reading thousands of them twice would
    take as long as not having a cache.
    """
    digest = hashlib.blake2b(f"{FORMAT} {about}".encode(), digest_size=16)
    for path in files:
        if path.is_dir():
            for name in files_below(path):  # the very files that are read
                file = path / name
                digest.update(f"{name} ".encode())
                if file.suffix.lower() in PICTURES:
                    facts = file.stat()
                    digest.update(f"{facts.st_size} {facts.st_mtime_ns}\n".encode())
                else:
                    digest.update(_digest(file))
        else:
            digest.update(_digest(path))
    return digest.hexdigest()


def _digest(path: Path) -> bytes:
    with open(path, "rb") as stream:
        return hashlib.file_digest(stream, "blake2b").digest()


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Held by one process at a time; the system lets go of it if the process dies."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with open(folder.with_name(f".{folder.name}.lock"), "w") as lock:
        if fcntl is not None:
            fcntl.flock(lock, fcntl.LOCK_EX)
            for stale in folder.parent.glob(f".{glob.escape(folder.name)}.[0-9]*"):
                shutil.rmtree(stale, ignore_errors=True)  # of a process that died at it
        yield
