"""The logs of a run, JSON by lines: a checkpoint marks how far they go and what they hold up to there.

A resumed run cuts them back to the marks and makes the rest again. So a last line that a kill cut short
never matters, and anything before it that has changed is noticed.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from spreadout.core.checksums import PIECE, digest_of
from spreadout.core.errors import UserError
from spreadout.core.files import cut, naming

METRICS, REQUESTS, REFUSALS = "metrics.jsonl", "requests.jsonl", "refusals.jsonl"
LOGS = (METRICS, REQUESTS, REFUSALS)
REMEDY = "restore it from a copy, or run it again with --force (force=True)"
Marks = Mapping[str, Mapping[str, Any]]  # of each log its length and digest: {"bytes": …, "sha256": …}


class Marker:
    """Follows the logs of a folder as they grow: what is new is read once."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._read = {name: (0, hashlib.sha256()) for name in LOGS}

    def marks(self) -> dict[str, dict[str, Any]]:
        """Where the logs end now; what they hold is on the disk before this is."""
        found = {}
        for name in LOGS:
            if (self._folder / name).is_file():
                length, digest = self._follow(name)
                found[name] = {"bytes": length, "sha256": digest}
        return found

    def _follow(self, name: str) -> tuple[int, str]:
        path, (at, digest) = self._folder / name, self._read[name]
        with naming(path), open(path, "rb") as file:
            file.seek(at)
            while piece := file.read(PIECE):
                digest.update(piece)
                at += len(piece)
            os.fsync(file.fileno())
        self._read[name] = (at, digest)
        return at, digest.hexdigest()


def check_marks(folder: Path, marks: Marks) -> None:
    """Refuse logs that are not what they were when a checkpoint was saved."""
    for name, mark in marks.items():
        path = folder / name
        try:
            long_enough = path.stat().st_size >= mark["bytes"]
            whole = long_enough and digest_of(path, mark["bytes"]) == mark["sha256"]
        except FileNotFoundError:
            raise UserError(f"{path}: is missing; {REMEDY}") from None
        if not whole:
            raise UserError(f"{path}: is damaged or was changed; {REMEDY}")


def rewind(folder: Path, marks: Marks) -> None:
    """Take off what came after a checkpoint; without marks nothing stays."""
    for name in LOGS:
        path = folder / name
        if name not in marks:
            path.unlink(missing_ok=True)
        elif path.stat().st_size > marks[name]["bytes"]:
            cut(path, marks[name]["bytes"])


def read_log(path: Path, length: int | None = None, remedy: str = REMEDY) -> Iterator[dict[str, Any]]:
    """Its records, or those in the first bytes; a last line cut short is left out, no other is."""
    with open(path, "rb") as file:
        for number, line in enumerate(file, 1):
            if not line.endswith(b"\n") or (length is not None and length < len(line)):
                return
            length = None if length is None else length - len(line)
            try:
                yield dict(json.loads(line))
            except (ValueError, TypeError, RecursionError):
                raise UserError(f"{path}:{number}: is damaged; {remedy}") from None
