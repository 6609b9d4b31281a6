"""How often labels occur in a made-up set: a power law above a floor, exact to one instance.

Label r of C has n(r) = least + A (r + head)^−exponent positives, and A is such that all of them are the
set's. Positives lie on a line in order of their labels, so that a place on the line names a label. A
set that takes every place once has just these counts: no label is left out by chance.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from spreadout.core.randomness import Ints

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class LabelLaw:
    """A number of positives for each label.

    >>> law = LabelLaw(classes=4, positives=20, exponent=1.0, head=1.0)
    >>> law.counts().tolist()
    [8, 5, 4, 3]
    """

    classes: int
    positives: int  # of all labels together
    exponent: float = 1.0
    head: float = 1.0  # the first labels are about as frequent as each other, so many of them
    least: float = 1.0  # that every label has

    @cached_property
    def floor(self) -> float:
        """`least`, or what there is for each label where that is less."""
        return min(self.least, self.positives / self.classes)

    @cached_property
    def scale(self) -> float:
        """A: what the floor leaves, over the integral of the power law."""
        return (self.positives - self.floor * self.classes) / float(self._integral(self.classes))

    def _integral(self, rank: Ints | int) -> Floats:
        """∫ (x + head)^−exponent over [0, rank]."""
        rest, x = 1 - self.exponent, np.asarray(rank, dtype=np.float64) + self.head
        if abs(rest) < 1e-9:
            return np.asarray(np.log(x / self.head))
        return np.asarray((x**rest - self.head**rest) / rest)

    def before(self, rank: Ints | int) -> Ints:
        """How many places of the line belong to labels before this one."""
        exact = self.floor * np.asarray(rank, dtype=np.float64) + self.scale * self._integral(rank)
        # Rounded sums, up: each label then has its expected number, rounded up or down, and never less
        # than the whole part of the floor. 1e-6: what the sums may be off by.
        return np.asarray(np.minimum(np.ceil(exact - 1e-6), self.positives), dtype=np.int64)

    def label_at(self, place: Ints) -> Ints:
        """The label that each place of [0, positives) belongs to: found by halving, with no table."""
        low = np.zeros(place.shape, dtype=np.int64)
        high = np.full(place.shape, self.classes, dtype=np.int64)
        for _ in range(int(self.classes).bit_length()):  # before(low) ≤ place < before(high)
            middle = (low + high) // 2
            right = self.before(middle) <= place
            low, high = np.where(right, middle, low), np.where(right, high, middle)
        return low

    def counts(self) -> Ints:
        """(C,) positives of every label."""
        return np.diff(self.before(np.arange(self.classes + 1)))


@dataclass(frozen=True)
class LabelStatistics:
    """What is published of how labels are spread over instances."""

    instances_per_label: float
    labels_per_instance: float
    rare_share: float  # of positives, from labels that fewer than 1 in 10,000 instances have
    few_share: float  # of labels, those with at most `FEW` instances
    with_an_example: float  # of labels
    most_frequent: float  # the share of instances that have the commonest label


FEW, RARE = 5, 1e-4


def statistics_of(counts: Ints, instances: int, few: int = FEW) -> LabelStatistics:
    """Of labels with so many positives each, over so many instances.

    >>> found = statistics_of(np.array([6, 3, 1, 0]), instances=10)
    >>> found.labels_per_instance, found.few_share, found.with_an_example
    (1.0, 0.75, 0.75)
    """
    total = max(int(counts.sum()), 1)
    return LabelStatistics(
        float(counts.mean()),
        total / instances,
        float(counts[counts < RARE * instances].sum()) / total,
        float((counts <= few).mean()),
        float((counts > 0).mean()),
        float(counts.max()) / instances,
    )


def fitted(
    classes: int,
    instances: int,
    positives: int,
    *,
    rare: float | None = None,
    few: float | None = None,
    most: float | None = None,
    upto: int = FEW,
) -> tuple[float, float]:
    """The exponent and head whose law is nearest to the asked shares; what is None is not asked.

    Of laws that fit alike, the one nearest to exponent 1 and a head of 10 labels is taken. None of the
    laws that are tried puts a label on more than half of all instances.
    """
    best, found = np.inf, (1.0, 10.0)
    for exponent in np.round(np.arange(0.3, 2.01, 0.05), 2):
        for head in (1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0):
            law = LabelLaw(classes, positives, float(exponent), head)
            got = statistics_of(law.counts(), instances, upto)
            if got.most_frequent > 0.5:
                continue
            wrong = abs(exponent - 1) * 0.01 + abs(np.log10(head) - 1) * 0.005
            wrong += 0 if rare is None else abs(got.rare_share - rare)
            wrong += 0 if few is None else abs(got.few_share - few)
            wrong += 0 if most is None else abs(got.most_frequent - most)
            if wrong < best:
                best, found = wrong, (float(exponent), head)
    return found
