"""Robust rules in a round: what they hold of a cohort, what they make of it, what they keep."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from spreadout.core import randomness
from spreadout.core.errors import UserError
from spreadout.core.rows import Rows, nbytes
from spreadout.core.state import ServerState
from spreadout.core.tables import row_bytes
from spreadout.core.types import Params, Tensors
from spreadout.federated import aggregate as sums
from spreadout.federated.aggregate import Aggregate
from spreadout.federated.robust.groups import Groups
from spreadout.federated.robust.limits import (
    ROW,
    advance_limits_,
    lengths_of,
    limited,
    limited_rows,
    limits_in,
)
from spreadout.federated.robust.updates import HeldRows, Updates, joined, updates_of

if TYPE_CHECKING:
    from spreadout.federated.cohort import Cohort
    from spreadout.federated.federation import Federation

COPIES = 2  # of all updates: as they come, and side by side


def needs_first_limits(federation: Federation, state: ServerState) -> bool:
    """Whether updates are limited one by one, and it is not yet known to what."""
    rule = federation.server.robust
    return rule is not None and rule.limits_updates and not limits_in(state.robust)


def set_first_limits(federation: Federation, state: ServerState, lengths: Tensors) -> None:
    """Limits out of the lengths of a first round's updates."""
    assert federation.server.robust is not None
    advance_limits_(state.robust, lengths, federation.server.robust.quantile)


def looked_at(
    federation: Federation,
    state: ServerState,
    change: Params,
    ids: Tensors,
) -> tuple[Params, Tensors]:
    """A stack's changes as they may enter a sum, and how long they were: (k,) by part."""
    rule = federation.server.robust
    if rule is None:
        return change, {}
    lengths = lengths_of(change, ids)
    if rule.limits_updates:
        change = limited(change, lengths, limits_in(state.robust), rule.row_limit)
    return change, lengths


def held(
    federation: Federation,
    change: Params,
    ids: Tensors,
    clients: Tensor,
    examples: Tensor,
    positives: Tensors,
    accepted: Tensor,
) -> list[Updates]:
    """The accepted updates of a stack, where the rule wants to see them all."""
    rule = federation.server.robust
    if rule is None or not rule.holds_updates or not bool(accepted.any()):
        return []
    return [updates_of(change, ids, clients, examples, positives, federation.rules, accepted)]


@torch.no_grad()
def merged(
    federation: Federation, state: ServerState, aggregate: Aggregate
) -> tuple[Tensors, dict[str, Rows]]:
    """The change of the cohort, by the run's rule or as a mean; what the rule keeps moves on."""
    f, rule = federation, federation.server.robust
    if rule is None or not rule.holds_updates:
        found = sums.merge(aggregate, f.rules)
        if rule is not None:
            advance_limits_(state.robust, aggregate.lengths, rule.quantile)
        return found
    if not aggregate.clients:
        return {}, {}
    advance_limits_(state.robust, aggregate.lengths, rule.quantile)
    updates = rule.kept(joined(aggregate.updates), state.robust)
    aggregate.updates.clear()
    flat = rule.dense_change(updates, state.robust, randomness.key(f.seed, "robust", state.round))
    total = updates.weight.sum()
    limits = limits_in(state.robust)
    rows = {
        name: _merged_rows(f, name, some, total, limits.get(ROW + name))
        for name, some in updates.rows.items()
    }
    pieces = torch.split(flat, [value.numel() for value in state.dense.values()])
    shaped = zip(state.dense.items(), pieces, strict=True)
    return {name: piece.view(value.shape) for (name, value), piece in shaped}, rows


def _merged_rows(f: Federation, name: str, held: HeldRows, total: Tensor, limit: Tensor | None) -> Rows:
    """Every row's own aggregation, over the clients that hold it."""
    rule = f.server.robust
    assert rule is not None
    ids, lengths = torch.unique_consecutive(held.ids, return_counts=True)
    values = limited_rows(held.values, limit, rule.row_limit)
    if not len(ids):
        return Rows(ids, values)
    groups = Groups.of(values, held.weight, lengths)
    found = rule.row_centre(groups)
    if f.rules.rows[name] == "sum":  # zeros where a client does not hold the row
        found = found * (groups.totals() / total)[:, None]
    found = torch.where(groups.totals()[:, None] > 0, found, torch.zeros_like(found))
    return Rows(ids, found)


def refuse_too_many(federation: Federation, state: ServerState, cohort: Cohort) -> None:
    """Rules that hold every update need room for them, in each process."""
    f, rule = federation, federation.server.robust
    if rule is None or not rule.holds_updates:
        return
    dense = len(cohort.clients) * nbytes(state.dense.values())
    rows = sum(
        every.values.numel() * (row_bytes(state.tables[name]) + 24)
        for name, every in cohort.requests.items()
        if name not in f.clients.training.fixed
    )
    needed = COPIES * (dense + rows)
    if needed > f.server.memory:
        raise UserError(
            f"server.robust = {rule.name!r}: holds all {len(cohort.clients):,} updates of a round, "
            f"{needed / 2**30:.2g} GB, and run.memory_gb = {f.server.memory / 2**30:g}; "
            'raise it, lower clients.per_round, or take "norm_clipping", which holds none'
        )
