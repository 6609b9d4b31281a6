"""The accepted updates of a cohort, side by side: what rules that look at all of them are given."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from spreadout.core.merging import MergeRules
from spreadout.core.types import Params, Tensors
from spreadout.federated.robust.groups import Groups


@dataclass(frozen=True)
class HeldRows:
    """Rows of a table with the client that holds each, and the weight it has in the row's mean."""

    ids: Tensor  # (n,)
    client: Tensor  # (n,) its number
    weight: Tensor  # (n,) float32
    values: Tensor  # (n, d)


@dataclass(frozen=True)
class Updates:
    """k clients' changes."""

    clients: Tensor  # (k,) their numbers
    weight: Tensor  # (k,) ω_i
    dense: Tensor  # (k, D) all dense tensors in one row
    rows: dict[str, HeldRows]

    def dense_groups(self) -> Groups:
        """The dense parts as one group."""
        return Groups.of(
            self.dense, self.weight, torch.tensor([len(self.dense)], device=self.dense.device)
        )

    def to(self, device: torch.device) -> Updates:
        rows = {
            name: HeldRows(*(part.to(device) for part in vars(held).values()))
            for name, held in self.rows.items()
        }
        return Updates(self.clients.to(device), self.weight.to(device), self.dense.to(device), rows)


def updates_of(
    change: Params,
    ids: Tensors,
    clients: Tensor,
    examples: Tensor,
    positives: Tensors,
    rules: MergeRules,
    accepted: Tensor,
) -> Updates:
    """The accepted (k,) of a stack of clients.

    change: (k, …), ids (k, m) with −1 for padding, examples (k,), positives (k, m) of counted tables.
    """
    own = accepted.nonzero()[:, 0]
    numbers = clients.to(own.device)
    rows = {}
    for name, values in change.rows.items():
        real = (ids[name] >= 0) & accepted[:, None]  # (k, m)
        holder = real.nonzero()[:, 0]
        if name in rules.counted:
            weight = rules.counted_examples(positives[name][real])
        else:
            weight = rules.row_weight(name, examples)[holder]
        rows[name] = HeldRows(ids[name][real], numbers[holder], weight, values[real])
    dense = torch.cat([value.flatten(1)[own] for value in change.dense.values()], 1)
    return Updates(numbers[own], rules.client_weight(examples)[own], dense, rows)


def joined(parts: Sequence[Updates]) -> Updates:
    """Of several groups of clients, in the order of their numbers: it does not matter who came first."""
    clients = torch.cat([part.clients for part in parts])
    order = torch.argsort(clients)
    rows = {}
    for name in parts[0].rows:
        held = [part.rows[name] for part in parts]
        every = HeldRows(*(torch.cat([vars(one)[at] for one in held]) for at in vars(held[0])))
        by_client = torch.argsort(every.client, stable=True)
        at = by_client[torch.argsort(every.ids[by_client], stable=True)]
        rows[name] = HeldRows(*(part[at] for part in vars(every).values()))
    weight = torch.cat([part.weight for part in parts])[order]
    dense = parts[0].dense if len(parts) == 1 else torch.cat([part.dense for part in parts])
    if not torch.equal(order, torch.arange(len(order), device=order.device)):
        dense = dense[order]
    return Updates(clients[order], weight, dense, rows)


def bucketed(updates: Updates, size: int, order: Tensor) -> Updates:
    """Means of the dense parts of `size` clients each, in a given order (k,): fewer, and more alike.

    Karimireddy, He and Jaggi (ICLR 2022): where clients differ, a rule that takes the odd one out for
    hostile works only after such averaging. A hostile client spoils its bucket.
    """
    if size == 1:
        return updates
    mixed, weight = updates.dense[order], updates.weight[order]
    lengths = torch.full((-(-len(mixed) // size),), size, device=mixed.device)
    lengths[-1] = len(mixed) - size * (len(lengths) - 1)
    groups = Groups.of(mixed, weight, lengths)
    return replace(
        updates,
        clients=updates.clients[: len(lengths)],
        weight=groups.totals(),
        dense=groups.mean(weight),
    )
