"""Which labels occur together (FedALC, §IV-B), kept sparse: only pairs that ever do take room.

The share of instances with label u but not u' (Eq. 9) is `σ_uu' = (n_u − n_uu') / n`. Where two labels
never meet, it depends on u alone: the weights of all C² pairs are a vector, and a correction on a few.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from spreadout.core.ragged import Ragged, runs
from spreadout.data.columns import ragged_places

PAIRS_AT_ONCE = 1 << 22


@dataclass(frozen=True)
class CoOccurrence:
    """How many instances have a label, and how many have both labels of a pair."""

    instances: float  # n
    count: Tensor  # (C,) float32: n_u
    first: Tensor  # (E,) int64: both directions of every pair that occurs, ascending by (first, second)
    second: Tensor  # (E,) int64
    together: Tensor  # (E,) float32: n_uu'

    @property
    def classes(self) -> int:
        return len(self.count)

    @classmethod
    def of(cls, labels: Ragged, classes: int) -> CoOccurrence:
        """From label sets of distinct labels each, a block of pairs at a time."""
        lengths = labels.lengths
        keys, together = torch.empty(0, dtype=torch.int64), torch.empty(0, dtype=torch.int64)
        for some in runs(lengths * lengths, PAIRS_AT_ONCE):
            found, times = torch.unique(_pairs(labels, some, classes), return_counts=True)
            keys, place = torch.unique(torch.cat([keys, found]), return_inverse=True)
            together = torch.zeros_like(keys).index_add_(0, place, torch.cat([together, times]))
        count = torch.bincount(labels.values, minlength=classes).float()
        first, second = keys // max(classes, 1), keys % max(classes, 1)
        return cls(float(len(labels)), count, first, second, together.float())

    def weights(self, *, normalize: bool = False, floor: float = 0.0) -> PairWeights:
        """σ (Eq. 9), or γ (Eq. 10): the same with every row scaled to sum 1.

        floor: a pair keeps this share of the weight it would have if its labels never met. Without,
        labels that always meet are not kept apart at all.

        Counts are whole numbers and sums of them exact in float64, so a label that never occurs without
        all others has weights 0, not rounding.
        """
        alone, both = self.count.double(), self.together.double()
        if floor:
            both = torch.minimum(both, (1 - floor) * alone[self.first])
        if normalize:
            # n Σ_{u'≠u} σ_uu' = (C − 1) n_u − Σ_u' n_uu'
            total = ((self.classes - 1) * alone).index_add(0, self.first, -both)
            scale = torch.where(total > 0.5, 1 / total.clamp_min(0.5), 0.0)
            alone, both = alone * scale, both * scale[self.first]
        else:
            alone, both = alone / max(self.instances, 1.0), both / max(self.instances, 1.0)
        # Pairs are stored both ways, ascending: by their second class they are the reversed ones.
        back = torch.argsort(self.second * self.classes + self.first)
        return PairWeights(alone.float(), self.first, self.second, both.float(), both[back].float())


@dataclass(frozen=True)
class PairWeights:
    """A weight for every ordered pair of classes: `alone_u − both_uu'`, the second only where stored."""

    alone: Tensor  # (C,)
    first: Tensor  # (E,) ascending by (first, second), both directions of every pair
    second: Tensor  # (E,)
    both: Tensor  # (E,)
    reversed: Tensor  # (E,) both_u'u of every stored pair (u, u')

    def at(self, anchors: Tensor, others: Tensor) -> Tensor:
        """The weights of some pairs: (n,) anchors, (n, k) others → (n, k)."""
        alone = self.alone[anchors][:, None].expand(others.shape)
        if not len(self._keys):
            return alone
        wanted = anchors[:, None] * len(self.alone) + others
        place = torch.searchsorted(self._keys, wanted).clamp_max(len(self._keys) - 1)
        return alone - torch.where(self._keys[place] == wanted, self.both[place], 0.0)

    @cached_property
    def offsets(self) -> Tensor:
        """Where each class's stored pairs begin: (C + 1,)."""
        every = torch.arange(len(self.alone) + 1, device=self.first.device)
        return torch.searchsorted(self.first, every)

    @cached_property
    def _keys(self) -> Tensor:
        return self.first * len(self.alone) + self.second


def _pairs(labels: Ragged, some: Tensor, classes: int) -> Tensor:
    """`first·C + second` of every ordered pair of different labels in some of the sets."""
    start, length = labels.offsets[some], labels.lengths[some]
    places = ragged_places(start, length)  # every label of every set …
    each = torch.repeat_interleave(length, length)  # … with all labels of its set
    partner = ragged_places(torch.repeat_interleave(start, length), each)
    first = labels.values[torch.repeat_interleave(places, each)]
    second = labels.values[partner]
    return (first * classes + second)[first != second]
