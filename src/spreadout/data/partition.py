"""Ways to assign labelled instances to clients. Each is a function of its seed.

A partition sees labels and users, never features. It returns an `Assignment`: which instances each
client holds, and with which label, or with all of an instance's labels.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from spreadout.core import randomness
from spreadout.core.errors import UserError
from spreadout.core.ragged import Ragged, offsets_from_lengths
from spreadout.data.arrays import refuse_gaps


@dataclass(frozen=True)
class Assignment:
    """Client i holds the instances `instance[offsets[i]:offsets[i + 1]]`.

    >>> import torch
    >>> import spreadout as so
    >>> so.Assignment(instance=torch.tensor([4, 0, 2]), offsets=torch.tensor([0, 1, 3])).sizes
    tensor([1, 2])
    """

    instance: Tensor  # (n,)
    offsets: Tensor  # (clients + 1,)
    label: Tensor | None = None  # (n,) the label of each example; None: its whole label set

    @property
    def sizes(self) -> Tensor:
        return self.offsets.diff()


@dataclass(frozen=True)
class Pairs:
    """What is assigned: pairs of an instance and one label of it, or whole instances (label None).

    >>> import torch
    >>> import spreadout as so
    >>> pairs = so.Pairs(instance=torch.tensor([0, 1, 2]), label=torch.tensor([5, 6, 5]))
    >>> dealt = pairs.by_owner(torch.tensor([1, 0, 1]), clients=2)  # pair 1 to client 0, the others to 1
    >>> dealt.instance.tolist(), dealt.offsets.tolist()
    ([1, 0, 2], [0, 1, 3])
    """

    instance: Tensor  # (n,)
    label: Tensor | None  # (n,)

    def __len__(self) -> int:
        return len(self.instance)

    def assign(self, order: Tensor, lengths: Tensor) -> Assignment:
        """The pairs in this order, cut into clients of these lengths."""
        label = None if self.label is None else self.label[order]
        return Assignment(self.instance[order], offsets_from_lengths(lengths), label)

    def by_owner(self, owner: Tensor, clients: int) -> Assignment:
        order = torch.argsort(owner, stable=True)
        return self.assign(order, torch.bincount(owner, minlength=clients))


def each_label(labels: Ragged) -> Pairs:
    """One example per instance and label: an instance without labels teaches nothing and is left out."""
    instance = torch.repeat_interleave(torch.arange(len(labels)), labels.lengths)
    return Pairs(instance, labels.values)


def one_label(labels: Ragged, *, seed: int) -> Pairs:
    """Multi-label turned multi-class as in FedAwS: one positive label of each instance, at random."""
    labelled = (labels.lengths > 0).nonzero()[:, 0]
    lengths = labels.lengths[labelled]
    pick = _bits(seed, "one label", len(labels))[labelled.numpy()] % lengths.numpy().astype(np.uint64)
    at = labels.offsets[:-1][labelled] + torch.from_numpy(pick.astype(np.int64))
    return Pairs(labelled, labels.values[at])


def label_sets(labels: Ragged) -> Pairs:
    """Every instance once, with all its labels."""
    return Pairs(torch.arange(len(labels)), None)


def by_label(pairs: Pairs, classes: int) -> Assignment:
    """One client per label. An instance with several labels lives on several clients, each of which
    knows only its own label of it; a label without instances is a client without data."""
    return pairs.by_owner(_one_label_each("by_label", pairs), classes)


def by_user(pairs: Pairs, user: Tensor) -> Assignment:
    """One client per user, in ascending order of their ids, each with its examples in their order."""
    users, owner = torch.unique(user[pairs.instance], return_inverse=True)
    return pairs.by_owner(owner, len(users))


def given(pairs: Pairs, user: Tensor) -> Assignment:
    """The source's own numbering of clients; a number that never occurs is a client without data."""
    refuse_gaps("client", user)
    return pairs.by_owner(user[pairs.instance], int(user.max()) + 1 if len(user) else 0)


