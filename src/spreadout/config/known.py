"""What of the data a choice may look at: all of it, or what is public where clients hide the rest.

A choice stands in the config, which everybody has. So under `[privacy]`, or where a method hides sizes,
none may follow from what is in a client's examples or from how many there are: a client that knows
all others would read its own share off a threshold. Public are the form of inputs and labels, the
classes, the clients, and which of them have no examples at all.
"""

from __future__ import annotations

import numpy as np

from spreadout.config.experiment import Experiment
from spreadout.core.randomness import Ints
from spreadout.data.columns import Sparse
from spreadout.data.splits import Splits
from spreadout.models.build import DataShape

ASSUMED = 32  # examples of a client that says nothing of how many it has: a batch


def hides_sizes(experiment: Experiment) -> bool:
    """Whether clients keep to themselves how many examples they have."""
    return experiment.privacy is not None or experiment.method.hides_sizes


def sizes(experiment: Experiment, splits: Splits) -> Ints:
    """Examples of each client; where they are hidden, the same of all that have any."""
    found = splits.train.sizes
    if not hides_sizes(experiment):
        return found
    if experiment.privacy is not None and experiment.privacy.on_the_server:  # nor may that be told
        return np.full_like(found, ASSUMED)
    return np.where(found > 0, ASSUMED, 0)


def has_numbers(experiment: Experiment, splits: Splits) -> bool:
    """Whether inputs are quantities rather than words; where they are hidden, by their form alone."""
    if not hides_sizes(experiment):
        return splits.train.has_numbers
    x = splits.train.columns.get("x")
    return x is not None and not isinstance(x, Sparse) and DataShape.of(splits.train).image is None
