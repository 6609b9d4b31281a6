"""Histories of items as people write them down: one a line."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

from spreadout.core.errors import UserError


def parse_histories(text: str, origin: str) -> Iterator[list[str]]:
    """One history a line: a JSON list, or items with tabs between them, or ids with commas or spaces."""
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        if re.fullmatch(r"\s*\[.*\]\s*", line):
            try:
                items = json.loads(line)
                if not all(isinstance(item, str | int) and item is not True for item in items):
                    raise ValueError("items are strings or whole numbers")
            except ValueError as error:
                raise UserError(f"{origin}:{number}: not a JSON list of items ({error})") from None
            yield [str(item) for item in items]
        elif "\t" in line:
            yield [item for item in line.split("\t") if item.strip()]
        elif re.fullmatch(r"[\d,;\s]+", line):
            yield re.findall(r"\d+", line)
        else:
            yield [line.strip()]
