"""Centred clipping with momentum (Karimireddy, He and Jaggi, ICML 2021).

    m_i ← (1 − β) Δ_i + β m_i                                Eq. (momentum), m_i = Δ_i at first
    v   ← v + Σ ω_i (m_i − v) min(1, τ / ‖m_i − v‖) / Σ ω_i   Eq. (CClip), `iterations` times

v starts where the round before ended. Hostile clients that hide in the spread of honest ones must do so
round after round in one direction, and momentum takes that spread away. Here the server computes m_i
from the updates it gets, so nobody can lie about it; it keeps one for each client that has taken part.

τ is `limit`, or where none is given the running quantile of ‖m_i − v‖. A row has no momentum and its
centre is 0: one client may own it.
"""

from __future__ import annotations

from typing import Literal

import torch
from pydantic import Field
from torch import Tensor

from spreadout.core.client_state import PerClient
from spreadout.core.types import Tensors
from spreadout.federated.robust.base import RobustRule, register_robust_rule
from spreadout.federated.robust.groups import Groups
from spreadout.federated.robust.limits import LIMIT, advance_limits_, quantile_of
from spreadout.federated.robust.updates import Updates

CENTRE, CLIENTS, VALUES = "centre", "momentum/clients", "momentum/values"
DISTANCE = "distance"  # the part whose limit is τ


@register_robust_rule
class CentredClipping(RobustRule):
    """It keeps one copy of the dense part, and with momentum one for each client."""

    name: Literal["centred_clipping"] = "centred_clipping"
    momentum: float = Field(0.0, ge=0, lt=1)  # β; 0.9 in the paper, which needs small steps
    limit: float | None = Field(None, gt=0)  # τ; None: the running quantile of distances
    iterations: int = Field(1, ge=1)

    def centre(self, groups: Groups) -> Tensor:
        """Of rows: their weighted mean. How far each may move is limited already."""
        return groups.mean(groups.weight)

    def dense_change(self, updates: Updates, memory: Tensors, seed: int) -> Tensor:
        values = self._momenta(updates, memory)
        groups = Groups.of(values, updates.weight, torch.tensor([len(values)], device=values.device))
        centre = memory.get(CENTRE, values.new_zeros(values.shape[1]))
        share = updates.weight / updates.weight.sum().clamp_min(1e-30)
        for step in range(self.iterations):
            distance = groups.distances(centre[None])
            if step == 0 and self.limit is None:
                self._set_limit(memory, distance)
            limit = memory[LIMIT + DISTANCE] if self.limit is None else self.limit
            pull = share * (limit / distance.clamp_min(1e-30)).clamp_max(1.0)
            centre = centre + pull @ values - pull.sum() * centre
        memory[CENTRE] = centre
        return centre

    def _set_limit(self, memory: Tensors, distance: Tensor) -> None:
        """τ of this round: what it was, a part of the way to what distances are now."""
        if quantile_of(distance, self.quantile) is not None:
            advance_limits_(memory, {DISTANCE: distance}, self.quantile)

    def _momenta(self, updates: Updates, memory: Tensors) -> Tensor:
        """m_i of these clients, and for their next time: (k, D)."""
        if self.momentum == 0:
            return updates.dense
        clients, change = updates.clients, updates.dense
        new = change
        kept = PerClient(memory[CLIENTS], memory[VALUES]) if CLIENTS in memory else None
        if kept is not None:
            known = torch.isin(clients, kept.clients)[:, None]
            before = kept.of(clients, like=change[0])
            new = torch.where(known, (1 - self.momentum) * change + self.momentum * before, change)
        own = PerClient(clients, new)
        kept = own if kept is None else kept.updated(own)
        memory[CLIENTS], memory[VALUES] = kept.clients, kept.values
        return new
