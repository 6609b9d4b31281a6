"""Tar archives read with suspicion.

Python's tarfile reads names and notes of any length into memory, follows sizes below zero backwards for
ever, and keeps an entry for every member. None of that happens here.
"""

from __future__ import annotations

import lzma
import tarfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NoReturn, Self

LONGEST_NAME = 1 << 16  # bytes a tar may spend on what comes before a member
MEMBER = 1 << 11  # bytes that a member's entry takes in memory
BEFORE_MEMBERS = (
    *(tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK),
    *(tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.SOLARIS_XHDTYPE),
)


class RefusedTarError(Exception):
    """Not one of tarfile's own, which it would take for the end of the archive."""


class _Header(tarfile.TarInfo):
    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> Self:
        found = super().frombuf(buf, encoding, errors)
        if found.size < 0:
            raise RefusedTarError(f"a member of {found.size:,} bytes")
        if found.type in BEFORE_MEMBERS and found.size > LONGEST_NAME:
            raise RefusedTarError(f"a member with a name or notes of {found.size:,} bytes: a bomb")
        if found.type == tarfile.GNUTYPE_SPARSE:
            _refuse_sparse()
        return found

    def _proc_gnusparse_00(self, *_: object) -> NoReturn:
        _refuse_sparse()

    def _proc_gnusparse_01(self, *_: object) -> NoReturn:
        _refuse_sparse()

    def _proc_gnusparse_10(self, *_: object) -> NoReturn:
        _refuse_sparse()


def _refuse_sparse() -> NoReturn:
    raise RefusedTarError("a sparse member, which is not read; pack it again without --sparse")


def open_tar(path: Path) -> tarfile.TarFile | None:
    """A tar, packed in any way; None where it is none."""
    try:
        return tarfile.open(path, tarinfo=_Header)
    except (tarfile.TarError, EOFError, zlib.error, lzma.LZMAError, ValueError, IndexError):
        return None


def plain_members(tar: tarfile.TarFile, refuse_bomb: Callable[[int], None]) -> Iterator[tarfile.TarInfo]:
    """All members; `refuse_bomb` hears how much they unpack to before they are passed over."""
    total = 0
    while (info := tar.next()) is not None:
        tar.members = []  # type: ignore[attr-defined]  # it would keep every one
        if info.size < 0 or tar.offset <= info.offset:
            raise RefusedTarError(f"a member of {info.size:,} bytes")
        total += info.size + MEMBER
        refuse_bomb(max(total, tar.offset))
        yield info
