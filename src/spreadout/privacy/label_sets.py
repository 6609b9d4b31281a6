"""Which labels an instance has, when each of them is known to another client (FedALC, §IV-E).

Every client sends, once, a keyed digest of each of its instances with a keyed digest of its label. The
server merges equal digests into label sets. Without the key, which the clients share, a digest cannot be
tried against candidate instances as an unkeyed hash of guessable data could. What the server does learn:
the label set of every (nameless) instance, and which clients hold the same one. Other requests
of a client, such as the rows of a lookup, may reveal more.

Digests are of the raw bytes: embeddings are not the same to the last bit on every machine.
"""

from __future__ import annotations

import hashlib
import hmac
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from spreadout.core import randomness
from spreadout.core.ragged import Ragged
from spreadout.data.columns import Column, Dense, Lists, Sparse
from spreadout.data.dataset import FederatedDataset
from spreadout.objectives.cooccurrence import CoOccurrence

INSTANCE_BYTES, LABEL_BYTES = 32, 8
MOST_LABELS = 1000  # of one instance: its pairs grow with their square
Digests = NDArray[np.void]


@dataclass(frozen=True)
class LabelMessage:
    """What one client sends about its labels: an entry per example, and the row of each label."""

    instances: Digests  # (n,) of 32 bytes
    labels: Digests  # (n,) of 8 bytes
    row_labels: Digests  # (m,) of 8 bytes: the labels of the rows it requests …
    rows: NDArray[np.int64]  # (m,) … and those rows


def messages_of(
    data: FederatedDataset, key: bytes, *, dummies: int = 0, seed: int = 0
) -> Iterator[LabelMessage]:
    """Every client's message, its entries in random order. A message depends on its client's view only.

    dummies: a client adds between 0 and twice so many entries that stand for no instance, each under one
    of its labels. They hide how many examples it has only from whoever is not told that in other ways.
    """
    digests = digests_of(data, key)
    labels = data.columns["y"].take(torch.arange(data.examples)).cpu().numpy()
    named = _label_digests(np.arange(data.classes), key)
    numbers = data.number_of(torch.arange(data.clients)).tolist()
    for number, (start, stop) in zip(numbers, pairwise(data.offsets.tolist()), strict=True):
        instances, own = digests[start:stop], labels[start:stop]
        rows = np.unique(own)
        secret = hashlib.shake_256(repr((seed, "label message", number)).encode()).digest(64)
        draw = np.random.default_rng(int.from_bytes(secret[:32], "big"))
        if dummies and len(rows):
            count = int(draw.integers(0, 2 * dummies + 1))
            # Of a keyed hash, as the others are: bytes of a plain generator could be told from them.
            more = hashlib.shake_256(secret[32:]).digest(count * INSTANCE_BYTES)
            invented = np.frombuffer(more, dtype=instances.dtype)
            instances = np.concatenate([instances, invented])
            own = np.concatenate([own, draw.choice(rows, size=count)])
        order = draw.permutation(len(own))
        yield LabelMessage(instances[order], named[own[order]], named[rows], rows)


def collection_key(seed: int) -> bytes:
    """The secret the clients of a simulation share; real clients are given theirs."""
    return hashlib.sha256(f"label sets of {seed}".encode()).digest()


def received(arrays: Mapping[str, NDArray[Any]]) -> LabelMessage | None:
    """A client's message out of the arrays that came; None if they are no such thing."""
    wanted = {
        "instances": f"V{INSTANCE_BYTES}",
        "labels": f"V{LABEL_BYTES}",
        "row_labels": f"V{LABEL_BYTES}",
        "rows": "int64",
    }
    if arrays.keys() != wanted.keys():
        return None
    if any(arrays[name].ndim != 1 or arrays[name].dtype != kind for name, kind in wanted.items()):
        return None
    return LabelMessage(**arrays)


@dataclass(frozen=True)
class Collected:
    """What the server makes of all messages."""

    sets: Ragged  # the labels of every instance
    holders: Tensor  # (C,) who was taken to hold a class; one that holds m is a share 1/m of each
    refused: Counter[str]  # messages by reason


def wrong_message(
    message: LabelMessage, classes: int, row_of: dict[bytes, int], label_of: dict[int, bytes]
) -> str | None:
    """Why the server must refuse a message, or None. row_of, label_of: from the messages before it."""
    if len(message.instances) != len(message.labels) or len(message.row_labels) != len(message.rows):
        return "malformed"
    if len(message.rows) and not (message.rows.min() >= 0 and message.rows.max() < classes):
        return "unknown rows"
    own = dict(zip(message.row_labels.tolist(), message.rows.tolist(), strict=True))
    if len(own) != len(message.rows) or len(set(own.values())) != len(own):
        return "repeated rows"
    if any(row_of.get(a, row) != row or label_of.get(row, a) != a for a, row in own.items()):
        return "rows that others have under another label"
    if not set(message.labels.tolist()) <= own.keys():
        return "labels without a row"
    return None


