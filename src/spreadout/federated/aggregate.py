"""Aggregation: what the cohort's updates add up to, how sums become changes, and the step they make.

An `Aggregate` is a sum that can be taken in any grouping: chunk by chunk in the simulator, process
by process, or reply by reply from real clients. `merge` then divides by the right weight.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from spreadout.core.client_state import ClientStates, PerClient
from spreadout.core.merging import MergeRules, RowSum
from spreadout.core.optimizers import Optimizer, step_rows_, step_tensors_
from spreadout.core.rows import Rows, Update, nbytes, project_to_sphere, scatter_add_, sum_by_id
from spreadout.core.state import ServerState
from spreadout.core.tables import rows_here
from spreadout.core.traffic import Traffic
from spreadout.core.types import Tensors
from spreadout.federated.robust.updates import Updates

MOST_AT_ONCE = 1 << 28  # bytes of tensors that are moved together


@dataclass
class Aggregate:
    """The accepted updates of a cohort, summed; and what was refused, by reason."""

    dense: Tensors = field(default_factory=dict)  # Σ ω_i Δ_i
    weight: float = 0.0  # Σ ω_i
    rows: dict[str, RowSum] = field(default_factory=dict)
    clients: int = 0
    examples: int = 0
    loss_sum: float | Tensor = 0.0  # a tensor while the device still computes it
    refused: Counter[str] = field(default_factory=Counter)
    traffic: Traffic = field(default_factory=Traffic)
    control: Tensors = field(default_factory=dict)  # Σ ω_i · how far client i's state moved, by part
    client_states: ClientStates = field(default_factory=dict)  # of simulated clients, by part
    # For a robust rule: how long the accepted updates are, (clients,) by part, and where the rule holds
    # them the updates themselves.
    lengths: Tensors = field(default_factory=dict)
    updates: list[Updates] = field(default_factory=list)
    # Running means and variances of a norm over the whole cohort, moved by this round (`CohortNorm`).
    statistics: Tensors = field(default_factory=dict)


@dataclass(frozen=True)
class ServerOptimizers:
    """How merged updates move the model: one rule for the dense part, one per table."""

    dense: Optimizer
    tables: Mapping[str, Optimizer]
    weight_decay: float = 0.0  # of matrices and kernels of the dense part; not of biases, nor of rows

    def scaled(self, factor: float) -> ServerOptimizers:
        """The same rules at other rates."""
        if factor == 1:
            return self
        tables = {name: rule.scaled(factor) for name, rule in self.tables.items()}
        return replace(self, dense=self.dense.scaled(factor), tables=tables)


def of_update(update: Update, rules: MergeRules) -> Aggregate:
    """One accepted update as an aggregate of one."""
    examples = torch.tensor([update.examples])
    weight = float(rules.client_weight(examples))
    rows = {}
    for name, changed in update.tables.items():
        each = torch.ones(len(changed), device=changed.values.device)
        if name in rules.counted:
            counts = rules.counted_examples(update.positives[name])
            rows[name] = RowSum(changed.ids, changed.values * counts[:, None], each, counts)
            continue
        total = changed.values * float(rules.row_weight(name, examples))
        rows[name] = RowSum(changed.ids, total, each, each * float(rules.counted_examples(examples)))
    dense = {name: value * weight for name, value in update.dense.items()}
    return Aggregate(dense, weight, rows, 1, update.examples, update.loss)


def refused(reason: str, clients: int = 1) -> Aggregate:
    return Aggregate(refused=Counter({reason: clients}))


def merge(aggregate: Aggregate, rules: MergeRules) -> tuple[Tensors, dict[str, Rows]]:
    """The mean change of the cohort: the sums divided by their weights. Of no clients, nothing."""
    if aggregate.clients == 0:
        return {}, {}
    dense = _over(aggregate.dense, aggregate.weight)
    rows = {}
    for name, summed in aggregate.rows.items():
        if rules.rows[name] == "sum":
            rows[name] = Rows(summed.ids, summed.total / aggregate.weight)
        else:
            weighted = rules.rows[name] in ("weighted-mean", "positives")
            weight = summed.examples if weighted else summed.holders
            weight = weight.clamp_min(1e-12)  # a row with no positive anywhere: 0 of it moves
            rows[name] = Rows(summed.ids, summed.total / weight[:, None])
    return dense, rows


def _over(sums: Tensors, weight: float) -> Tensors:
    """Sums divided by one weight, in few kernels."""
    values = list(sums.values())
    return dict(zip(sums, torch._foreach_div(values, weight), strict=True)) if values else {}


@torch.no_grad()
def apply_(
    state: ServerState,
    dense: Tensors,
    rows: Mapping[str, Rows],
    rules: MergeRules,
    optimizers: ServerOptimizers,
    sphere: frozenset[str],
) -> None:
    """Move the model by the merged changes; rows no client touched stay as they are."""
    _step_dense_(state, dense, optimizers)
    for name, changed in rows.items():
        whole = state.tables[name]
        table, here = rows_here(whole, changed)
        if rules.rows[name] == "replace":
            scatter_add_(table, here)
            if name in sphere:
                table[here.ids] = project_to_sphere(table[here.ids])
        else:
            # A difference of rows, not a gradient: at rate 1 the mean of the clients' rows comes out.
            optimizer, gradient = optimizers.tables[name], Rows(here.ids, -here.values)
            slots = state.slots_for(f"tables/{name}", optimizer, whole, lazy=True)
            step_rows_(optimizer, table, gradient, slots, sphere=name in sphere)


def _step_dense_(state: ServerState, dense: Tensors, optimizers: ServerOptimizers) -> None:
    """All tensors together where copies of them are no burden, else one after another."""
    groups = [list(dense)] if nbytes(dense.values()) <= MOST_AT_ONCE else [[name] for name in dense]
    for names in groups if dense else []:
        values = [state.dense[name] for name in names]
        gradients = torch._foreach_neg([dense[name] for name in names])
        decayed = [i for i, value in enumerate(values) if value.dim() > 1]
        if optimizers.weight_decay and decayed:  # a part of the gradient, as torch.optim.SGD has it
            some, theirs = [gradients[i] for i in decayed], [values[i] for i in decayed]
            torch._foreach_add_(some, theirs, alpha=optimizers.weight_decay)
        slots = [
            state.slots_for(f"dense/{name}", optimizers.dense, value, lazy=False)
            for name, value in zip(names, values, strict=True)
        ]
        step_tensors_(optimizers.dense, values, gradients, slots)


def total(parts: Iterable[Aggregate]) -> Aggregate:
    """The sum of the parts, with every row id once."""
    result = Aggregate()
    pieces: dict[str, list[RowSum]] = {}
    states: dict[str, list[PerClient]] = {}
    lengths: dict[str, list[Tensor]] = {}
    for part in parts:
        for name, value in part.dense.items():
            # Not in place: the part keeps its own tensor. A single part is not copied.
            result.dense[name] = result.dense[name] + value if name in result.dense else value
        for name, rows in part.rows.items():
            pieces.setdefault(name, []).append(rows)
        result.weight += part.weight
        result.clients += part.clients
        result.examples += part.examples
        result.loss_sum += part.loss_sum
        result.refused += part.refused
        result.traffic += part.traffic
        for name, value in part.control.items():
            result.control[name] = result.control[name] + value if name in result.control else value
        for name, theirs in part.client_states.items():
            states.setdefault(name, []).append(theirs)
        for name, some in part.lengths.items():
            lengths.setdefault(name, []).append(some)
        result.updates += part.updates
        result.statistics |= part.statistics
        del part  # frees its memory before the next part is made
    result.client_states = {name: PerClient.joined(some) for name, some in states.items()}
    result.lengths = {name: torch.cat(some) for name, some in lengths.items()}
    for name, several in pieces.items():
        if len(several) == 1:  # it has every id once already
            result.rows[name] = several[0]
            continue
        columns = (torch.cat(column) for column in zip(*map(_fields, several), strict=True))
        result.rows[name] = RowSum(*sum_by_id(*columns))
    return result


def _fields(rows: RowSum) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    return rows.ids, rows.total, rows.holders, rows.examples
