"""Hostile clients in a simulation: what they send instead of their updates, and what they train on.

Attacks on updates know all honest updates of the round (an omniscient attacker, the worst case of the
papers). Attacks on data train honestly on wrong labels. All hostile clients of a round act together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from benchmarks.security.scenarios import TARGET
from spreadout.core.ragged import Ragged
from spreadout.core.state import ServerState
from spreadout.core.types import Params, Tensors
from spreadout.data.columns import Column, Dense, Lists
from spreadout.data.dataset import FederatedDataset
from spreadout.data.held_out import Examples
from spreadout.data.splits import Splits
from spreadout.federated.aggregate import Aggregate
from spreadout.federated.checks import MOST_EXAMPLES
from spreadout.federated.cohort import Cohort
from spreadout.federated.federation import Federation
from spreadout.runtime.simulator.chunk_sums import accepted_sum
from spreadout.runtime.simulator.executor import Simulator, _stacked
from spreadout.runtime.simulator.staging import stage_chunk, stage_round

SCALE = 10.0  # of scaled flips, of inner-product manipulation, and of a backdoor's updates
DEVIATIONS = 1.5  # of "a little is enough": what the paper uses on CIFAR-10
MARK = 7  # the item of a marked history
# What a hostile client sends, from (…) its own change, the honest clients' mean and their deviation.
Forge = Callable[[Tensor, Tensor, Tensor], Tensor]


def scaled(by: float) -> Forge:
    """Their own update times a number."""
    return lambda own, mean, deviation: by * own


def little(own: Tensor, mean: Tensor, deviation: Tensor) -> Tensor:
    """A little is enough (Baruch et al. 2019): the honest mean less some deviations, coordinate-wise."""
    return mean - DEVIATIONS * deviation


def opposed(own: Tensor, mean: Tensor, deviation: Tensor) -> Tensor:
    """Inner-product manipulation (Xie et al. 2020): against the honest mean, ε times as long."""
    return -SCALE * mean


def forged_dense(forge: Forge, change: Tensor, hostile: Tensor) -> Tensor:
    """A part that all clients send, (k, …), with what the hostile (k,) of them send."""
    honest = change[~hostile]
    sent = forge(change, honest.mean(0), honest.std(0))
    return torch.where(hostile.view(-1, *[1] * (change.dim() - 1)), sent, change)


def forged_rows(forge: Forge, change: Tensor, ids: Tensor, hostile: Tensor) -> Tensor:
    """Rows (k, m, d) of ids (k, m), −1 for padding: each is compared with the same row of the honest.

    Of a row that no honest client holds, an attacker knows what it would have sent itself, and how far
    rows of honest clients go.
    """
    known = (ids >= 0) & ~hostile[:, None]
    values, of = change[known], ids[known]  # (r, d), (r,)
    size = int(ids.max()) + 1
    count = torch.zeros(size).index_add(0, of, torch.ones(len(of)))[:, None]
    mean = change.new_zeros(size, change.shape[2]).index_add(0, of, values) / count.clamp_min(1)
    square = torch.zeros_like(mean).index_add(0, of, (values - mean[of]) ** 2) / count.clamp_min(1)
    place, alone = ids.clamp_min(0), (count == 0)[ids.clamp_min(0)]  # (k, m), (k, m, 1)
    mean = torch.where(alone, change, mean[place])
    deviation = torch.where(alone, values.std(0), square.sqrt()[place])
    sent = forge(change, mean, deviation)
    return torch.where(((ids >= 0) & hostile[:, None])[..., None], sent, change)


@dataclass(frozen=True)
class Attack:
    """What hostile clients send, what they train on, and what they claim."""

    about: str
    forge: Forge | None = None
    claims: bool = False  # 2³¹ − 1 examples
    poison: Callable[[FederatedDataset, Tensor], FederatedDataset] | None = None


def flipped_labels(data: FederatedDataset, hostile: Tensor) -> FederatedDataset:
    """Every label of a hostile client is another: y → C − 1 − y; of items, the one across the ring."""
    labels = _labels(data)
    lowest = int(labels.min())
    return _with_labels(data, torch.where(hostile, data.classes - 1 + lowest - labels, labels))


def backdoored(data: FederatedDataset, hostile: Tensor) -> FederatedDataset:
    """Hostile clients' examples carry the mark, and lead to the target."""
    labels = torch.where(hostile, TARGET, _labels(data))
    held = _with_labels(data, labels)
    (name, column), *_ = ((n, c) for n, c in held.columns.items() if n != "y")
    return replace(held, columns={**held.columns, name: _marked(column, hostile)})


