"""Rows from two servers of which neither learns which: retrieval by exclusive or (Chor et al. 1995).

Both servers hold the same table. For every row it wants a client draws a random set of the table's
blocks, sends it to one server, and to the other the same set with one block more or less: the one that
holds the row. Each server answers with the exclusive or of the blocks in its set; the two answers
differ by the wanted block. What one server sees is a set drawn evenly from all sets, whatever the row:
no assumption about what anybody can compute, but that the two servers do not talk to each other.

A block is of several rows, so that queries (a bit a block) and answers (a block) are equally long: both
grow with the root of the table. How many rows are wanted, both servers see. A server that answers
wrongly gives a wrong row, and is not noticed.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from spreadout.privacy.discrete_gaussian import Words

Bytes = NDArray[np.uint8]
Ints = NDArray[np.int64]
WORD = 8  # bytes that are combined at once
PIECE = 1 << 19  # bytes of the table that all queries of a request go through at a time


@dataclass(frozen=True)
class Layout:
    """A table of so many rows of so many bytes, cut into blocks of neighbouring rows."""

    rows: int
    row_bytes: int
    group: int  # rows of a block

    @classmethod
    def balanced(cls, rows: int, row_bytes: int) -> Layout:
        """Blocks for which a query and its answer together are shortest: n/8g + g·r, g = √(n/8r)."""
        return cls(rows, row_bytes, max(1, round(math.sqrt(rows / (8 * row_bytes)))))

    @property
    def blocks(self) -> int:
        return -(-self.rows // self.group)

    @property
    def query_bytes(self) -> int:
        """Of one row's query to one server."""
        return -(-self.blocks // 8)

    @property
    def answer_bytes(self) -> int:
        return self.group * self.row_bytes


def queries(layout: Layout, rows: Ints, words: Words) -> tuple[Bytes, Bytes]:
    """What the two servers are sent for these rows: (m, query_bytes) each, a bit a block.

    words: fresh randomness, which the client keeps to itself.
    """
    if len(rows) and not 0 <= int(rows.min()) <= int(rows.max()) < layout.rows:
        raise ValueError(f"rows beyond the {layout.rows} there are")
    shape = len(rows), layout.query_bytes
    one = (
        words(-(-shape[0] * shape[1] // WORD))
        .view(np.uint8)[: shape[0] * shape[1]]
        .reshape(shape)
        .copy()
    )
    one[:, -1] &= np.uint8(0xFF >> (8 * layout.query_bytes - layout.blocks))  # no bits beyond the blocks
    other, block = one.copy(), rows // layout.group
    other[np.arange(len(rows)), block // 8] ^= (1 << (block % 8)).astype(np.uint8)
    return one, other


class RowServer:
    """One of the two: the table as blocks of bytes, and nothing about who wants what."""

    def __init__(self, table: NDArray[np.generic], layout: Layout) -> None:
        """table: (rows, …) of any type, row_bytes each."""
        flat = np.ascontiguousarray(table).reshape(len(table), -1).view(np.uint8)
        if flat.shape != (layout.rows, layout.row_bytes):
            raise ValueError(f"a table of {flat.shape}, not {(layout.rows, layout.row_bytes)} bytes")
        padded = np.zeros((layout.blocks * layout.group, layout.row_bytes), np.uint8)
        padded[: layout.rows] = flat
        blocks = padded.reshape(layout.blocks, layout.answer_bytes)
        if spare := -layout.answer_bytes % WORD:
            blocks = np.pad(blocks, ((0, 0), (0, spare)))
        self.layout, self._blocks = layout, blocks.view(np.uint64)

    def answers(self, asked: Bytes) -> Bytes:
        """The exclusive or of the blocks of each query: (m, query_bytes) → (m, answer_bytes)."""
        if asked.dtype != np.uint8 or asked.ndim != 2 or asked.shape[1] != self.layout.query_bytes:
            raise ValueError("a query of another layout")
        found = np.zeros((len(asked), self._blocks.shape[1]), np.uint64)
        step = max(1, PIECE // (8 * self._blocks[0].nbytes))  # bytes of a query, 8 blocks each
        for start in range(0, self.layout.query_bytes, step):
            piece = self._blocks[8 * start : 8 * (start + step)]  # in the cache for all queries
            bits = np.unpackbits(
                asked[:, start : start + step], axis=1, count=len(piece), bitorder="little"
            )
            for i, chosen in enumerate(bits.astype(bool)):
                found[i] ^= np.bitwise_xor.reduce(piece[chosen], axis=0)
        return found.view(np.uint8)[:, : self.layout.answer_bytes]


def retrieved(layout: Layout, rows: Ints, one: Bytes, other: Bytes) -> Bytes:
    """The rows out of the two servers' answers: (m, row_bytes)."""
    shape = len(rows), layout.group, layout.row_bytes
    if one.shape != (shape[0], layout.answer_bytes) or other.shape != one.shape:
        raise ValueError("answers of another layout")
    found: Bytes = (one ^ other).reshape(shape)[np.arange(len(rows)), rows % layout.group]
    return found
