"""Which examples a client trains on, step by step: a pure function of (seed, round, client)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from spreadout.core import randomness
from spreadout.core.randomness import Bits, Ints

Decay = Literal["none", "linear", "cosine"]
"""How client rates fall over the rounds of a run: not at all, or to zero."""


def rate_factor(decay: Decay, round: int, rounds: int) -> float:
    """The share of its rate a client trains with in this round (the first is 0)."""
    if decay == "none":
        return 1.0
    left = 1 - round / rounds
    return left if decay == "linear" else (1 - math.cos(math.pi * left)) / 2


def warmth(rounds: int, round: int) -> float:
    """The share of their rate class rows move with while they warm up over so many first rounds.

    >>> [warmth(4, round) for round in (0, 1, 3, 9)]
    [0.25, 0.5, 1.0, 1.0]
    """
    return min(1.0, (round + 1) / rounds) if rounds else 1.0


LARGE = 1 << 16  # examples above which an order is worked out place by place, not as a whole
FEW = 4  # likewise, where there are so many times more examples than places of it that are looked at …
SMALL = 64  # … and more than these


@dataclass(frozen=True)
class Schedule:
    """How a client walks through its examples: full epochs, or a number of steps over epochs."""

    steps: int | None = None  # exactly one of steps and epochs is set
    epochs: int | None = None
    batch: int | None = 32  # None: every step sees all of the client's examples
    drop_remainder: bool = False
    max_examples: int | None = None  # a client uses at most its first so many
    shuffle: bool = True
    poisson: bool = False  # each example is in a step by itself, `batch` of them in the mean

    def usable(self, sizes: Ints) -> Ints:
        """How many of its examples each client trains on; this is its `n_i`."""
        capped = sizes if self.max_examples is None else np.minimum(sizes, self.max_examples)
        if self.drop_remainder and self.batch is not None:
            return np.asarray(capped // self.batch * self.batch, dtype=np.int64)
        return np.asarray(capped, dtype=np.int64)

    @property
    def fewest(self) -> int:
        """How few examples a client can train on."""
        return self.batch if self.drop_remainder and self.batch is not None else 1

    def steps_of(self, usable: Tensor) -> Tensor:
        """How many steps clients take that train on so many examples."""
        return torch.from_numpy(self.steps_per_client(usable.numpy()))

    def steps_per_client(self, sizes: Ints) -> Ints:
        usable = self.usable(sizes)
        wanted = self.steps if self.steps is not None else self.epochs_of(usable)
        return np.asarray(np.where(usable > 0, wanted, 0), dtype=np.int64)

    def batch_widths(self, sizes: Ints) -> Ints:
        """How many examples each client's fullest batch holds."""
        usable = self.usable(sizes)
        if self.batch is None:
            return usable
        most = self.batch + int(6 * math.sqrt(self.batch)) if self.poisson else self.batch
        return np.minimum(usable, most)

    def epochs_of(self, usable: Ints) -> Ints:
        assert self.epochs is not None
        return self.epochs * self._batches_per_epoch(usable)

    def _batches_per_epoch(self, usable: Ints) -> Ints:
        if self.batch is None:
            return np.ones_like(usable)
        return np.maximum(-(-usable // self.batch), 1)


@dataclass(frozen=True)
class Plan:
    """Positions into each client's own examples, for every step of every client."""

    index: Tensor  # (k, S, B) int64 in [0, n_i)
    mask: Tensor  # (k, S, B) float32, 1 where a batch slot is filled
    steps: Tensor  # (k,) int64, how many of the S steps each client takes; the rest are empty

    def select(self, clients: Tensor) -> Plan:
        """The plan of some of the clients, no longer and no wider than they need."""
        steps, mask = self.steps[clients], self.mask[clients]
        longest = int(steps.max()) if len(steps) else 0
        widest = int(mask.sum(-1).max()) if mask.numel() else 0
        return Plan(self.index[clients, :longest, :widest], mask[:, :longest, :widest], steps)


def plan(schedule: Schedule, sizes: Ints, clients: Ints, *, seed: int, round: int | Ints) -> Plan:
    """The cohort's plan; each client's part of it does not depend on who else is in the cohort.

    round: of all of them, or of each, so that the cohorts of several rounds can be planned as one.
    """
    if schedule.poisson:
        return _poisson_plan(schedule, sizes, clients, seed, round)
    usable = schedule.usable(sizes)
    steps = schedule.steps_per_client(sizes)
    per_epoch = schedule._batches_per_epoch(usable)
    most = int(steps.max(initial=0))
    width = int(schedule.batch_widths(sizes).max(initial=0))

    step = np.arange(most, dtype=np.int64)[None, :, None]  # (1, S, 1)
    slot = np.arange(width, dtype=np.int64)  # (B,)
    batches = per_epoch[:, None, None]
    position = step % batches * width + slot  # (k, S, B) within the epoch's order
    filled = (position < usable[:, None, None]) & (step < steps[:, None, None])
    index = np.where(filled, position, 0)
    if schedule.shuffle and schedule.batch is not None and index.size:
        needed = np.minimum(usable, steps * width)  # places of an epoch's order that are looked at
        apart = (usable > LARGE) | (usable > np.maximum(FEW * needed, SMALL))
        epochs = np.where(apart, 0, -(-steps // per_epoch))
        own = randomness.bits(randomness.streams(seed, "batches", round), clients)  # (k,)
        epoch, mixed = step // batches, np.zeros_like(index)  # (k, S, 1), (k, S, B)
        if epochs.any():
            order, start = _epoch_orders(usable, epochs, needed, own)
            at = start[:, None, None] + epoch * needed[:, None, None] + index
            mixed = order[np.where(filled & ~apart[:, None, None], at, 0)]
        if apart.any():
            some = np.flatnonzero(apart)
            keys = randomness.bits(own[some, None, None], epoch[some])
            mixed[some] = randomness.permute(index[some], usable[some, None, None], keys)
        index = np.where(filled, mixed, 0)
    mask = torch.from_numpy(filled.astype(np.float32))
    return Plan(torch.from_numpy(index), mask, torch.from_numpy(steps))


def _poisson_plan(schedule: Schedule, sizes: Ints, clients: Ints, seed: int, round: int | Ints) -> Plan:
    """Each example in each step by itself, with probability batch / n_i: some steps have none."""
    usable, steps = schedule.usable(sizes), schedule.steps_per_client(sizes)
    own = randomness.bits(randomness.streams(seed, "poisson batches", round), clients)  # (k,)
    chosen: list[Ints] = []  # of each client and step
    most = int(steps.max(initial=0))
    for i in range(len(clients)):
        n = int(usable[i])
        at = np.arange(most, dtype=np.int64)[:, None], np.arange(n, dtype=np.int64)[None]
        bits = randomness.bits(own[i], *at)  # (S, n)
        rate = 1.0 if schedule.batch is None else schedule.batch / max(n, 1)
        drawn = (bits >> np.uint64(11)) * 2.0**-53 < rate
        drawn[int(steps[i]) :] = False
        chosen += [np.flatnonzero(drawn[step]) for step in range(most)]
    width = max([len(one) for one in chosen] + [1 if most else 0])
    index = np.zeros((len(clients) * most, width), dtype=np.int64)
    mask = np.zeros(index.shape, dtype=np.float32)
    for place, one in enumerate(chosen):
        index[place, : len(one)], mask[place, : len(one)] = one, 1.0
    shape = (len(clients), most, width)
    return Plan(
        torch.from_numpy(index.reshape(shape)),
        torch.from_numpy(mask.reshape(shape)),
        torch.from_numpy(steps),
    )


def _epoch_orders(usable: Ints, epochs: Ints, needed: Ints, keys: Bits) -> tuple[Ints, Ints]:
    """A fresh order of its examples for every epoch of every client, one after another in one array.

    Of each order the first `needed` places. Returns them, and where each client's first epoch starts.
    keys: one of each client.
    """
    client = np.repeat(np.arange(len(keys)), epochs)  # of each segment: a (client, epoch)
    epoch = np.arange(client.size) - _starts(epochs)[client]
    lengths, kept = usable[client], needed[client]
    segment = np.repeat(np.arange(client.size), lengths)  # of each example
    example = np.arange(segment.size, dtype=np.int64) - _starts(lengths)[segment]
    bits = randomness.bits(randomness.bits(keys[client], epoch)[segment], example)
    # One sort by (segment, random bits): the segment's number takes the place of the topmost bits.
    room = np.uint64(max(int(lengths.size - 1).bit_length(), 1))
    sort = np.argsort(
        (segment.astype(np.uint64) << (np.uint64(64) - room)) | bits >> room, kind="stable"
    )
    rank = np.arange(segment.size) - _starts(lengths)[segment]  # the sort keeps segments where they are
    return np.asarray(example[sort][rank < kept[segment]], dtype=np.int64), _starts(needed * epochs)


def _starts(lengths: Ints) -> Ints:
    """Where each of several runs starts that follow one another."""
    return np.cumsum(lengths) - lengths
