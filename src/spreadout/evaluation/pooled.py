"""Training data in one place, an instance once: what a central reference learns from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from spreadout.core import randomness
from spreadout.core.ragged import Ragged
from spreadout.data.columns import Column, Lists, select_all
from spreadout.data.dataset import FederatedDataset


@dataclass(frozen=True)
class Pool:
    """Instances with all the labels they have anywhere."""

    inputs: Mapping[str, Column]
    labels: Ragged  # n label sets
    classes: int
    first_class: int = 0  # classes below are nobody's: padding

    def __len__(self) -> int:
        return len(self.labels)

    @cached_property
    def counts(self) -> Tensor:
        """How many instances have each class. (C,)"""
        return torch.bincount(self.labels.values, minlength=self.classes)

    @cached_property
    def prior(self) -> Tensor:
        """A number in (0, 1] for each class, the higher the more frequent; no two are equal. (C,) double

        Classes that are equally frequent are told apart by a draw, so that the order in which a source
        numbers them, which may know of the test part, decides nothing. Padding has −∞.
        """
        draw = randomness.bits(randomness.key(0, "equally frequent"), np.arange(self.classes))
        by_chance = torch.from_numpy(np.argsort(draw, kind="stable"))
        order = by_chance[torch.argsort(self.counts[by_chance], descending=True, stable=True)]
        places = torch.empty_like(order)
        places[order] = torch.arange(self.classes)
        found = 1 - places.double() / self.classes
        found[: self.first_class] = -torch.inf
        return found

    def select(self, at: Tensor) -> Pool:
        """Some instances of it."""
        return replace(self, inputs=select_all(self.inputs, at), labels=self.labels.select(at))

    def shuffled(self, purpose: str) -> Tensor:
        """All places in an order that depends on nothing but their number."""
        draw = randomness.bits(randomness.key(0, purpose), np.arange(len(self)))
        return torch.from_numpy(np.argsort(draw, kind="stable"))


def pool_of(train: FederatedDataset) -> Pool:
    """All clients' examples together; an instance on several clients is one, with all its labels.

    An instance without labels is on no client where each label makes an example. It is left out where
    label sets stay whole, too: then all arms of a comparison have the same references.
    """
    y = train.columns["y"]
    inputs = {name: column for name, column in train.columns.items() if name != "y"}
    stored = next(iter(inputs.values()))
    every = torch.arange(train.examples)
    number, instances = every, train.examples
    if stored.index is not None:
        found, number = torch.unique(stored.index.cpu(), return_inverse=True)
        instances = len(found)
        places = torch.full((instances,), train.examples).scatter_reduce(0, number, every, "amin")
        inputs = select_all(inputs, places)
    if isinstance(y, Lists):
        sets = y.ragged()
        owner, label = torch.repeat_interleave(number, sets.lengths.cpu()), sets.values.cpu()
    else:
        owner, label = number, y.take(every).cpu()
    labels = Ragged.from_pairs(owner, label, instances)
    pool = Pool(inputs, labels, train.classes, train.first_class)
    named = labels.lengths > 0
    return pool if named.all() or not named.any() else pool.select(named.nonzero()[:, 0])
