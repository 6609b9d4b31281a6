"""Whether what is read is what was written: digests of files, and JSON files that carry their own."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from spreadout.core.files import as_json, write_json

PIECE = 1 << 20
CHECK = "check"  # the key of a sealed record that has the digest of all others


def sha256(payload: bytes) -> str:
    return hashlib.sha256(payload).hexdigest()


def digest_of(path: Path, length: int | None = None) -> str:
    """The SHA-256 of a file, or of its first bytes."""
    with open(path, "rb") as file:
        if length is None:
            return hashlib.file_digest(file, "sha256").hexdigest()
        digest, left = hashlib.sha256(), length
        while left and (piece := file.read(min(left, PIECE))):
            digest.update(piece)
            left -= len(piece)
    return digest.hexdigest()


def sealed(record: Mapping[str, Any]) -> dict[str, Any]:
    """A record as JSON has it, with a digest of itself.

    >>> unsealed(sealed({"round": 3}))
    {'round': 3}
    >>> unsealed({**sealed({"round": 3}), "round": 4})
    Traceback (most recent call last):
    ValueError: its checksum does not match
    """
    plain: dict[str, Any] = json.loads(as_json(record))
    return {**plain, CHECK: _digest(plain)}


def unsealed(record: Any) -> dict[str, Any]:
    """The record in it, if it is the one that was sealed; ValueError if not."""
    if not isinstance(record, dict):
        raise ValueError("it is no JSON object")
    inner = {key: value for key, value in record.items() if key != CHECK}
    if record.get(CHECK) != _digest(inner):
        raise ValueError("its checksum does not match")
    return inner


def write_sealed(path: Path, record: Mapping[str, Any]) -> None:
    write_json(path, sealed(record))


def read_json(path: Path) -> Any:
    """What a JSON file holds; ValueError, whatever is wrong with it."""
    try:
        return json.loads(path.read_bytes())
    except RecursionError:
        raise ValueError("it is nested too deep") from None


def _digest(plain: Mapping[str, Any]) -> str:
    return sha256(json.dumps(plain).encode())
