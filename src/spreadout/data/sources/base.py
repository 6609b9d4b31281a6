"""What every source returns: labelled instances, and the publisher's test split where there is one."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from spreadout.errors import UserError
from spreadout.ragged import Ragged


@dataclass(frozen=True)
class Labelled:
    """Instances with their label sets. `test` is the published test part; None: cut one off."""

    x: Tensor  # (n, …)
    labels: Ragged  # n label sets
    classes: int
    test: tuple[Tensor, Ragged] | None = None
    client: Tensor | None = None  # (n,) who holds each instance, where the source knows


def single(label: Tensor) -> Ragged:
    """One label per instance as label sets."""
    return Ragged(torch.arange(len(label) + 1), label)


def data_file(source: str, path: Path | None, default: str) -> Path:
    """Where a source's file or folder lies: the given path, or its usual place in SPREADOUT_DATA."""
    if path is None:
        home = os.environ.get("SPREADOUT_DATA")
        if not home:
            raise UserError(
                f"data.source = {source!r}: set data.path, or SPREADOUT_DATA to a folder that "
                f"holds {default}"
            )
        path = Path(home) / default
    if not path.exists():
        raise UserError(f"data.source = {source!r}: {path} is not there")
    return path
