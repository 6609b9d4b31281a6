"""A few letters that tell data from other data, so that no run goes on with the wrong ones."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping

import torch
from torch import Tensor

from spreadout.data.columns import Column, Lists

BLOCK = 1 << 20  # examples looked at in one go
SOME = 64  # examples of columns that are not looked at whole


def fingerprint_of(
    columns: Mapping[str, Column], offsets: Tensor, classes: int, whole: Collection[str]
) -> str:
    """Changes with the number of examples, who holds them, or anything in the columns named in `whole`.

    Of the others some examples are looked at, spread over all.
    """
    examples = int(offsets[-1])
    digest = hashlib.sha256(f"{examples} {classes}".encode())
    digest.update(offsets.numpy().tobytes())
    spread = torch.arange(min(SOME, examples)) * max(examples // SOME, 1)
    for name, column in sorted(columns.items()):
        starts = range(0, examples, BLOCK) if name in whole else []
        parts = [torch.arange(start, min(start + BLOCK, examples)) for start in starts]
        for at in parts or [spread]:
            for tensor in _own_tensors(column, at):
                digest.update(tensor.cpu().numpy().tobytes())
    return digest.hexdigest()[:16]


def fingerprint_of_form(columns: Mapping[str, Column], clients: int, classes: int) -> str:
    """Changes with what everybody may know of private data: clients, classes, and the form of inputs."""
    forms = [
        (name, type(column).__name__, None if isinstance(column, Lists) else column.example_bytes)
        for name, column in sorted(columns.items())
    ]
    return hashlib.sha256(repr((clients, classes, forms)).encode()).hexdigest()[:16]


def _own_tensors(column: Column, at: Tensor) -> list[Tensor]:
    """What some examples hold, without the padding a gather would add."""
    if isinstance(column, Lists):
        lists = column.ragged(at)
        return [lists.lengths, lists.values]
    own = column.select(at).compact()
    return [tensor for _, tensor in sorted(own.tensors().items())]
