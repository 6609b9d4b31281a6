"""What a federation's data looks like: who holds how much, of what, and how unlike others they are."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from spreadout.core import randomness
from spreadout.core.randomness import Bits, Ints
from spreadout.data.columns import Column, Dense, Lists, Sparse
from spreadout.data.dataset import FederatedDataset
from spreadout.data.held_out import Examples
from spreadout.data.splits import Splits

Floats = npt.NDArray[np.float64]
LabelCounts = tuple[Ints, Ints]  # a client's labels, and how often it holds each
PAIRS = 2000  # pairs of clients looked at for the divergence between them
ENTRIES = 1 << 22  # input values hashed in one go


@dataclass(frozen=True)
class Spread:
    """How some numbers are distributed."""

    least: float
    quarter: float
    median: float
    three_quarters: float
    most: float
    mean: float

    @classmethod
    def of(cls, values: Ints | Floats) -> Spread:
        if not len(values):
            values = np.array([np.nan])
        least, quarter, median, three, most = np.quantile(values, [0, 0.25, 0.5, 0.75, 1]).tolist()
        return cls(least, quarter, median, three, most, float(np.mean(values)))


@dataclass(frozen=True)
class Description:
    """Counts and distributions. Divergences are in nats."""

    name: str
    dealt: str  # the partition, targets and seed, in words
    clients: int
    empty_clients: int
    examples: int  # of all clients: an instance on two clients counts twice
    instances: int  # distinct ones among them
    classes: int
    classes_held: int  # that some client has an example of
    test: int
    validation: int
    test_classes_never_trained: int
    duplicates: int  # instances whose inputs equal those of another one
    test_in_training: int  # test inputs that also occur in training
    sizes: Spread
    classes_per_client: Spread
    divergence_from_all: Spread  # KL(client ‖ everyone together)
    divergence_between: Spread  # KL(client ‖ another client), smoothed
    size_of: Ints  # (clients,)
    classes_of: Ints  # (clients,)
    label_counts: Ints  # descending, classes that occur
    notes: tuple[str, ...] = ()  # of the source, on how the files were read

    def as_dict(self) -> dict[str, Any]:
        """Everything but the long lists, for JSON."""
        lists = ("size_of", "classes_of", "label_counts")
        return {key: value for key, value in asdict(self).items() if key not in lists}


def describe(splits: Splits, *, dealt: str = "", seed: int = 0) -> Description:
    """Look at all of it, in bounded blocks."""
    data = splits.train
    client, label, count = _label_counts(data)
    per_class = np.bincount(label, weights=count, minlength=data.classes).astype(np.int64)
    busy = data.sizes > 0
    labelled = np.bincount(client, minlength=data.clients) > 0  # others have no distribution
    inputs = [column for name, column in sorted(data.columns.items()) if name != "y"]
    instances = _instances(inputs, data.examples)
    trained, tested = _input_hashes(inputs, instances), _test_hashes(splits.test)
    test_labels = splits.test.labels.values
    return Description(
        name=splits.name,
        dealt=dealt,
        clients=data.clients,
        empty_clients=int((~busy).sum()),
        examples=data.examples,
        instances=len(instances),
        classes=data.class_count,
        classes_held=int((per_class > 0).sum()),
        test=len(splits.test),
        validation=0 if splits.validation is None else len(splits.validation),
        test_classes_never_trained=len(torch.unique(test_labels[test_labels >= data.classes])),
        duplicates=len(trained) - len(np.unique(trained)),
        test_in_training=int(np.isin(tested, trained).sum()),
        sizes=Spread.of(data.sizes[busy]),
        classes_per_client=Spread.of(np.bincount(client, minlength=data.clients)[busy]),
        divergence_from_all=Spread.of(
            _from_all(client, label, count, per_class, data.clients)[labelled]
        ),
        divergence_between=Spread.of(
            _between(client, label, count, data.class_count, np.flatnonzero(labelled), seed)
        ),
        size_of=data.sizes,
        classes_of=np.bincount(client, minlength=data.clients),
        label_counts=np.sort(per_class[per_class > 0])[::-1],
        notes=splits.notes,
    )


def _label_counts(data: FederatedDataset) -> tuple[Ints, Ints, Ints]:
    """Client, label and how often, for every label a client holds; by client, then label."""
    column = data.columns["y"]
    owner = torch.repeat_interleave(torch.arange(data.clients), data.offsets.diff())
    if isinstance(column, Lists):
        lists = column.ragged()
        owner, labels = torch.repeat_interleave(owner, lists.lengths), lists.values
    else:
        labels = column.take(torch.arange(data.examples))
    pair, count = torch.unique(owner * data.classes + labels, return_counts=True)
    return (pair // data.classes).numpy(), (pair % data.classes).numpy(), count.numpy()


def _from_all(client: Ints, label: Ints, count: Ints, per_class: Ints, clients: int) -> Floats:
    """KL(p_i ‖ p) for every client i, p being all clients' labels together: it is always finite."""
    mine = count / np.bincount(client, weights=count, minlength=clients)[client]
    everyone = per_class[label] / per_class.sum()
    terms = mine * np.log(mine / everyone)
    return np.asarray(np.bincount(client, weights=terms, minlength=clients), dtype=np.float64)


