"""What stays with clients from round to round: one tensor for each client that has taken part."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

from spreadout.core.rows import nbytes


@dataclass(frozen=True)
class PerClient:
    """A tensor for each of some clients; for all others it is zero.

    >>> kept = PerClient(torch.tensor([2, 7]), torch.tensor([[1.0], [2.0]]))
    >>> kept.of(torch.tensor([7, 3]), like=torch.zeros(1)).tolist()
    [[2.0], [0.0]]
    """

    clients: Tensor  # (n,) int64, ascending
    values: Tensor  # (n, …)

    def of(self, clients: Tensor, like: Tensor) -> Tensor:
        """The tensors of these clients: (k, …). like: a tensor of the same shape as one of them."""
        found = like.new_zeros(len(clients), *like.shape)
        if len(self.clients):
            wanted = clients.to(self.clients.device)
            place = torch.searchsorted(self.clients, wanted).clamp_max(len(self.clients) - 1)
            known = self.clients[place] == wanted
            found[known.to(found.device)] = self.values[place[known]].to(found)
        return found

    def updated(self, new: PerClient) -> PerClient:
        """With some clients' tensors replaced, and those of new clients added."""
        place = torch.searchsorted(self.clients, new.clients)
        at = place.clamp_max(max(len(self.clients) - 1, 0))
        known = self.clients[at] == new.clients if len(self.clients) else torch.zeros_like(at).bool()
        if bool(known.all()):  # the usual case once all have taken part: in place, nothing is sorted
            self.values[at] = new.values
            return self
        clients = torch.cat([self.clients[~torch.isin(self.clients, new.clients)], new.clients])
        kept = self.values[~torch.isin(self.clients, new.clients)]
        order = torch.argsort(clients)
        return PerClient(clients[order], torch.cat([kept, new.values])[order])

    @classmethod
    def joined(cls, parts: Iterable[PerClient]) -> PerClient:
        """Of several groups of clients, no client in two of them."""
        every = list(parts)
        clients = torch.cat([part.clients for part in every])
        order = torch.argsort(clients)
        return cls(clients[order], torch.cat([part.values for part in every])[order])

    @property
    def nbytes(self) -> int:
        return nbytes([self.values])


ClientStates = dict[str, PerClient]  # by the part of the model they belong to
