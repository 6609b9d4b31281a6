"""The step that applies a merged cohort to the server's state."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch

from spreadout.core.merging import MergeRules
from spreadout.core.optimizers import Optimizer, step_dense_, step_rows_
from spreadout.core.rows import Rows, project_to_sphere, scatter_add_
from spreadout.core.state import ServerState, rows_here
from spreadout.federated.aggregate import Merged


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
    for name, changed in merged.rows.items():
        whole = state.tables[name]
        table, rows = rows_here(whole, changed)
        if rules.rows[name] == "replace":
            scatter_add_(table, rows)
            if name in sphere:
                table[rows.ids] = project_to_sphere(table[rows.ids])
        else:
            # A difference of rows, not a gradient: at rate 1 the mean of the clients' rows comes out.
            optimizer, gradient = optimizers.tables[name], Rows(rows.ids, -rows.values)
            slots = state.slots_for(f"tables/{name}", optimizer, whole, lazy=True)
            step_rows_(optimizer, table, gradient, slots, sphere=name in sphere)
