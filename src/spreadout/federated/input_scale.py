"""The mean and the deviation of every feature over all clients, found once before the first round.

A client sends the mean and the variance of its own examples. The server puts them together,

    μ = Σ n_i μ_i / n        σ² = Σ n_i (σ_i² + (μ_i − μ)²) / n

which are those of all examples in one place, and writes μ and 1/σ into the model.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from spreadout.core.state import ServerState
from spreadout.data.dataset import FederatedDataset
from spreadout.data.moments import factor_of, moments
from spreadout.federated.robust.groups import Groups
from spreadout.federated.robust.trimmed_mean import TrimmedMean
from spreadout.methods.class_counts import MOST, SetupMessage

MEAN, VARIANCE, EXAMPLES = "input_mean", "input_variance", "input_examples"
NAMES = (MEAN, VARIANCE, EXAMPLES)


def messages_of(data: FederatedDataset) -> Iterator[SetupMessage]:
    """Of each client the mean and the variance of its features, and of how many examples."""
    for first, last in zip(data.offsets[:-1].tolist(), data.offsets[1:].tolist(), strict=True):
        if first == last:
            yield {}
            continue
        mean, variance = moments(data.columns["x"], torch.arange(first, last))
        yield {
            MEAN: mean.float().cpu().numpy(),
            VARIANCE: variance.float().cpu().numpy(),
            EXAMPLES: np.array([last - first], np.int64),
        }


class InputScale:
    """What the server makes of the clients' messages."""

    def __init__(self, features: int, *, cap: int | None, robust: bool) -> None:
        """cap: examples that a client may count for. robust: whether some clients may be hostile."""
        self.features, self.cap, self.robust = features, cap, robust
        self.means: list[Tensor] = []
        self.variances: list[Tensor] = []
        self.weights: list[int] = []
        self.refused, self.bytes = 0, 0

    def taken_from(self, messages: Iterable[SetupMessage]) -> Iterator[SetupMessage]:
        """The messages without what is meant for this; that is kept."""
        for message in messages:
            own = {name: message[name] for name in NAMES if name in message}
            if own:
                self._keep(own)
            yield {name: array for name, array in message.items() if name not in NAMES}

    def _keep(self, message: SetupMessage) -> None:
        if not is_moments(message, self.features):
            self.refused += 1
            return
        self.means.append(torch.from_numpy(message[MEAN]))
        self.variances.append(torch.from_numpy(message[VARIANCE]))
        said = int(message[EXAMPLES][0])
        self.weights.append(said if self.cap is None else min(said, self.cap))
        self.bytes += sum(array.nbytes for array in message.values())

    def write_(self, state: ServerState, prefix: str) -> None:
        """Put mean and factor into the model. Without a message they stay 0 and 1."""
        if self.refused:
            state.refused["input scale: malformed"] += self.refused
        if not self.means:
            return
        mean, variance = self.together()
        for name, value in (("mean", mean), ("factor", factor_of(mean, variance))):
            held = state.dense[prefix + name]
            state.dense[prefix + name] = value.to(held)

    def together(self) -> tuple[Tensor, Tensor]:
        """Mean and variance over all clients: (d,) double."""
        weight = torch.tensor(self.weights, dtype=torch.float64)
        means = torch.stack(self.means).double()
        mean = self._centre(means, weight)
        spread = torch.stack(self.variances).double() + (means - mean) ** 2
        return mean, self._centre(spread, weight)

    def _centre(self, values: Tensor, weight: Tensor) -> Tensor:
        """(k, d) → (d,); where clients may be hostile without the extremes."""
        if not self.robust:
            return weight @ values / weight.sum()
        return TrimmedMean().centre(Groups.of(values, weight, torch.tensor([len(values)])))[0]


def is_moments(message: SetupMessage, features: int) -> bool:
    """Whether these are means, variances and a number of examples."""
    if set(message) != set(NAMES):
        return False
    mean, variance, count = (message[name] for name in NAMES)
    if count.dtype != np.int64 or count.shape != (1,) or not 0 < count[0] < MOST:
        return False
    return _is_row(mean, features) and _is_row(variance, features) and bool((variance >= 0).all())


def _is_row(array: NDArray[Any], features: int) -> bool:
    whole = array.dtype == np.float32 and array.shape == (features,)
    return whole and bool((np.abs(array) < np.sqrt(np.finfo(np.float32).max)).all())  # NaN is not
