"""The count sketch (Charikar, Chen and Farach-Colton 2002; FedMLH, Algorithm 1)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from spreadout.core.hashing import HashFamily, signs


@dataclass(frozen=True)
class CountSketch:
    """A long vector kept in K tables of R buckets: large entries can be read back.

    Sketches made with one seed add up: the sum of their cells is the sketch of the sum.

    >>> import torch
    >>> import spreadout as so
    >>> sketch = so.CountSketch.empty(tables=5, buckets=64, seed=0)
    >>> sketch.add_(torch.tensor([7, 900_000]), torch.tensor([3.0, 1.0]))
    >>> sketch.estimate(torch.tensor([7]))
    tensor([3.])
    """

    cells: Tensor  # (K, R)
    places: HashFamily
    side: HashFamily  # two buckets: the sign each entry is added with

    @classmethod
    def empty(cls, tables: int, buckets: int, *, seed: int) -> CountSketch:
        """A vector of zeros."""
        if tables < 1 or buckets < 1:
            raise ValueError(f"{tables} tables of {buckets} buckets: at least one of each is needed")
        places = HashFamily.drawn(tables, buckets, seed=seed, use="sketch places")
        side = HashFamily.drawn(tables, 2, seed=seed, use="sketch signs")
        return cls(torch.zeros(tables, buckets), places, side)

    def add_(self, ids: Tensor, values: Tensor) -> None:
        """Lines 3 to 5: add values at these places of the vector."""
        _check(ids)
        signed = signs(self.side, ids) * values  # (K, n)
        self.cells.scatter_add_(1, self.places(ids), signed.to(self.cells.dtype))

    def estimate(self, ids: Tensor, how: Literal["median", "mean"] = "median") -> Tensor:
        """Line 6: what the vector has at these places."""
        if how not in ("median", "mean"):
            raise ValueError(f"how = {how!r}: unknown; known: median, mean")
        _check(ids)
        read = self.cells.gather(1, self.places(ids)) * signs(self.side, ids)  # (K, n)
        # torch's median takes the lower of two middle values; the mean of both has no bias.
        return read.quantile(0.5, 0) if how == "median" else read.mean(0)


def _check(ids: Tensor) -> None:
    if ids.is_floating_point() or bool((ids < 0).any()):
        raise ValueError("ids: are places of a vector, whole numbers from 0 on")
