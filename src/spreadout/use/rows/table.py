"""A table as row servers know it: its form, and a version that follows from every byte of it."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spreadout.privacy.retrieval import Layout

Table = NDArray[np.generic]  # (rows, width)
NUMBERS = {"float16": 2, "float32": 4, "float64": 8}  # bytes of one
MOST_ROWS, MOST_WIDTH = 2**31, 2**20
VERSION = 64  # letters of it


@dataclass(frozen=True)
class Form:
    """So many rows of so many numbers."""

    rows: int
    width: int
    dtype: str

    @classmethod
    def of(cls, table: Table) -> Form:
        rows, width = table.shape
        return cls.read({"rows": rows, "width": width, "dtype": str(table.dtype)})

    @classmethod
    def read(cls, said: Mapping[str, Any]) -> Form:
        """As somebody says it, in numbers or in digits. ValueError: it is none."""
        rows, width = (_whole(said.get(name)) for name in ("rows", "width"))
        dtype = said.get("dtype")
        if not 1 <= rows <= MOST_ROWS or not 1 <= width <= MOST_WIDTH or dtype not in NUMBERS:
            raise ValueError("a table has rows, a width, and numbers of " + ", ".join(NUMBERS))
        return cls(rows, width, str(dtype))

    @property
    def row_bytes(self) -> int:
        return self.width * NUMBERS[self.dtype]

    @property
    def nbytes(self) -> int:
        return self.rows * self.row_bytes

    @property
    def layout(self) -> Layout:
        """How it is cut into blocks: the same for both servers and all clients."""
        return Layout.balanced(self.rows, self.row_bytes)

    def version(self, data: bytes | memoryview) -> str:
        """What a table with these bytes is known by; two that differ have two."""
        found = hashlib.sha256(f"{self.rows} {self.width} {self.dtype}\n".encode())
        found.update(data)
        return found.hexdigest()

    def table(self, data: bytes) -> Table:
        return np.frombuffer(data, self.dtype).reshape(self.rows, self.width)


def bytes_of(table: Table) -> memoryview:
    """All of it, row after row."""
    return np.ascontiguousarray(table).reshape(-1).view(np.uint8).data


def signature(key: bytes, form: Form, version: str) -> str:
    """What whoever hands over a table shows, before a byte of it is read."""
    text = f"spreadout table {form.rows} {form.width} {form.dtype} {version}"
    return hmac.digest(key, text.encode(), "sha256").hex()


def _whole(value: object) -> int:
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 12:
        return int(value)
    return value if type(value) is int else -1
