"""Corruption of inputs during local training, as a value of (seed, round, client, step, slot).

Gaussian noise and inverted dropout on the input columns, images shifted and mirrored: with few examples
of few classes on a client they are the cheapest regulariser there is. Drawn on the device that trains,
from counters, so that a stack of clients and a single one see the same corruption.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from spreadout.core import randomness
from spreadout.core.randomness import Ints


@dataclass(frozen=True)
class Augment:
    """What happens to inputs before a client trains on them."""

    noise: float = 0.0  # deviation of the Gaussian noise added
    dropout: float = 0.0  # share of input values set to 0, the rest scaled up
    to_missing: bool = False  # … or made NaN and the rest left alone: the encoder fills in the mean
    shift: int = 0  # images move by at most this many pixels each way; the edge is repeated
    flip: bool = False  # half of the images are mirrored, at random

    def __bool__(self) -> bool:
        return self.noise > 0 or self.dropout > 0 or self.shift > 0 or self.flip

    def __call__(self, x: Tensor, clients: Ints, *, seed: int, round: int) -> Tensor:
        """Corrupt the batches (k, S, B, …) of a cohort."""
        slots = _slot_bits(x.shape[:3], clients, seed, round).to(x.device)  # (k, S, B)
        width = x.shape[3:].numel()
        if self.shift or self.flip:
            x = self._moved(x, slots)
        if self.dropout:
            x = self._dropped(x, slots)
        if self.noise:
            x = x + self.noise * randomness.normal_on(slots, width).view(x.shape)
        return x

    def _dropped(self, x: Tensor, slots: Tensor) -> Tensor:
        """A CPU draws for values that are not 0 alone: of words that is one in thirty."""
        width = x.shape[3:].numel()
        if x.device.type == "cpu" and not self.to_missing:
            (at,) = x.reshape(-1).nonzero(as_tuple=True)
            drawn = randomness.uniform_at(slots.reshape(-1)[at // width], at % width)
            found = torch.zeros_like(x, memory_format=torch.contiguous_format)
            found.view(-1)[at] = x.reshape(-1)[at] * (drawn >= self.dropout) / (1 - self.dropout)
            return found
        kept = (randomness.uniform_on(slots, width) >= self.dropout).view(x.shape)  # (k, S, B, …)
        return x.where(kept, torch.nan) if self.to_missing else x * kept / (1 - self.dropout)

    def _moved(self, x: Tensor, slots: Tensor) -> Tensor:
        """Shifted and mirrored images: (k, S, B, channels, height, width)."""
        draws = randomness.uniform_on(~slots, 3)  # (k, S, B, 3), apart from those of dropout
        shifts = 2 * self.shift + 1
        down, right = ((draws[..., i] * shifts).long() - self.shift for i in (0, 1))
        high, wide = x.shape[-2:]
        rows = (torch.arange(high, device=x.device) + down[..., None]).clamp(0, high - 1)  # (…, H)
        columns = (torch.arange(wide, device=x.device) + right[..., None]).clamp(0, wide - 1)
        if self.flip:
            columns = torch.where(draws[..., 2:] < 0.5, columns, wide - 1 - columns)
        x = x.gather(-2, rows[..., None, :, None].expand_as(x))
        return x.gather(-1, columns[..., None, None, :].expand_as(x))


def _slot_bits(shape: Sequence[int], clients: Ints, seed: int, round: int) -> Tensor:
    """64 random bits for every batch slot of every step of every client."""
    _, steps, slots = shape
    stream = randomness.key(seed, "augment", round)
    step, slot = np.arange(steps, dtype=np.int64), np.arange(slots, dtype=np.int64)
    bits = randomness.bits(stream, clients[:, None, None], step[:, None], slot)
    return torch.from_numpy(bits.view(np.int64))
