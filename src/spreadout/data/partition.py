"""Who holds what: ways to deal labelled examples to clients. Each is a function of a seed."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from spreadout import randomness
from spreadout.data.federated import Column, FederatedDataset
from spreadout.ragged import Ragged, offsets_from_lengths


def by_label(x: Tensor, labels: Ragged, classes: int) -> FederatedDataset:
    """One client per label. An instance with several labels lives on several clients, each of which
    knows only its own label of it; a label without instances is a client without data."""
    instance = torch.repeat_interleave(torch.arange(len(labels)), labels.lengths)
    order = torch.argsort(labels.values, stable=True)
    held = labels.values[order]
    columns = {"x": Column(x, instance[order]), "y": Column(held)}
    lengths = torch.bincount(held, minlength=classes)
    return FederatedDataset(columns, offsets_from_lengths(lengths), classes)


def iid(x: Tensor, labels: Ragged, classes: int, *, clients: int, seed: int) -> FederatedDataset:
    """Examples (one per instance and label) dealt at random into clients of nearly equal size."""
    instance = torch.repeat_interleave(torch.arange(len(labels)), labels.lengths)
    bits = randomness.bits(randomness.key(seed, "iid"), np.arange(len(instance)))
    order = torch.from_numpy(np.argsort(bits))
    columns = {"x": Column(x, instance[order]), "y": Column(labels.values[order])}
    lengths = torch.full((clients,), len(order) // clients)
    lengths[: len(order) % clients] += 1
    return FederatedDataset(columns, offsets_from_lengths(lengths), classes)
