"""Rows `label,label feature:value feature:value` of the extreme-classification and libsvm formats."""

from __future__ import annotations

from dataclasses import dataclass
from typing import IO

import numpy as np
import torch

from spreadout.core.errors import UserError
from spreadout.core.ragged import Ragged, offsets_from_lengths
from spreadout.core.randomness import Ints
from spreadout.data.columns import Sparse
from spreadout.data.io.text import Block, blocks, cut, joined, whole

SPACE, COMMA, COLON, NEWLINE = (ord(c) for c in " ,:\n")


@dataclass(frozen=True)
class Rows:
    """Sparse rows in flat arrays: how many labels and features each row has, then all of them."""

    label_counts: Ints  # (rows,)
    labels: Ints
    feature_counts: Ints  # (rows,)
    features: Ints
    weights: np.ndarray  # float32
    line: Ints  # (rows,) line in the file


def read_rows(stream: IO[bytes], name: str, *, skip_lines: int = 0, comments: bool = False) -> Rows:
    """All rows of a stream. A row may have no label, no feature, or neither."""
    parts = [_rows(block, comments) for block in blocks(stream, name, skip_lines=skip_lines)]
    if not parts:
        parts = [_rows(Block(name, b"", skip_lines + 1), comments)]
    return joined(parts)


def _rows(block: Block, comments: bool) -> Rows:
    if b"\t" in block.text:
        block = Block(block.name, block.text.replace(b"\t", b" "), block.first_line)
    if comments and b"#" in block.text:
        lines = block.text.split(b"\n")
        text = b"\n".join(line.partition(b"#")[0] for line in lines)
        block = Block(block.name, text, block.first_line)
    tokens = cut(block, b" ,:")
    is_value = tokens.before == COLON
    is_feature = tokens.after == COLON
    first = (tokens.before == NEWLINE) | (tokens.before == COMMA)
    is_label = first & ~is_feature
    odd = is_value & (is_feature | (tokens.after == COMMA))  # 1:2:3, or 1:2,3
    odd |= is_feature & (tokens.before == COMMA)  # 3,4:5
    odd |= ~(is_value | is_feature | is_label)  # a lone number among the features
    tokens.refuse(odd, "{} is neither a label nor a feature:value pair")
    _refuse_gaps(block)
    values = tokens.numbers()
    labels = whole(tokens, values, is_label, "label")
    features = whole(tokens, values, is_feature, "feature")
    return Rows(
        np.bincount(tokens.line[is_label], minlength=tokens.lines),
        labels,
        np.bincount(tokens.line[is_feature], minlength=tokens.lines),
        features,
        values[is_value].astype(np.float32),
        block.first_line + np.arange(tokens.lines),
    )


def _refuse_gaps(block: Block) -> None:
    """Delimiters with nothing where a number must be: `1,,2`, `3: 4`, `,5`."""
    for gap in (b",,", b": ", b" :", b":\n", b"::", b"\n,", b",\n", b", ", b" ,", b"\n:"):
        at = block.text.find(gap)
        if at >= 0:
            raise block.error(at + (gap[:1] == b"\n"), "a number is missing")
    if block.text[:1] in (b",", b":"):
        raise block.error(0, "a number is missing")


def as_sparse(rows: Rows, name: str, features: int) -> Sparse:
    """The rows' features as a column, checked against the number of features there should be."""
    refuse_beyond(rows.features, rows.feature_counts, rows.line, name, "feature", features)
    offsets = offsets_from_lengths(torch.from_numpy(rows.feature_counts))
    ids = torch.from_numpy(rows.features.astype(np.int32))
    return Sparse(ids, torch.from_numpy(rows.weights), offsets, features)


def as_labels(rows: Rows) -> Ragged:
    """The rows' label sets, each ascending and without repetition."""
    owner = torch.repeat_interleave(
        torch.arange(len(rows.label_counts)), torch.from_numpy(rows.label_counts)
    )
    return Ragged.from_pairs(owner, torch.from_numpy(rows.labels), len(rows.label_counts))


def line_of(at: int, counts: Ints, line: Ints) -> int:
    """The line of the row that the at-th of all entries stands in."""
    return int(line[np.searchsorted(np.cumsum(counts), at, side="right")])


def refuse_beyond(ids: Ints, counts: Ints, line: Ints, name: str, what: str, count: int) -> None:
    """Refuse ids from `count` on; `counts` says how many of them each row has."""
    if len(ids) and ids.max() >= count:
        at = int(np.flatnonzero(ids >= count)[0])
        number = line_of(at, counts, line)
        raise UserError(f"{name}:{number}: {what} {ids[at]}, but there are {count:,} (counted from 0)")
