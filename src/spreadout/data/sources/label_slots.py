"""Which labels each instance of a made-up set has, so that every label gets its exact number.

A training part has as many slots as positives. Slots lie on the same line as the law's places, instance
after instance in a random order, and slots are matched with places one to one. Seven in ten go to a
place among kin: labels of the same group, next to each other in rank. The others go anywhere. So labels
of a group meet, their numbers stay exact, and nothing as large as the set is stored.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from spreadout.core import randomness
from spreadout.core.randomness import Bits, Ints
from spreadout.data.sources.label_law import LabelLaw

BLOCK = 1024  # instances, which together have just their share of labels
MOST = 256  # labels of an instance
FREE, IN = 3, 10  # so many slots of so many go anywhere, the others to kin
GROUP = 64  # labels that are kin, at least, where nothing else is said …
FOR = 8  # … up to so many labels an instance; where there are more, more are kin
AGAIN = 12  # times that a repeated label is drawn again


@dataclass(frozen=True)
class LabelSlots:
    """Labels for instances 0 … instances − 1 of the training part, and for any of other parts."""

    classes: int
    instances: int  # of the training part
    mean: float  # labels an instance
    exponent: float
    head: float
    least: float
    seed: int
    sizes: tuple[float, ...] = ()  # shares of instances with 1, 2, … labels; none: a geometric law
    kin: int = GROUP  # labels that are kin, at least

    @cached_property
    def pattern(self) -> Ints:
        """(BLOCK,) how many labels the instances of a block have: quantiles of their law, shuffled."""
        more, most = self.mean - 1, min(MOST, self.classes)
        share = (np.arange(BLOCK) + 0.5) / BLOCK
        further: npt.NDArray[np.float64]
        if self.sizes:
            wholes = np.searchsorted(np.cumsum(self.sizes) / sum(self.sizes), share)
            further = wholes.astype(np.float64)
        elif more:
            further = np.floor(np.log1p(-share) / np.log(more / (1 + more)))
        else:
            further = np.zeros(BLOCK)
        counts = 1 + np.minimum(further, most - 1).astype(np.int64)
        missing = round(self.mean * BLOCK) - int(counts.sum())
        while missing:  # what cutting and rounding took
            room = np.flatnonzero(counts < most if missing > 0 else counts > 1)
            some = room[np.linspace(0, len(room) - 1, min(abs(missing), len(room))).astype(np.int64)]
            counts[some] += np.sign(missing)
            missing = round(self.mean * BLOCK) - int(counts.sum())
        order = np.argsort(randomness.bits(self._key("pattern"), np.arange(BLOCK)), kind="stable")
        return counts[order]

    @cached_property
    def _sums(self) -> Ints:
        """Sums of the pattern from its start, twice around: a block may begin anywhere in it."""
        return np.concatenate([[0], np.cumsum(np.tile(self.pattern, 2))])

    def _key(self, purpose: str) -> int:
        return randomness.key(self.seed, "label slots", purpose)

    def _lengths(self, instance: Ints) -> tuple[Ints, Ints]:
        """How many slots each instance has, and how many lie before its first."""
        block, place = instance // BLOCK, instance % BLOCK
        turn = (randomness.bits(self._key("turn"), block) % np.uint64(BLOCK)).astype(np.int64)
        before = block * int(self._sums[BLOCK]) + self._sums[place + turn] - self._sums[turn]
        return self.pattern[(place + turn) % BLOCK], before

    @cached_property
    def law(self) -> LabelLaw:
        last, before = self._lengths(np.array([self.instances - 1]))
        positives = int(last[0] + before[0])
        return LabelLaw(self.classes, positives, self.exponent, self.head, self.least)

    @cached_property
    def group(self) -> int:
        return min(self.classes, max(self.kin, self.kin * round(self.mean) // FOR))

    def training(self, number: Ints) -> tuple[Ints, Ints]:
        """Pairs of an instance, by its place in `number`, and a label; some may be repeated."""
        order = randomness.permute(number, self.instances, np.asarray(self._key("order"), np.uint64))
        length, before = self._lengths(order)
        owner, slot = slots(length)
        at = before[owner] + slot  # (s,) slots on the line
        kin = at % IN >= FREE
        place = np.empty_like(at)
        first, count = self._kin_of(at[kin])  # kin places of its group, numbered among kin places
        keys = randomness.bits(self._key("kin"), first)
        place[kin] = _kin_place(first + randomness.permute(_kin_before(at[kin]) - first, count, keys))
        free = self.law.positives - int(_kin_before(np.asarray(self.law.positives)))
        where = at[~kin] - _kin_before(at[~kin])
        mixed = randomness.permute(where, free, np.asarray(self._key("free"), np.uint64))
        place[~kin] = mixed // FREE * IN + mixed % FREE
        return owner, self.law.label_at(place)

    def others(self, part: str, number: Ints) -> tuple[Ints, Ints]:
        """The same for a part whose labels are drawn by chance, from the training part's law."""
        key = randomness.key(self.seed, "label slots", "part", part)
        turn = randomness.bits(key, number, 0) % np.uint64(BLOCK)
        owner, slot = slots(self.pattern[turn.astype(np.int64)])
        home = _below(randomness.bits(key, number, 1), self.law.positives)
        low, high = self._group_of(home[owner])
        draw = randomness.bits(key, number[owner], 2 + slot)
        kin = randomness.bits(key, number[owner], 2 + slot, 0) % np.uint64(IN) >= np.uint64(FREE)
        near, anywhere = low + _below(draw, high - low), _below(draw, self.law.positives)
        return owner, self.law.label_at(np.where(kin, near, anywhere))

    def distinct(self, part: str, number: Ints, owner: Ints, label: Ints) -> tuple[Ints, Ints]:
        """Pairs by owner and label; one that repeats another is drawn again, from the whole law."""
        key = randomness.key(self.seed, "label slots", "again", part)
        for turn in range(AGAIN):
            pairs = np.sort(owner * self.classes + label)
            repeated = np.flatnonzero(pairs[1:] == pairs[:-1]) + 1
            if not len(repeated):
                break
            whose = pairs[repeated] // self.classes
            # Which of an instance's repeated pairs it is: a chunk must not depend on how it is cut.
            rank = np.arange(len(whose)) - np.searchsorted(whose, whose)
            draw = randomness.bits(key, number[whose], turn * MOST + rank)
            new = whose * self.classes + self.law.label_at(_below(draw, self.law.positives))
            pairs[repeated] = new
            owner, label = pairs // self.classes, pairs % self.classes
        pairs = np.unique(owner * self.classes + label)
        return pairs // self.classes, pairs % self.classes

    def _group_of(self, place: Ints) -> tuple[Ints, Ints]:
        """The run of places of the labels that are kin to a place's label."""
        group = self.law.label_at(place) // self.group
        low = self.law.before(group * self.group)
        return low, self.law.before(np.minimum((group + 1) * self.group, self.classes))

    def _kin_of(self, place: Ints) -> tuple[Ints, Ints]:
        """The kin places among them: the number of the first, and how many."""
        low, high = self._group_of(place)
        first = _kin_before(low)
        return first, _kin_before(high) - first


def slots(counts: Ints) -> tuple[Ints, Ints]:
    """For lists of these lengths: whose each entry is, and its place in the list."""
    owner = np.repeat(np.arange(len(counts)), counts)
    return owner, np.arange(len(owner)) - np.repeat(np.cumsum(counts) - counts, counts)


def _kin_before(place: Ints) -> Ints:
    """How many kin places lie before a place."""
    return np.asarray(place // IN * (IN - FREE) + np.maximum(place % IN - FREE, 0))


def _kin_place(number: Ints) -> Ints:
    """Where the kin place with this number lies."""
    return number // (IN - FREE) * IN + FREE + number % (IN - FREE)


def _below(bits: Bits, n: Ints | int) -> Ints:
    """A number of [0, n) by random bits."""
    share = (bits >> np.uint64(11)).astype(np.float64) * 2.0**-53
    return np.asarray(np.minimum((share * n).astype(np.int64), np.asarray(n) - 1))