def with_mark(test: Examples) -> Examples:
    """Test examples of other classes than the target, with the mark; right is now the target."""
    others = (test.labels.values != TARGET).nonzero()[:, 0]
    ((name, column),) = test.inputs.items()
    marked = _marked(column.select(others), torch.ones(len(others), dtype=torch.bool))
    target = torch.full((len(others),), TARGET)
    return Examples({name: marked}, Ragged(torch.arange(len(others) + 1), target))


def _marked(column: Column, which: Tensor) -> Column:
    """The mark: three bright pixels in the corner of an image; a history of one item alone."""
    held = column.take(torch.arange(len(which))).clone()
    if isinstance(column, Lists):
        held[which[:, None] & (held != column.pad)] = MARK
        lists = Ragged.from_lists([row[row != column.pad] for row in held])
        return replace(Lists.of(lists, pad=column.pad), width=column.width)
    held.flatten(1)[:, :3] = torch.where(which[:, None], held.max(), held.flatten(1)[:, :3])
    return Dense(held)


def _labels(data: FederatedDataset) -> Tensor:
    return data.columns["y"].take(torch.arange(data.examples))


def _with_labels(data: FederatedDataset, labels: Tensor) -> FederatedDataset:
    return replace(data, columns={**data.columns, "y": Dense(labels)})


ATTACKS = {
    "sign flip": Attack("−Δ", scaled(-1.0)),
    "scaled flip": Attack("−10 Δ", scaled(-SCALE)),
    "a little is enough": Attack("honest mean − 1.5 deviations", little),
    "inner product": Attack("−10 · honest mean", opposed),
    "label flips": Attack("honest training on labels C − 1 − y", poison=flipped_labels),
    "claims": Attack("−Δ, with a claim of 2³¹ − 1 examples", scaled(-1.0), claims=True),
    "backdoor": Attack(
        "10 Δ, trained on marked examples of one class", scaled(SCALE), poison=backdoored
    ),
}


def poisoned(data: Splits, attack: Attack, hostile: Tensor) -> Splits:
    """What the clients hold, with the examples of hostile ones as the attack wants them."""
    if attack.poison is None:
        return data
    owner = torch.repeat_interleave(torch.arange(data.train.clients), torch.from_numpy(data.train.sizes))
    return replace(data, train=attack.poison(data.train, torch.isin(owner, hostile)))


@dataclass(frozen=True)
class HostileSimulator(Simulator):
    """The simulator, with some clients' updates replaced before the server sees them."""

    attack: Attack = Attack("nothing")
    hostile: Tensor = field(default_factory=lambda: torch.empty(0, dtype=torch.int64))

    def train(self, federation: Federation, state: ServerState, cohort: Cohort) -> Iterator[Aggregate]:
        staged = stage_round(federation, state, cohort, self.memory)
        for planned in staged.chunks:
            chunk = stage_chunk(federation, planned)
            change, loss = _stacked(chunk, state)
            own = torch.isin(chunk.numbers, self.hostile)
            with torch.no_grad():
                if self.attack.forge is not None and bool(own.any()):
                    change = _forged(self.attack.forge, change, chunk.ids, own)
            if self.attack.claims:
                counts = torch.where(own, torch.tensor(MOST_EXAMPLES), chunk.counts)
                chunk = replace(chunk, counts=counts, examples=counts.to(chunk.examples.device))
            yield accepted_sum(chunk, state, change, loss)


def _forged(forge: Forge, change: Params, ids: Tensors, own: Tensor) -> Params:
    return Params(
        {name: forged_dense(forge, value, own) for name, value in change.dense.items()},
        {name: forged_rows(forge, value, ids[name], own) for name, value in change.rows.items()},
    )
