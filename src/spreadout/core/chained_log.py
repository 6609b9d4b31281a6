"""A log of which every line carries a digest of itself and of all lines before it.

So a line that was changed, left out or put elsewhere by accident is noticed; only the end can be cut
off. The digest has no key: whoever may write the file can write another one that is whole.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from spreadout.core.checksums import CHECK, sha256
from spreadout.core.errors import UserError
from spreadout.core.files import append, as_json, cut
from spreadout.core.written import Written, as_written

REMEDY = "restore it from a copy"


class ChainedLog:
    """Records of plain JSON values, one a line."""

    def __init__(self, path: Path, line: type[Written] = Written, *, sync: bool = False) -> None:
        """line: what every record has. sync: whether one lasts through a power cut once appended."""
        self.path, self.line, self.sync = path, line, sync
        self._last = ""

    def append(self, record: Mapping[str, Any]) -> None:
        self._last = self._next(record)
        append(self.path, (as_json({**record, CHECK: self._last}) + "\n").encode(), sync=self.sync)

    def read(self) -> list[dict[str, Any]]:
        """All that is in it, to be gone on with; a last line cut short by a crash is taken off."""
        lines = self.path.read_bytes().split(b"\n") if self.path.is_file() else [b""]
        records, self._last = [], ""
        for number, line in enumerate(lines[:-1], 1):
            try:
                record = dict(json.loads(line))
                self._last, found = self._next(record), record.pop(CHECK, None)
            except (ValueError, TypeError, RecursionError):
                found = None
            if found is None or found != self._last:
                raise UserError(f"{self.path}:{number}: is damaged or was changed; {REMEDY}")
            records.append(as_written(self.line, record, f"{self.path}:{number}", REMEDY))
        if lines[-1]:
            cut(self.path, sum(len(line) + 1 for line in lines[:-1]))
        return records

    def _next(self, record: Mapping[str, Any]) -> str:
        """The digest of a record that comes after those so far."""
        plain = {key: value for key, value in record.items() if key != CHECK}
        return sha256((self._last + as_json(plain)).encode())[:16]