def iid(pairs: Pairs, *, clients: int, seed: int) -> Assignment:
    """At random, in clients of nearly equal size."""
    lengths = torch.full((clients,), len(pairs) // clients)
    lengths[: len(pairs) % clients] += 1
    return pairs.assign(_shuffle(seed, "iid", len(pairs)), lengths)


def shuffled(assignment: Assignment, *, seed: int) -> Assignment:
    """Another assignment's client sizes with its examples shuffled over all clients (003, §4.2):
    federated training on IID data."""
    order = _shuffle(seed, "shuffled", len(assignment.instance))
    label = None if assignment.label is None else assignment.label[order]
    return Assignment(assignment.instance[order], assignment.offsets, label)


def few_classes(pairs: Pairs, *, examples: int, classes: int, seed: int) -> Assignment:
    """Clients of about `examples` examples from about `classes` classes each (001, §4.1).

    Every class is cut at random into even shards, about as many in all as the clients need; each
    client gets equally many shards at random, no two of one class.
    """
    label = _one_label_each("few_classes", pairs)
    if not len(label):
        raise UserError('data.partition = "few_classes": no example has a label')
    order = _shuffle(seed, "few classes", len(pairs))
    order = order[torch.argsort(label[order], stable=True)]  # by class, at random within
    sorted_label = label[order]
    count = torch.bincount(sorted_label)  # (C,)
    clients = -(-len(pairs) // examples)
    shards_of = _shards(count, clients, clients * classes, seed)
    place = torch.arange(len(order)) - offsets_from_lengths(count)[:-1][sorted_label]  # within the class
    shard = (
        offsets_from_lengths(shards_of)[:-1][sorted_label]
        + place * shards_of[sorted_label] // count[sorted_label]
    )
    owner = _assign_shards(shards_of.numpy(), clients, seed)
    return Pairs(pairs.instance[order], sorted_label).by_owner(owner[shard], clients)


def _shards(count: Tensor, clients: int, wanted: int, seed: int) -> Tensor:
    """Into how many shards of about one size each class is cut, so that there are about `wanted`.

    Rounded up or down at random, so that equal classes do not all round the same way. A class has at
    most one shard for each client, and none is empty.
    """
    luck = torch.from_numpy(_bits(seed, "rounding", len(count)).astype(np.float64) * 2.0**-64)
    most = count.clamp_max(clients)
    low, high = 0.5, float(count.max()) + 1
    for _ in range(60):  # the larger the shards, the fewer they are
        size = (low + high) / 2
        shards = torch.minimum((count / size + luck).long().clamp_min(1), most)
        low, high = (size, high) if int(shards.sum()) > wanted else (low, size)
    return torch.minimum((count / high + luck).long().clamp_min(1), most)


def _assign_shards(shards_of: npt.NDArray[np.int64], clients: int, seed: int) -> Tensor:
    """An owner for every shard, equally many each, the shards of a class on different clients.

    Classes come in random order. Their shards are given out in laps: in each lap every client gets one
    shard, in a new random order. Where a lap ends in the middle of a class, clients that have the class
    already come later in the next lap.
    """
    order = _shuffle(seed, "classes", len(shards_of)).numpy()
    ends = np.cumsum(shards_of[order])  # of each class in the sequence of all shards
    total = int(ends[-1])
    sequence = np.empty(total, dtype=np.int64)
    for lap, start in enumerate(range(0, total, clients)):
        turn = _shuffle(seed, f"lap {lap}", clients).numpy()
        cut = int(np.searchsorted(ends, start, side="right"))  # the class at the start of the lap
        begun = start - (int(ends[cut - 1]) if cut else 0)  # its shards in the lap before
        if begun:
            have = np.isin(turn, sequence[start - begun : start])
            rest = int(ends[cut]) - start
            others = np.flatnonzero(~have)[:rest]
            later = np.setdiff1d(np.arange(clients), others)
            turn = turn[np.concatenate([others, later])]
        sequence[start : start + clients] = turn[: total - start]
    owner = np.empty(total, dtype=np.int64)
    first = np.cumsum(shards_of) - shards_of  # of each class, by its number
    starts = np.repeat(first[order], shards_of[order])
    within = np.arange(total) - np.repeat(ends - shards_of[order], shards_of[order])
    owner[starts + within] = sequence
    return torch.from_numpy(owner)


def frequent_classes(labels: Ragged, *, clients: int, frequent: int, seed: int) -> Assignment:
    """FedMLH's non-IID partition (002, §6): all instances of a frequent class go to one random client.

    An instance with several frequent classes lives on each of their clients; one without any goes to a
    random client. Instances keep their whole label sets.
    """
    count = torch.bincount(labels.values) if len(labels.values) else torch.zeros(1, dtype=torch.int64)
    top = torch.argsort(count, descending=True, stable=True)[: min(frequent, int((count > 0).sum()))]
    home = torch.full((len(count),), -1)  # of each frequent class
    draws = _bits(seed, "frequent", len(top)) % np.uint64(clients)
    home[top] = torch.from_numpy(draws.astype(np.int64))
    instance = torch.repeat_interleave(torch.arange(len(labels)), labels.lengths)
    sent = home[labels.values] >= 0
    lonely = torch.ones(len(labels), dtype=torch.bool)
    lonely[instance[sent]] = False
    rest = lonely.nonzero()[:, 0]
    stray = (_bits(seed, "infrequent", len(labels)) % np.uint64(clients)).astype(np.int64)
    at = torch.cat([instance[sent], rest])
    owner = torch.cat([home[labels.values[sent]], torch.from_numpy(stray)[rest]])
    own = Ragged.from_pairs(owner, at, clients)  # two frequent classes may share a home: once
    return Assignment(own.values, own.offsets)


def dirichlet(pairs: Pairs, *, clients: int, alpha: float, seed: int) -> Assignment:
    """Each class is shared out over clients by proportions from Dirichlet(α) (Yurochkin et al. 2019).

    Small α: a class lives on few clients; large α: IID. A client may end up with nothing. Drawn as a
    Pólya urn, which gives the same distribution at a cost that follows the examples: the j-th example of
    a class goes to a random client with chance αK / (αK + j), else where a random earlier one went.
    """
    label = _one_label_each("dirichlet", pairs)
    order = _shuffle(seed, "dirichlet order", len(pairs))
    order = order[torch.argsort(label[order], stable=True)]
    sorted_label = label[order].numpy()
    first = np.searchsorted(sorted_label, sorted_label)  # where each one's class begins
    place = np.arange(len(sorted_label)) - first
    chance = np.divide(
        alpha * clients, alpha * clients + place, where=place > 0, out=np.ones(len(sorted_label))
    )
    fresh = _bits(seed, "fresh", len(sorted_label)).astype(np.float64) * 2.0**-64 < chance
    drawn = (_bits(seed, "client", len(sorted_label)) % np.uint64(clients)).astype(np.int64)
    earlier = _bits(seed, "earlier", len(sorted_label)) % np.maximum(place, 1).astype(np.uint64)
    source = np.where(
        fresh | (place == 0), np.arange(len(sorted_label)), first + earlier.astype(np.int64)
    )
    while (source[source] != source).any():  # follow whom each one follows, twice as far each time
        source = source[source]
    owner = torch.from_numpy(drawn[source])
    return Pairs(pairs.instance[order], label[order]).by_owner(owner, clients)


def _one_label_each(name: str, pairs: Pairs) -> Tensor:
    if pairs.label is None:
        raise UserError(
            f'data.partition = "{name}": needs examples with one label each; '
            'set data.targets to "each" or "one"'
        )
    return pairs.label


def _shuffle(seed: int, purpose: str, n: int) -> Tensor:
    return torch.from_numpy(np.argsort(_bits(seed, purpose, n), kind="stable"))


def _bits(seed: int, purpose: str, n: int) -> randomness.Bits:
    return randomness.bits(randomness.key(seed, purpose), np.arange(n, dtype=np.int64))
