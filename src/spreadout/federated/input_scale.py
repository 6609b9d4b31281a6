"""The mean and the deviation of every feature over all clients, found once before the first round.

A client sends the mean and the variance of its own examples. The server puts them together,

    μ = Σ n_i μ_i / n        σ² = Σ n_i (σ_i² + (μ_i − μ)²) / n

which are those of all examples in one place, and writes μ and 1/σ into the model. Where features with
long tails are to be shortened, clients say the same of the roots of their features, and the server sees
which features need them (`data/tails.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from spreadout.core.state import ServerState
from spreadout.data.dataset import FederatedDataset
from spreadout.data.moments import AT_ONCE, as_they_are, factor_of, group_moments, moments
from spreadout.data.tails import POWERS, shortened, with_roots
from spreadout.federated.robust.groups import Groups
from spreadout.federated.robust.trimmed_mean import TrimmedMean
from spreadout.methods.class_counts import MOST, SetupMessage

MEAN, VARIANCE, EXAMPLES = "input_mean", "input_variance", "input_examples"
NAMES = (MEAN, VARIANCE, EXAMPLES)
AT_A_TIME = 4096  # messages that are looked at together


TOLD_WITH_ROOTS = len(POWERS) + 1  # numbers of a feature: its powers, and whether it is not 0


def messages_of(data: FederatedDataset, *, roots: bool = False) -> Iterator[SetupMessage]:
    """Of each client the mean and the variance of its features, and of how many examples.

    roots: of `with_roots` of them.
    """
    x, offsets = data.columns["x"], data.offsets
    of, width = as_they_are, x.example_bytes // 4
    if roots:
        of, width = with_roots, TOLD_WITH_ROOTS * width
    for first, last in _blocks(offsets, AT_ONCE // max(1, width)):
        lengths = offsets[first : last + 1].diff()
        at = torch.arange(int(offsets[first]), int(offsets[last]))
        if last - first == 1 and len(at):  # perhaps more examples than are looked at together
            mean, variance = (value[None] for value in moments(x, at, of))
        else:
            mean, variance = group_moments(x, at, lengths, of)
        means, variances = mean.float().cpu().numpy(), variance.float().cpu().numpy()
        for i, examples in enumerate(lengths.tolist()):
            told = {MEAN: means[i], VARIANCE: variances[i], EXAMPLES: np.array([examples], np.int64)}
            yield told if examples else {}


def _blocks(offsets: Tensor, most: int) -> Iterator[tuple[int, int]]:
    """Clients (first, last): with so many examples together, or one client alone with more."""
    first, clients = 0, len(offsets) - 1
    while first < clients:
        reach = int(torch.searchsorted(offsets, int(offsets[first]) + most, right=True)) - 1
        last = min(clients, max(first + 1, reach))
        yield first, last
        first = last


@dataclass(frozen=True)
class Block:
    """What several clients say, or what it comes to: (k, d), (k, d) and (k,) double."""

    mean: Tensor
    variance: Tensor
    weight: Tensor

    def together(self, centre: Callable[[Tensor, Tensor], Tensor]) -> Block:
        """As one, with a rule for (k, d) → (d,)."""
        mean = centre(self.mean, self.weight)
        variance = centre(self.variance + (self.mean - mean) ** 2, self.weight)
        return Block(mean[None], variance[None], self.weight.sum()[None])


class InputScale:
    """What the server makes of the clients' messages."""

    def __init__(self, features: int, *, roots: bool = False, cap: int | None, robust: bool) -> None:
        """roots: whether clients tell of roots too. cap: examples that a client may count for.

        robust: whether some clients may be hostile.
        """
        self.told = features * (TOLD_WITH_ROOTS if roots else 1)  # means in a message
        self.roots, self.cap, self.robust = roots, cap, robust
        self.waiting: list[SetupMessage] = []  # not yet looked at closely
        self.blocks: list[Block] = []
        self.refused, self.bytes = 0, 0

    def taken_from(self, messages: Iterable[SetupMessage]) -> Iterator[SetupMessage]:
        """The messages without what is meant for this; that is kept."""
        for message in messages:
            own = {name: message[name] for name in NAMES if name in message}
            if own:
                self._keep(own)
            yield {name: array for name, array in message.items() if name not in NAMES}

    def _keep(self, message: SetupMessage) -> None:
        if not has_form(message, self.told):
            self.refused += 1
            return
        self.waiting.append(message)
        if len(self.waiting) == AT_A_TIME:
            self._look()

    def _look(self) -> None:
        """Keep what is sound of the waiting messages; where all are trusted, only what they come to."""
        if not self.waiting:
            return
        mean, variance = (np.stack([one[name] for one in self.waiting]) for name in (MEAN, VARIANCE))
        said = np.concatenate([one[EXAMPLES] for one in self.waiting])
        sound = (np.isfinite(mean) & np.isfinite(variance) & (variance >= 0)).all(1)
        sound &= (said > 0) & (said < MOST)
        self.refused += int((~sound).sum())
        self.bytes += int(sound.sum()) * (2 * self.told * 4 + 8)
        self.waiting = []
        if not sound.any():
            return
        weight = said[sound] if self.cap is None else np.minimum(said[sound], self.cap)
        found = (mean[sound], variance[sound], weight.astype(np.float64))
        self.blocks.append(Block(*map(torch.from_numpy, found)))
        if not self.robust:
            self.blocks = [self._block().together(_mean)]

    def _block(self) -> Block:
        """All that is kept, in one."""
        parts = ((block.mean, block.variance, block.weight) for block in self.blocks)
        return Block(*(torch.cat(some).double() for some in zip(*parts, strict=True)))

    def write_(self, state: ServerState, prefix: str) -> None:
        """Put mean and factor into the model. Without a message they stay 0 and 1."""
        self._look()
        if self.refused:
            state.refused["input scale: malformed"] += self.refused
        if not self.blocks:
            return
        mean, variance = self.together()
        found = {}
        if self.roots:
            found["power"], mean, variance = shortened(mean, variance)
        found |= {"mean": mean, "factor": factor_of(mean, variance)}
        for name, value in found.items():
            held = state.dense[prefix + name]
            state.dense[prefix + name] = value.to(held)

    def together(self) -> tuple[Tensor, Tensor]:
        """Mean and variance over all clients of what they tell: (d,), with roots (4 d,).

        Without extremes where some may be hostile.
        """
        self._look()
        found = self._block().together(_trimmed_mean if self.robust else _mean)
        return found.mean[0], found.variance[0]


def _mean(values: Tensor, weight: Tensor) -> Tensor:
    return weight @ values / weight.sum()


def _trimmed_mean(values: Tensor, weight: Tensor) -> Tensor:
    return TrimmedMean().centre(Groups.of(values, weight, torch.tensor([len(values)])))[0]


def has_form(message: SetupMessage, features: int) -> bool:
    """Whether these are a mean and a variance of each feature and a number of examples, of any size."""
    if len(message) != len(NAMES):
        return False
    rows = all(
        message[name].dtype == np.float32 and message[name].shape == (features,)
        for name in (MEAN, VARIANCE)
    )
    return rows and message[EXAMPLES].dtype == np.int64 and message[EXAMPLES].shape == (1,)
