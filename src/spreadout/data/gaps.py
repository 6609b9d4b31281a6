"""Attributes that some rows have no value of, until it is known which rows train: these fill them.

A gap is a NaN in the first column of its attribute. Numbers become the mean of the training rows that
have one, a nominal attribute the value that most of them have.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import torch
from torch import Tensor

from spreadout.core.ragged import offsets_from_lengths
from spreadout.data.columns import Sparse


@dataclass(frozen=True)
class Gappy:
    """An attribute with gaps: which columns it has, and whether they are indicators of its values.

    Indicators are of all values but the first; a row without any has that one.
    """

    first: int
    width: int
    nominal: bool

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def usual(train: Sparse, attributes: Sequence[Gappy]) -> list[tuple[int, float]]:
    """What fills the gaps of each: a column, and what stands there.

    0 is the first value of a nominal one.
    """
    own = train.compact()
    gap = own.weights.isnan()
    gaps = torch.bincount(own.ids[gap].long(), minlength=own.width).tolist()
    there, values = own.ids[~gap].long(), own.weights[~gap].double()
    sums = torch.bincount(there, weights=values, minlength=own.width)
    found = []
    for one in attributes:
        rows = own.count - gaps[one.first]  # a row that leaves the attribute out has a 0 there
        if not one.nominal:
            found.append((one.first, float(sums[one.first]) / max(rows, 1)))
            continue
        held = sums[one.first : one.first + one.width]
        most = int(torch.cat([rows - held.sum()[None], held]).argmax())
        found.append((one.first + max(most - 1, 0), float(most > 0)))
    return found


def filled(part: Sparse, attributes: Sequence[Gappy], by: Sequence[tuple[int, float]]) -> Sparse:
    """Rows without gaps."""
    own = part.compact()
    ids, weights = own.ids.clone(), own.weights.clone()
    gap = weights.isnan()
    place, value = torch.zeros(own.width, dtype=ids.dtype), torch.zeros(own.width)
    for one, (column, weight) in zip(attributes, by, strict=True):
        place[one.first], value[one.first] = column, weight
    at = ids[gap].long()
    ids[gap], weights[gap] = place[at], value[at].to(weights.dtype)
    kept = ~gap | (weights != 0)
    return replace(
        own, ids=ids[kept], weights=weights[kept], offsets=offsets_from_lengths(_per_row(own, kept))
    )


def _per_row(x: Sparse, kept: Tensor) -> Tensor:
    """How many entries of each row are kept."""
    row = torch.repeat_interleave(torch.arange(x.count), x.offsets.diff())
    return torch.bincount(row[kept], minlength=x.count)
