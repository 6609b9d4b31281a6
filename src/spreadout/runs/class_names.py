"""Classes as people call them: by the id or the name that a run's data has for them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from spreadout.core.errors import UserError


@dataclass(frozen=True)
class ClassNames:
    """Ids and names by table row; rows below `first` are no class."""

    ids: Sequence[str]
    names: Sequence[str]
    first: int
    count: int  # of table rows

    def called(self, row: int) -> tuple[str, str]:
        """Id and name of a row; where the data has none, its number."""
        known = str(self.ids[row]) if row < len(self.ids) else str(row)
        return known, str(self.names[row]) if row < len(self.names) else known

    def rows_of(self, history: Sequence[str]) -> list[int]:
        """The rows of the items in a history."""
        return [self.row_of(item) for item in self._items(history)]

    def _items(self, history: Sequence[str]) -> Sequence[str]:
        """A line that is no title may be ids with commas or spaces between them."""
        if len(history) == 1 and history[0].strip().casefold() not in self._by_name:
            pieces = re.split(r"[,;\s]+", history[0].strip())
            if all(piece in self._by_id for piece in pieces):
                return pieces
        return history

    def row_of(self, item: str) -> int:
        """The table row of an item given by its id, its title, or a part of one title only."""
        key = item.strip()
        if key in self._by_id:
            return self._by_id[key]
        named = self._by_name.get(key.casefold(), [])
        if not named and not key.isdigit():  # a number is an id, known or not
            named = [
                row for name, rows in self._by_name.items() if key.casefold() in name for row in rows
            ]
        if len(named) == 1:
            return named[0]
        known = ", ".join(f"{self.names[row]!r} (id {self.called(row)[0]})" for row in named[:3])
        if named:
            raise UserError(f"item {key!r}: may be {known}{' and others' * (len(named) > 3)}; say which")
        raise UserError(
            f"item {key!r}: no such id or title; write items with tabs between them, or JSON lists"
        )

    @cached_property
    def _by_id(self) -> dict[str, int]:
        ids = self.ids or [str(row) for row in range(self.count)]
        return {name: row for row, name in enumerate(ids) if row >= self.first and name}

    @cached_property
    def _by_name(self) -> dict[str, list[int]]:
        found: dict[str, list[int]] = {}
        for row, name in enumerate(self.names):
            if row >= self.first and name:
                found.setdefault(name.casefold(), []).append(row)
        return found
