"""What a deployment's server knows of its clients: who they are, and how many examples each claims."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import torch

from spreadout.core.ragged import offsets_from_lengths
from spreadout.data.dataset import FederatedDataset


@dataclass(frozen=True)
class RemoteClients(FederatedDataset):
    """Clients by number and size. Columns have the form of their examples and hold none."""

    @classmethod
    def of(cls, form: FederatedDataset, sizes: Mapping[int, int]) -> RemoteClients:
        """The clients with these numbers and sizes, by ascending number."""
        numbers = sorted(sizes)
        lengths = torch.tensor([sizes[number] for number in numbers], dtype=torch.int64)
        return cls(
            form.columns,
            offsets_from_lengths(lengths),
            form.classes,
            form.row_columns,
            torch.tensor(numbers, dtype=torch.int64),
        )

    @cached_property
    def fingerprint(self) -> str:
        """Changes with who the clients are and how many examples they say they have."""
        assert self.numbers is not None
        digest = hashlib.sha256(f"{self.classes}".encode())
        digest.update(self.numbers.numpy().tobytes() + self.offsets.numpy().tobytes())
        return digest.hexdigest()[:16]
