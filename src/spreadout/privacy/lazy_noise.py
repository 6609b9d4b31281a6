"""Noise on every row of a table, drawn when a row is next read.

The server owes every row a Gaussian number in every round, whoever was there: rows without noise would
tell that nobody trained them. Numbers that nobody reads need not be drawn one by one: what a row was
not given since it was last read is one Gaussian of the summed variance. The sum of the variances of
all rounds is one number for the table (`owed`), and each row notes how much of it it has (`paid`).

A row on the sphere has a length that nobody sees. Update and noise add to length · direction, and
readers get the direction. So noise adds up to a Gaussian there too, whenever it is drawn; if each round
had put the row back onto the sphere, it would not.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from spreadout.core.rows import project_to_sphere
from spreadout.core.types import Tensors

Draw = Callable[[Tensor, int], Tensor]  # (ids (m,), width) → (m, width) standard normal


@dataclass
class OwedNoise:
    """What the rows of one table are owed, in place: `values` are the server's own rows."""

    values: Tensor  # (C, d)
    owed: Tensor  # () float64: variance of all rounds
    paid: Tensor  # (C,) float64: how much of it each row has
    length: Tensor | None  # (C,) of rows on the sphere, before they are put there

    @classmethod
    def of(cls, values: Tensor, kept: Tensors, table: str, *, sphere: bool) -> OwedNoise:
        """That of a table, made at first use; kept: where it is kept from round to round."""
        if f"owed/{table}" not in kept:
            kept[f"owed/{table}"] = torch.zeros((), dtype=torch.float64, device=values.device)
            kept[f"paid/{table}"] = torch.zeros(len(values), dtype=torch.float64, device=values.device)
            if sphere:
                kept[f"length/{table}"] = values.norm(dim=-1)
        names = ("owed", "paid", "length")
        owed, paid, length = (kept.get(f"{name}/{table}") for name in names)
        assert owed is not None
        assert paid is not None
        return cls(values, owed, paid, length)

    @property
    def every(self) -> Tensor:
        return torch.arange(len(self.values), device=self.values.device)

    def raw(self, ids: Tensor) -> Tensor:
        """Rows as they add up: length · direction."""
        rows = self.values[ids]
        return rows if self.length is None else rows * self.length[ids, None]

    def set_(self, ids: Tensor, raw: Tensor) -> None:
        if self.length is not None:
            self.length[ids] = raw.norm(dim=-1)
            raw = project_to_sphere(raw)
        self.values[ids] = raw

    def owe_(self, deviation: float) -> None:
        """One more round of noise for every row."""
        self.owed += deviation**2

    def settle_(self, ids: Tensor, draw: Draw) -> None:
        """Give these rows, each named once, all they are owed."""
        due = self.owed - self.paid[ids]  # (m,)
        ids, due = ids[due > 0], due[due > 0]
        if len(ids):
            deviation = due.sqrt().to(self.values.dtype)
            self.set_(ids, self.raw(ids) + deviation[:, None] * draw(ids, self.values.shape[-1]))
            self.paid[ids] = self.owed
