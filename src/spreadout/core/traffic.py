"""Bytes that cross between server and clients, measured on the tensors that travel.

Counted: every element of every tensor, row ids included. Not counted: the envelope of whatever
protocol carries them.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Traffic:
    """Bytes by direction and kind, and how many times a client took part.

    >>> import spreadout as so
    >>> both = so.Traffic(dense_down=100, rows_up=8) + so.Traffic(rows_down=20)
    >>> both.down, both.up
    (120, 8)
    """

    dense_down: int = 0
    rows_down: int = 0
    requests_up: int = 0
    dense_up: int = 0
    rows_up: int = 0
    participations: int = 0
    once_down: int = 0  # before the first round
    once_up: int = 0

    def __add__(self, other: Traffic) -> Traffic:
        return Traffic(*(a + b for a, b in zip(vars(self).values(), vars(other).values(), strict=True)))

    @property
    def down(self) -> int:
        return self.dense_down + self.rows_down + self.once_down

    @property
    def up(self) -> int:
        return self.requests_up + self.dense_up + self.rows_up + self.once_up


def human_bytes(count: float) -> str:
    """As people read it.

    >>> human_bytes(1234567)
    '1.18 MiB'
    """
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.2f} {unit}"
        count /= 1024
    return f"{count:.2f} TiB"
