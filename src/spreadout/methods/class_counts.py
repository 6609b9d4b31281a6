"""How many examples each class has: counted once, before the first round, for a prior over classes.

A client tells the server how often it has each of its classes. Where it has one class only, the server
learns nothing new: it hears that number with every update.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from spreadout.core.state import ServerState
from spreadout.core.traffic import Traffic
from spreadout.data.dataset import FederatedDataset
from spreadout.models.embedding import EmbeddingModel

SetupMessage = Mapping[str, NDArray[Any]]  # what one client sends once, before the first round
MOST = 2**31  # examples of one class on one client; more is refused


def messages_of(data: FederatedDataset) -> Iterator[SetupMessage]:
    """The classes each client has, ascending, and how often: `classes` and `counts`, int64."""
    named, times = data.label_counts
    classes, counts = named.values.numpy(), times.values.numpy()
    for first, last in pairwise(named.offsets.tolist()):
        yield {"classes": classes[first:last], "counts": counts[first:last]}


def collect_(
    messages: Iterable[SetupMessage], state: ServerState, model: EmbeddingModel, most: int | None = None
) -> Traffic:
    """Add up n_c over the clients; what is malformed is refused and counted.

    most: examples that a client may count for; one that says more has all its counts scaled down.
    """
    total, sent = np.zeros(model.tables["classes"].count), 0
    for message in messages:
        classes, counts = message.get("classes"), message.get("counts")
        if classes is None or counts is None or not is_count(classes, counts, len(total)):
            state.refused["class counts: malformed"] += 1
            continue
        said = int(counts.sum())
        total[classes] += counts if most is None or said <= most else counts * (most / said)
        sent += classes.nbytes + counts.nbytes
    device = state.tables["classes"].device
    state.scoring["counts"] = torch.from_numpy(total).float().to(device)
    return Traffic(once_up=sent)


def is_count(classes: NDArray[Any], counts: NDArray[Any], of: int) -> bool:
    """Whether these are classes and how often a client has each."""
    if not is_row_list(classes, of) or counts.dtype != np.int64 or counts.shape != classes.shape:
        return False
    return not len(counts) or bool(counts.min() > 0 and counts.max() < MOST)


def is_row_list(rows: NDArray[Any], count: int) -> bool:
    """Whether these are distinct rows of a table of so many, ascending, as a client must name them."""
    if rows.dtype != np.int64 or rows.ndim != 1:
        return False
    if not len(rows):
        return True
    if rows[0] < 0 or rows[-1] >= count:
        return False
    return len(rows) == 1 or bool((rows[1:] > rows[:-1]).all())  # a million clients have one class each


def shares(counts: Tensor) -> Tensor:
    """Of classes with examples, how many they have over the mean; 1 of others: (C,).

    >>> shares(torch.tensor([6.0, 2.0, 0.0]))
    tensor([1.5000, 0.5000, 1.0000])
    """
    known = counts.sum() / (counts > 0).sum().clamp_min(1)
    return torch.where(counts > 0, counts / known, 1.0)


def one_client_per_class(data: FederatedDataset) -> bool:
    """Whether each client has one class that no other has: then its n_i is the class's n_c."""
    rows = data.rows_of(torch.arange(data.clients))["classes"]
    return bool((rows.lengths <= 1).all()) and len(torch.unique(rows.values)) == len(rows.values)