def _between(client: Ints, label: Ints, count: Ints, classes: int, busy: Ints, seed: int) -> Floats:
    """KL(p_a ‖ p_b) over random pairs of clients (all pairs of few).

    Clients often share no class, where the divergence is infinite; so every distribution is smoothed by
    one more example, spread evenly over all classes.
    """
    if len(busy) < 2:
        return np.empty(0)
    if len(busy) * (len(busy) - 1) <= PAIRS:
        a, b = np.divmod(np.arange(len(busy) ** 2), len(busy))
    else:
        bits = randomness.bits(randomness.key(seed, "divergence"), np.arange(2 * PAIRS))
        a, b = (bits % np.uint64(len(busy))).astype(np.int64).reshape(2, -1)
    first = np.searchsorted(client, np.arange(busy.max() + 2))

    def of(i: int) -> LabelCounts:
        mine = slice(first[busy[i]], first[busy[i] + 1])
        return label[mine], count[mine]

    pairs = [(i, j) for i, j in zip(a.tolist(), b.tolist(), strict=True) if i != j]
    return np.array([_divergence(of(i), of(j), classes) for i, j in pairs])


def _divergence(a: LabelCounts, b: LabelCounts, classes: int) -> float:
    union = np.union1d(a[0], b[0])
    p, q = (_smoothed(union, *labels, classes) for labels in (a, b))
    bare = [1 / classes / (1 + count.sum()) for _, count in (a, b)]  # of a class neither has
    rest = (classes - len(union)) * bare[0] * np.log(bare[0] / bare[1])
    return float((p * np.log(p / q)).sum() + rest)


def _smoothed(union: Ints, label: Ints, count: Ints, classes: int) -> Floats:
    dense = np.full(len(union), 1 / classes)
    dense[np.searchsorted(union, label)] += count
    return np.asarray(dense / (1 + count.sum()), dtype=np.float64)


def _instances(inputs: list[Column], examples: int) -> Tensor:
    """Which examples are the first of their instance: one per value that is shared by several."""
    index = inputs[0].index if inputs else None
    if index is None:
        return torch.arange(examples)
    order = torch.argsort(index, stable=True)
    fresh = torch.ones(len(order), dtype=torch.bool)
    fresh[1:] = index[order][1:] != index[order][:-1]
    return order[fresh].sort().values


def _test_hashes(test: Examples) -> Bits:
    columns = [column for _, column in sorted(test.inputs.items())]
    return _input_hashes(columns, torch.arange(len(test)))


def _input_hashes(inputs: list[Column], at: Tensor) -> Bits:
    """64 bits for the inputs of every example at these places: equal inputs, equal bits."""
    found = np.zeros(len(at), dtype=np.uint64)
    for number, column in enumerate(inputs):
        rows = max(1, ENTRIES // _entries(column))
        for start in range(0, len(at), rows):
            own = randomness.bits(number, _hashes(column, at[start : start + rows]).view(np.int64))
            with np.errstate(over="ignore"):
                found[start : start + rows] += own
    return found


def _entries(column: Column) -> int:
    """About how many numbers an example stores in this column."""
    stored = {n: t.numel() for n, t in column.tensors().items() if n != "index"}
    return max(1, max(stored.values()) // max(column.count, 1))


def _hashes(column: Column, at: Tensor) -> Bits:
    """Σ over an example's entries of the mixed (place, value): order within it does not matter."""
    if isinstance(column, Dense):
        values = _bitwise(column.select(at).compact().values)
        place = np.arange(values.shape[1])
        with np.errstate(over="ignore"):
            mixed = randomness.bits(1, place, values)
            return np.asarray(mixed.sum(1, dtype=np.uint64))
    if isinstance(column, Lists):
        lists = column.ragged(at)
        start = torch.repeat_interleave(lists.offsets[:-1], lists.lengths)
        place = (torch.arange(len(start)) - start).numpy()
        return _sums(randomness.bits(3, place, lists.values.numpy()), lists.offsets.numpy())
    own = column.select(at).compact()
    assert isinstance(own, Sparse)
    entries = randomness.bits(2, own.ids.numpy(), own.weights.float().numpy().view(np.int32))
    return _sums(entries, own.offsets.numpy())


def _sums(entries: Bits, offsets: Ints) -> Bits:
    """Sums of runs of entries, wrapping around."""
    with np.errstate(over="ignore"):
        running = np.concatenate([np.zeros(1, np.uint64), np.cumsum(entries, dtype=np.uint64)])
        return np.asarray(running[offsets[1:]] - running[offsets[:-1]])


def _bitwise(values: Tensor) -> npt.NDArray[np.int64]:
    """Any values as whole numbers, bit for bit: (n, entries)."""
    flat = np.ascontiguousarray(values.reshape(len(values), -1).numpy())
    size = flat.dtype.itemsize
    return np.asarray(flat.view({1: np.uint8, 2: np.int16, 4: np.int32, 8: np.int64}[size]), np.int64)
