"""Lists of different lengths in two flat tensors: rows that clients request, label sets."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from spreadout.core.sorting import distinct


@dataclass(frozen=True)
class Ragged:
    """List `i` is `values[offsets[i]:offsets[i + 1]]` (compressed sparse rows without weights).

    >>> import spreadout as so
    >>> lists = so.Ragged.from_lists([[3, 5], [], [8]])
    >>> lists.offsets.tolist(), lists.values.tolist(), lists[0].tolist()
    ([0, 2, 2, 3], [3, 5, 8], [3, 5])
    """

    offsets: Tensor  # (n + 1,) int64, non-decreasing, starting at 0
    values: Tensor  # (offsets[-1],) int64, maybe on a device while offsets are on the host
    shared: Tensor | None = None  # the one list that all of them are, where they are all the same

    def __len__(self) -> int:
        return self.offsets.numel() - 1

    def __getitem__(self, i: int) -> Tensor:
        return self.values[int(self.offsets[i]) : int(self.offsets[i + 1])]

    @property
    def lengths(self) -> Tensor:
        return self.offsets.diff()  # (n,)

    @classmethod
    def from_lists(cls, lists: Iterable[Sequence[int] | Tensor]) -> Ragged:
        parts = [torch.as_tensor(part, dtype=torch.int64).reshape(-1) for part in lists]
        lengths = torch.tensor([part.numel() for part in parts], dtype=torch.int64)
        values = torch.cat(parts) if parts else torch.empty(0, dtype=torch.int64)
        return cls(offsets_from_lengths(lengths), values)

    @classmethod
    def from_pairs(cls, owner: Tensor, value: Tensor, n: int) -> Ragged:
        """One list per owner in [0, n): its distinct values, ascending."""
        if value.numel() == 0:
            return cls(torch.zeros(n + 1, dtype=torch.int64), value.to(torch.int64))
        width = int(value.max()) + 1
        pairs = distinct(owner.to(torch.int64) * width + value)  # by owner, then value
        lengths = torch.bincount(pairs // width, minlength=n)
        return cls(offsets_from_lengths(lengths), pairs % width)

    @classmethod
    def concatenated(cls, parts: Sequence[Ragged]) -> Ragged:
        """The lists of one part after those of another."""
        lengths = torch.cat([part.lengths for part in parts])
        return cls(offsets_from_lengths(lengths), torch.cat([part.values for part in parts]))

    @classmethod
    def repeated(cls, values: Tensor, n: int) -> Ragged:
        """The same list n times."""
        return cls(torch.arange(n + 1) * len(values), values.repeat(n), values)

    def select(self, rows: Tensor) -> Ragged:
        """The lists with these numbers, in this order."""
        if self.shared is not None:
            return Ragged.repeated(self.shared, len(rows))
        first = self.offsets[rows]
        lengths = self.offsets[rows + 1] - first
        offsets = offsets_from_lengths(lengths)
        device, total = self.values.device, int(offsets[-1])
        moved, lengths = (first - offsets[:-1]).to(device), lengths.to(device)
        at = torch.repeat_interleave(moved, lengths, output_size=total)
        return Ragged(offsets, self.values[at + torch.arange(total, device=device)])

    def on_host(self) -> Ragged:
        return replace(self, offsets=self.offsets.cpu(), values=self.values.cpu())

    def padded(self, fill: int) -> Tensor:
        """The lists side by side, short ones filled up: (n, longest)."""
        if self.shared is not None:
            return self.shared.expand(len(self), -1)
        width = int(self.lengths.max()) if len(self) else 0
        device = self.values.device
        column = torch.arange(width, device=device)  # (longest,)
        filled = column < self.lengths.to(device)[:, None]  # (n, longest)
        at = (self.offsets[:-1, None].to(device) + column).clamp_max(max(self.values.numel() - 1, 0))
        if self.values.numel() == 0:
            return torch.full((len(self), width), fill, dtype=torch.int64, device=device)
        return torch.where(filled, self.values[at], fill)


def offsets_from_lengths(lengths: Tensor) -> Tensor:
    zero = torch.zeros(1, dtype=torch.int64, device=lengths.device)
    return torch.cat([zero, lengths.to(torch.int64).cumsum(0)])


def runs(sizes: Tensor, most: int) -> list[Tensor]:
    """Positions 0 … n − 1 in runs whose sizes sum to about `most`; one run where there are none."""
    _, counts = torch.unique_consecutive(sizes.cumsum(0) // most, return_counts=True)
    return list(torch.split(torch.arange(len(sizes)), counts.tolist() or [0]))
