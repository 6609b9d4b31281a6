"""Which labels an instance has, when each of them is known to another client (FedALC, §IV-E).

Every client sends, once, a keyed digest of each of its instances beside a keyed digest of its label. The
server merges equal digests into label sets. It holds no key (the clients share one), so it cannot tell
which instance or which label's name a digest stands for, not even by trying all of them; an unkeyed hash
of low-entropy data could be guessed. What it does learn is which rows of the class table occur together.

Digests are of the raw bytes: embeddings are not the same to the last bit on every machine.
"""

from __future__ import annotations

import hmac
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from spreadout import randomness
from spreadout.correlations import CoOccurrence
from spreadout.data.columns import Column, Dense, Lists, Sparse
from spreadout.data.federated import FederatedDataset
from spreadout.ragged import Ragged

INSTANCE_BYTES, LABEL_BYTES, ROW_BYTES = 32, 8, 8
Digests = NDArray[np.void]


@dataclass(frozen=True)
class LabelMessage:
    """What one client tells of its labels: an entry per example, and which row each label has."""

    instances: Digests  # (n,) of 32 bytes
    labels: Digests  # (n,) of 8 bytes
    row_labels: Digests  # (m,) of 8 bytes: the labels of the rows it asks for …
    rows: NDArray[np.int64]  # (m,) … and those rows

    @property
    def nbytes(self) -> int:
        return sum(part.nbytes for part in (self.instances, self.labels, self.row_labels, self.rows))


def message_of(view: FederatedDataset, key: bytes, *, dummies: int = 0, seed: int = 0) -> LabelMessage:
    """What a client says of the examples in its own view.

    dummies: it adds between 0 and twice so many entries that stand for no instance, each under one of
    its labels, so that the number of its examples cannot be read off.
    """
    labels = view.columns["y"].take(torch.arange(view.examples)).cpu().numpy()
    instances = digests_of(view, key)
    rows = np.unique(labels)
    number = int(view.number_of(torch.tensor([0]))[0])
    if dummies and len(rows):
        draw = randomness.generator(seed, "dummies", number)
        count = int(draw.integers(0, 2 * dummies + 1))
        invented = draw.bytes(count * INSTANCE_BYTES)
        instances = np.concatenate([instances, np.frombuffer(invented, dtype=instances.dtype)])
        labels = np.concatenate([labels, draw.choice(rows, size=count)])
        order = draw.permutation(len(labels))
        instances, labels = instances[order], labels[order]
    named = _label_digests(rows, key)
    return LabelMessage(instances, named[np.searchsorted(rows, labels)], named, rows)


def messages_of(
    data: FederatedDataset, key: bytes, *, dummies: int = 0, seed: int = 0
) -> Iterator[LabelMessage]:
    """Every client's message, each from its own view alone."""
    for client in range(data.clients):
        yield message_of(data.view(client), key, dummies=dummies, seed=seed)


def label_sets(messages: Iterable[LabelMessage]) -> Ragged:
    """The server's merge: equal digests are one instance, and its labels are all it was sent under."""
    told = list(messages)
    if not told:
        return Ragged.from_lists([])
    row_of, which = np.unique(np.concatenate([one.row_labels for one in told]), return_index=True)
    rows = np.concatenate([one.rows for one in told])[which]
    digests, instance = np.unique(np.concatenate([one.instances for one in told]), return_inverse=True)
    label = rows[np.searchsorted(row_of, np.concatenate([one.labels for one in told]))]
    return Ragged.from_pairs(
        torch.from_numpy(instance.reshape(-1)), torch.from_numpy(label), len(digests)
    )


def guarded(
    counts: CoOccurrence,
    *,
    anonymity: int = 0,
    noise: float = 0.0,
    invented: Tensor | None = None,
    seed: int = 0,
) -> CoOccurrence:
    """The counts as the server goes on with them.

    anonymity: pairs seen in fewer instances are forgotten. noise: deviation of Gaussian noise on every
    count; it hides how often a pair occurs, not that it does. invented: (C,) dummy entries there are of
    each label, in the mean.
    """
    extra = torch.zeros_like(counts.count) if invented is None else invented
    count = (counts.count - extra).clamp_min(0)
    first, second, together = counts.first, counts.second, counts.together
    if anonymity:
        often = together >= anonymity
        first, second, together = first[often], second[often], together[often]
    if noise:
        draw = randomness.generator(seed, "label counts")
        shaken = torch.from_numpy(draw.normal(0, noise, counts.classes)).float()
        count = (count + shaken).clamp_min(0)
        one_way = first < second  # both directions of a pair get the same
        drawn = torch.from_numpy(draw.normal(0, noise, int(one_way.sum()))).float()
        keys, wanted = (first * counts.classes + second)[one_way], torch.minimum(first, second)
        place = torch.searchsorted(keys, wanted * counts.classes + torch.maximum(first, second))
        together = (together + drawn[place] if len(drawn) else together).clamp_min(0)
    together = torch.minimum(together, torch.minimum(count[first], count[second]))  # σ stays above 0
    instances = max(counts.instances - float(extra.sum()), 1.0)
    return CoOccurrence(instances, count, first, second, together)


def digests_of(data: FederatedDataset, key: bytes) -> Digests:
    """HMAC-SHA-256 of the raw bytes of every example's inputs: (examples,)."""
    columns = [column for name, column in sorted(data.columns.items()) if name != "y"]
    parts = [_bytes_of(column) for column in columns]
    joined = (b"".join(pieces) for pieces in zip(*parts, strict=True))
    digests = b"".join(hmac.digest(key, b"instance" + one, "sha256") for one in joined)
    return np.frombuffer(digests, dtype=f"V{INSTANCE_BYTES}")


def _label_digests(rows: NDArray[np.int64], key: bytes) -> Digests:
    found = (hmac.digest(key, b"label" + row.tobytes(), "sha256")[:LABEL_BYTES] for row in rows)
    return np.frombuffer(b"".join(found), dtype=f"V{LABEL_BYTES}")


def _bytes_of(column: Column) -> Iterator[bytes]:
    """The same bytes for the same value, whoever holds it and in whatever order features are listed."""
    own = column.to(torch.device("cpu")).compact()
    if isinstance(own, Dense):
        for value in own.values:
            yield value.numpy().tobytes()
    elif isinstance(own, Sparse):
        for start, stop in pairwise(own.offsets.tolist()):
            ids, weights = own.ids[start:stop].long().numpy(), own.weights[start:stop].float().numpy()
            order = np.argsort(ids, kind="stable")
            yield ids[order].tobytes() + weights[order].tobytes()
    elif isinstance(own, Lists):
        lists = own.ragged()
        for i in range(len(lists)):
            yield lists[i].numpy().tobytes()
