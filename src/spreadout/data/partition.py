"""Who holds what: ways to deal labelled instances to clients. Each is a function of its seed.

A partition sees labels and users, never features. It returns a `Deal`: which instances each client
holds, and with which label, or with all of an instance's labels.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from spreadout import randomness
from spreadout.errors import UserError
from spreadout.ragged import Ragged, offsets_from_lengths


@dataclass(frozen=True)
class Deal:
    """Client i holds the instances `instance[offsets[i]:offsets[i + 1]]`."""

    instance: Tensor  # (held,)
    offsets: Tensor  # (clients + 1,)
    label: Tensor | None = None  # (held,) the label each is held with; None: with its whole label set

    @property
    def sizes(self) -> Tensor:
        return self.offsets.diff()


@dataclass(frozen=True)
class Pairs:
    """What can be dealt: pairs of an instance and one label of it, or whole instances (label None)."""

    instance: Tensor  # (n,)
    label: Tensor | None  # (n,)

    def __len__(self) -> int:
        return len(self.instance)

    def deal(self, order: Tensor, lengths: Tensor) -> Deal:
        """The pairs in this order, cut into clients of these lengths."""
        label = None if self.label is None else self.label[order]
        return Deal(self.instance[order], offsets_from_lengths(lengths), label)

    def by_owner(self, owner: Tensor, clients: int) -> Deal:
        order = torch.argsort(owner, stable=True)
        return self.deal(order, torch.bincount(owner, minlength=clients))


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


def by_label(pairs: Pairs, classes: int) -> Deal:
    """One client per label. An instance with several labels lives on several clients, each of which
    knows only its own label of it; a label without instances is a client without data."""
    return pairs.by_owner(_one_label_each("by_label", pairs), classes)


def by_user(pairs: Pairs, user: Tensor) -> Deal:
    """One client per user, in ascending order of their ids, each with its examples in their order."""
    users, owner = torch.unique(user[pairs.instance], return_inverse=True)
    return pairs.by_owner(owner, len(users))


def given(pairs: Pairs, user: Tensor) -> Deal:
    """The source's own numbering of clients; a number that never occurs is a client without data."""
    return pairs.by_owner(user[pairs.instance], int(user.max()) + 1 if len(user) else 0)


