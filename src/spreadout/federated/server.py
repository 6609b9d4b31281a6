"""The server's state as one explicit value, and the step that applies a merged cohort to it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor

from spreadout.federated.merge import Merged, MergeRules
from spreadout.federated.optimizers import Optimizer, step_dense_, step_rows_
from spreadout.federated.rows import Rows, Tensors, along_sphere, project_to_sphere, scatter_add_
from spreadout.federated.traffic import Traffic


@dataclass
class ServerState:
    """All that a run is, between two rounds. Draws depend on the seed and `round` alone.

    Tables are updated in place, because copying one costs what C costs; whoever needs an old state
    keeps a checkpoint of it.
    """

    round: int
    dense: Tensors
    tables: Tensors  # (C, d) each
    slots: dict[str, Tensors] = field(default_factory=dict)  # optimiser state by part
    memory: Tensors = field(default_factory=dict)  # what a method remembers between rounds
    traffic: Traffic = field(default_factory=Traffic)
    refused: Counter[str] = field(default_factory=Counter)
    begun: bool = False  # whether what comes before the first round is done

    def slots_for(self, part: str, optimizer: Optimizer, like: Tensor, *, lazy: bool) -> Tensors:
        """This part's optimiser state, made at first use; lazy state counts steps per row."""
        if part not in self.slots:
            self.slots[part] = optimizer.init(like, len(like) if lazy else None)
        return self.slots[part]


@dataclass(frozen=True)
class ServerOptimizers:
    """How merged updates move the model: one rule for the dense part, one per table."""

    dense: Optimizer
    tables: Mapping[str, Optimizer]


@torch.no_grad()
def apply_(
    state: ServerState,
    merged: Merged,
    rules: MergeRules,
    optimizers: ServerOptimizers,
    sphere: frozenset[str],
) -> None:
    """Move the model by the merged updates; rows no client touched stay as they are."""
    for name, change in merged.dense.items():
        value = state.dense[name]
        slots = state.slots_for(f"dense/{name}", optimizers.dense, value, lazy=False)
        step_dense_(optimizers.dense, value, -change, slots)
    for name, rows in merged.rows.items():
        table = state.tables[name]
        if rules.rows[name] == "replace":
            scatter_add_(table, rows)
            if name in sphere:
                table[rows.ids] = project_to_sphere(table[rows.ids])
        else:
            # A difference of rows, not a gradient: at rate 1 the mean of the clients' rows comes out.
            optimizer, gradient = optimizers.tables[name], Rows(rows.ids, -rows.values)
            slots = state.slots_for(f"tables/{name}", optimizer, table, lazy=True)
            step_rows_(optimizer, table, gradient, slots, sphere=name in sphere)


@torch.no_grad()
def descend_table_(
    state: ServerState, part: str, name: str, gradient: Rows, optimizer: Optimizer, *, sphere: bool
) -> None:
    """One lazy step of a table down a regulariser's gradient; `part` names whose state it is."""
    table = state.tables[name]
    slots = state.slots_for(part, optimizer, table, lazy=True)
    if sphere:
        gradient = Rows(gradient.ids, along_sphere(gradient.values, table[gradient.ids]))
    step_rows_(optimizer, table, gradient, slots, sphere=sphere)
