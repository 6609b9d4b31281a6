"""Spectral filtering: clients that pull together, away from the others, are left out of a round.

Divide and conquer (Shejwalkar and Houmansadr, NDSS 2021), without its sampling of coordinates. Dense
parts x_i are scaled down to the running limit of lengths. With v the direction in which they differ
most, the first right singular vector of √ω_i (x_i − x̄),

    s_i = |(x_i − x̄) · v|

and the `trim` of the clients with the largest s_i are left out; the others are averaged. Where clients
hold few labels, honest updates are as long as hostile ones and point everywhere. To move the mean,
hostile ones must point the same way, and that makes a direction in which clients differ much.

Rows of a client that is left out do not count, unless nobody else holds them. The others are scaled down
to the running limit of all rows of a client together, and averaged.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import torch
from pydantic import Field
from torch import Tensor

from spreadout.core.types import Tensors
from spreadout.federated.robust.base import RobustRule, register_robust_rule
from spreadout.federated.robust.groups import Groups
from spreadout.federated.robust.limits import DENSE, ROWS, limits_in
from spreadout.federated.robust.updates import HeldRows, Updates


@register_robust_rule
class Spectral(RobustRule):
    """`trim` must be at least the share of hostile clients."""

    name: Literal["spectral"] = "spectral"
    trim: float = Field(0.1, gt=0, lt=0.5)

    def centre(self, groups: Groups) -> Tensor:
        return groups.mean(groups.weight)

    def kept(self, updates: Updates, memory: Tensors) -> Updates:
        scale = _scale(updates, memory)
        inner = scale[:, None] * updates.dense_groups().products() * scale[None, :]  # (k, k)
        stays = ~_furthest(inner, updates.weight.double(), int(self.trim * len(scale) + 1e-9))
        limits = limits_in(memory)
        rows = {
            name: _left(
                _shortened(held, updates.clients, limits.get(ROWS + name)), updates.clients[stays]
            )
            for name, held in updates.rows.items()
        }
        return replace(updates, weight=updates.weight * stays, rows=rows)

    def dense_change(self, updates: Updates, memory: Tensors, seed: int) -> Tensor:
        share = updates.weight / updates.weight.sum().clamp_min(1e-30)
        return (share * _scale(updates, memory).to(share.dtype)) @ updates.dense


def _scale(updates: Updates, memory: Tensors) -> Tensor:
    """What brings each dense part down to the limit: (k,) float64."""
    groups = updates.dense_groups()
    lengths = groups.distances(updates.dense.new_zeros(1, updates.dense.shape[1])).double()
    return (limits_in(memory)[DENSE] / lengths.clamp_min(1e-300)).clamp_max(1.0)


def _furthest(inner: Tensor, weight: Tensor, many: int) -> Tensor:
    """Which so many of the vectors with these inner products (k, k) are furthest out: (k,)."""
    share = weight / weight.sum().clamp_min(1e-300)
    to_mean = inner @ share
    centred = inner - to_mean[:, None] - to_mean[None, :] + share @ to_mean
    root = share.sqrt()
    first = torch.linalg.eigh(root[:, None] * centred * root[None, :]).eigenvectors[:, -1]
    away = (centred @ (root * first)).abs()  # s_i, times a number
    found = torch.zeros_like(away, dtype=torch.bool)
    found[away.topk(many).indices] = True
    return found


def _shortened(held: HeldRows, clients: Tensor, limit: Tensor | None) -> HeldRows:
    """With no client's rows together longer than the limit; clients in ascending order."""
    if limit is None:
        return held
    holder = torch.searchsorted(clients, held.client)  # (n,)
    squares = held.values.double().square().sum(1)
    lengths = squares.new_zeros(len(clients)).index_add_(0, holder, squares).sqrt()  # (k,)
    scale = (limit / lengths.clamp_min(1e-300)).clamp_max(1.0).to(held.values.dtype)
    return replace(held, values=held.values * scale[holder][:, None])


def _left(held: HeldRows, stay: Tensor) -> HeldRows:
    """With no weight for clients that do not stay, but in rows that nobody else holds."""
    if not len(held.ids):
        return held
    weight = held.weight * torch.isin(held.client, stay)
    groups = Groups.of(held.values, weight, torch.unique_consecutive(held.ids, return_counts=True)[1])
    orphaned = (groups.totals() == 0)[groups.group]
    return replace(held, weight=torch.where(orphaned, held.weight, weight))