def iid(pairs: Pairs, *, clients: int, seed: int) -> Deal:
    """Dealt at random into clients of nearly equal size."""
    lengths = torch.full((clients,), len(pairs) // clients)
    lengths[: len(pairs) % clients] += 1
    return pairs.deal(_shuffle(seed, "iid", len(pairs)), lengths)


def shuffled(deal: Deal, *, seed: int) -> Deal:
    """Another deal's client sizes with its examples shuffled over all clients (003, §4.2): what is left
    is federated training without the non-IID data."""
    order = _shuffle(seed, "shuffled", len(deal.instance))
    label = None if deal.label is None else deal.label[order]
    return Deal(deal.instance[order], deal.offsets, label)


def few_classes(pairs: Pairs, *, examples: int, classes: int, seed: int) -> Deal:
    """Clients of about `examples` examples from about `classes` classes each (001, §4.1).

    Every class is cut at random into even shards, small classes staying whole, of such a size that there
    are as many as all clients need; shards are dealt at random, equally many to each client. A class
    comes twice to a client only where it has more shards than there are clients.
    """
    label = _one_label_each("few_classes", pairs)
    if not len(label):
        raise UserError('data.partition = "few_classes": no example has a label')
    order = _shuffle(seed, "few classes", len(pairs))
    order = order[torch.argsort(label[order], stable=True)]  # by class, at random within
    held = label[order]
    count = torch.bincount(held)  # (C,)
    clients = -(-len(pairs) // examples)
    shards_of = _shards(count, clients * classes)
    place = torch.arange(len(order)) - offsets_from_lengths(count)[:-1][held]  # within the class
    shard = offsets_from_lengths(shards_of)[:-1][held] + place * shards_of[held] // count[held]
    of_class = torch.repeat_interleave(torch.arange(len(count)), shards_of)  # (shards,)
    owner = _spread_shards(of_class, clients, seed)
    return Pairs(pairs.instance[order], held).by_owner(owner[shard], clients)


def _shards(count: Tensor, wanted: int) -> Tensor:
    """Into how many shards of about one size each class is cut, so that there are about so many."""
    low, high = 0.5, float(count.max())
    for _ in range(50):  # the larger the shards, the fewer they are
        size = (low + high) / 2
        shards = (count / size).round().long().clamp_min(1) * (count > 0)
        low, high = (size, high) if int(shards.sum()) > wanted else (low, size)
    return (count / high).round().long().clamp_min(1) * (count > 0)


def _spread_shards(of_class: Tensor, clients: int, seed: int) -> Tensor:
    """An owner for every shard, equally many each: at random, then swapped until no client holds two
    shards of one class, or it is plain that some must."""
    shards = len(of_class)
    owner = torch.empty(shards, dtype=torch.int64)
    owner[_shuffle(seed, "shards", shards)] = torch.arange(shards) % clients
    for attempt in range(100):
        pair = owner * (int(of_class.max()) + 1) + of_class
        order = torch.argsort(pair, stable=True)
        twice = order[1:][pair[order][1:] == pair[order][:-1]]
        if not len(twice):
            break
        draws = _bits(seed, f"swap {attempt}", len(twice)) % np.uint64(shards)
        for a, b in zip(twice.tolist(), draws.astype(np.int64).tolist(), strict=True):
            owner[[a, b]] = owner[[b, a]]
    return owner


def frequent_classes(labels: Ragged, *, clients: int, frequent: int, seed: int) -> Deal:
    """FedMLH's non-IID deal (002, §6): all instances of a frequent class go to one random client.

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
    held = Ragged.from_pairs(owner, at, clients)  # two frequent classes may share a home: once
    return Deal(held.values, held.offsets)


def dirichlet(pairs: Pairs, *, clients: int, alpha: float, seed: int) -> Deal:
    """Each class is shared out over clients in proportions drawn from Dirichlet(α) (Hsu et al. 2019).

    Small α: a class lives on few clients; large α: IID. A client may end up with nothing.
    """
    label = _one_label_each("dirichlet", pairs)
    order = _shuffle(seed, "dirichlet order", len(pairs))
    order = order[torch.argsort(label[order], stable=True)]
    found, count = torch.unique_consecutive(label[order], return_counts=True)
    first = offsets_from_lengths(count).tolist()
    generator = randomness.generator(seed, "dirichlet")
    owner = np.empty(len(pairs), dtype=np.int64)
    for i in range(len(found)):  # one draw per class: memory stays at one share per client
        shares = _dirichlet(generator, alpha, clients)
        start, stop = first[i], first[i + 1]
        cuts = np.rint(np.cumsum(shares)[:-1] * (stop - start)).astype(np.int64)
        owner[start:stop] = np.searchsorted(cuts, np.arange(stop - start), side="right")
    return Pairs(pairs.instance[order], label[order]).by_owner(torch.from_numpy(owner), clients)


def _dirichlet(generator: np.random.Generator, alpha: float, clients: int) -> np.ndarray:
    """One draw; for tiny α, where every gamma variate underflows, the limit: all to one client."""
    drawn = generator.standard_gamma(alpha, clients)
    total = drawn.sum()
    if total > 0:
        return np.asarray(drawn / total, dtype=np.float64)
    alone = np.zeros(clients)
    alone[generator.integers(clients)] = 1
    return alone


def _one_label_each(name: str, pairs: Pairs) -> Tensor:
    if pairs.label is None:
        raise UserError(
            f'data.partition = "{name}": deals examples with one label each; '
            'set data.targets to "each" or "one"'
        )
    return pairs.label


def _shuffle(seed: int, purpose: str, n: int) -> Tensor:
    return torch.from_numpy(np.argsort(_bits(seed, purpose, n), kind="stable"))


def _bits(seed: int, purpose: str, n: int) -> randomness.Bits:
    return randomness.bits(randomness.key(seed, purpose), np.arange(n, dtype=np.int64))