def label_sets(messages: Iterable[LabelMessage | None], classes: int) -> Collected:
    """The server's merge: equal digests are one instance, and its labels are all it was sent under.

    A message is None if it could not be read.
    """
    row_of: dict[bytes, int] = {}
    label_of: dict[int, bytes] = {}
    holders = torch.zeros(classes)
    taken: list[LabelMessage] = []
    refused: Counter[str] = Counter()
    for message in messages:
        reason = "malformed" if message is None else wrong_message(message, classes, row_of, label_of)
        if message is None or reason:
            refused[f"label message: {reason}"] += 1
            continue
        labels, own = message.row_labels.tolist(), message.rows.tolist()
        row_of.update(zip(labels, own, strict=True))
        label_of.update(zip(own, labels, strict=True))
        holders[own] += 1 / max(len(own), 1)
        taken.append(message)
    if not row_of:
        return Collected(Ragged.from_lists([]), holders, refused)
    known = np.frombuffer(b"".join(row_of), dtype=f"V{LABEL_BYTES}")
    order = np.argsort(known)
    rows = np.fromiter(row_of.values(), dtype=np.int64)[order]
    digests, instance = np.unique(np.concatenate([one.instances for one in taken]), return_inverse=True)
    label = rows[np.searchsorted(known[order], np.concatenate([one.labels for one in taken]))]
    sets = Ragged.from_pairs(
        torch.from_numpy(instance.reshape(-1)), torch.from_numpy(label), len(digests)
    )
    many = sets.lengths > MOST_LABELS
    if bool(many.any()):
        refused["label set: too many labels"] += int(many.sum())
        sets = sets.select((~many).nonzero()[:, 0])
    return Collected(sets, holders, refused)


def guarded(
    counts: CoOccurrence,
    *,
    anonymity: int = 0,
    noise: float = 0.0,
    invented: Tensor | None = None,
    seed: int | None = 0,
) -> CoOccurrence:
    """The counts that the server uses.

    anonymity: pairs seen in fewer instances are forgotten. noise: deviation of Gaussian noise on every
    count; it hides how often a pair occurs, not that it does. invented: (C,) dummy entries there are of
    each label, in the mean. seed: None for the operating system's entropy.
    """
    extra = torch.zeros_like(counts.count) if invented is None else invented
    count = (counts.count - extra).clamp_min(0)
    first, second, together = counts.first, counts.second, counts.together
    if anonymity:
        often = together >= anonymity
        first, second, together = first[often], second[often], together[often]
    if noise:
        draw = np.random.default_rng() if seed is None else randomness.generator(seed, "label counts")
        shaken = torch.from_numpy(draw.normal(0, noise, counts.classes)).float()
        count = (count + shaken).clamp_min(0)
        one_way = first < second  # both directions of a pair get the same
        drawn = torch.from_numpy(draw.normal(0, noise, int(one_way.sum()))).float()
        keys, wanted = (first * counts.classes + second)[one_way], torch.minimum(first, second)
        place = torch.searchsorted(keys, wanted * counts.classes + torch.maximum(first, second))
        together = (together + drawn[place] if len(drawn) else together).clamp_min(0)
    together = torch.minimum(together, torch.minimum(count[first], count[second]))  # σ stays above 0
    most = float(count.max()) if len(count) else 0.0
    instances = max(counts.instances - float(extra.sum()), most, 1.0)  # a share is at most 1
    return CoOccurrence(instances, count, first, second, together)


def digests_of(data: FederatedDataset, key: bytes) -> Digests:
    """HMAC-SHA-256 of every example's raw inputs, computed once an instance: (examples,)."""
    columns = [column for name, column in sorted(data.columns.items()) if name != "y"]
    stored: NDArray[np.intp] = np.arange(data.examples)
    if columns and all(column.index is not None for column in columns):
        together = torch.stack([column.index.cpu() for column in columns if column.index is not None])
        _, first, stored = np.unique(together.numpy(), axis=1, return_index=True, return_inverse=True)
        columns = [column.select(torch.from_numpy(first)) for column in columns]
    parts = [_bytes_of(column) for column in columns]
    joined = (b"".join(pieces) for pieces in zip(*parts, strict=True))
    digests = b"".join(hmac.digest(key, b"instance" + one, "sha256") for one in joined)
    each: Digests = np.frombuffer(digests, dtype=f"V{INSTANCE_BYTES}")
    return each[stored.reshape(-1)]


def _label_digests(rows: NDArray[np.int64], key: bytes) -> Digests:
    found = (hmac.digest(key, b"label" + row.tobytes(), "sha256")[:LABEL_BYTES] for row in rows)
    return np.frombuffer(b"".join(found), dtype=f"V{LABEL_BYTES}")


def _bytes_of(column: Column) -> Iterator[bytes]:
    """The same bytes for the same value, whoever holds it and in whichever form.

    A vector is its features that are not 0, ascending, whether a holder keeps it sparse or dense.
    """
    own = column.to(torch.device("cpu")).compact()
    if isinstance(own, Dense) and own.values.dim() == 2:
        for value in own.values.numpy():
            (ids,) = np.nonzero(value)
            yield ids.astype(np.int64).tobytes() + value[ids].astype(np.float32).tobytes()
    elif isinstance(own, Dense):
        for value in own.values:
            yield (value + 0 if value.is_floating_point() else value).numpy().tobytes()  # no −0
    elif isinstance(own, Sparse):
        for start, stop in pairwise(own.offsets.tolist()):
            ids, place = np.unique(own.ids[start:stop].long().numpy(), return_inverse=True)
            weights = np.bincount(place, own.weights[start:stop].double().numpy(), len(ids))
            kept = weights != 0
            yield ids[kept].tobytes() + weights[kept].astype(np.float32).tobytes()
    elif isinstance(own, Lists):
        lists = own.ragged()
        for i in range(len(lists)):
            yield lists[i].numpy().tobytes()
