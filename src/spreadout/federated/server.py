"""The server's state as one explicit value, and the step that applies a merged cohort to it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from spreadout.federated.merge import Merged, MergeRules
from spreadout.federated.optimizers import Optimizer, step_dense_, step_rows_
from spreadout.federated.rows import Rows, Tensors, along_sphere, project_to_sphere, scatter_add_
from spreadout.federated.tables import Sharded, Table, Tables, local_of
from spreadout.federated.traffic import Traffic


@dataclass
class ServerState:
    """All that a run is, between two rounds. Draws depend on the seed and `round` alone.

    Tables are updated in place, because copying one costs what C costs; whoever needs an old state
    keeps a checkpoint of it.
    """

    round: int
    dense: Tensors
    tables: Tables  # (C, d) each
    slots: dict[str, Tables] = field(default_factory=dict)  # optimiser state by part
    memory: Tensors = field(default_factory=dict)  # what a method remembers between rounds
    traffic: Traffic = field(default_factory=Traffic)
    refused: Counter[str] = field(default_factory=Counter)
    begun: bool = False  # whether what comes before the first round is done

    def whole(self, *, slots: bool = True) -> ServerState:
        """With no table sharded: all rows on the first process's host, none of those tables' on others.

        slots: whether what optimisers remember is wanted too.
        """
        if not any(isinstance(table, Sharded) for table in self.tables.values()):
            return self

        def gathered(tables: Tables) -> Tables:
            return {n: t.whole() if isinstance(t, Sharded) else t for n, t in tables.items()}

        kept = {part: gathered(named) for part, named in self.slots.items()} if slots else {}
        return replace(self, tables=gathered(self.tables), slots=kept)

    def slots_for(self, part: str, optimizer: Optimizer, like: Table, *, lazy: bool) -> Tensors:
        """This part's optimiser state, made at first use and for what is here; lazy: steps per row."""
        if part not in self.slots:
            here = local_of(like)
            made = optimizer.init(here, len(here) if lazy else None)
            self.slots[part] = dict(made)
            if isinstance(like, Sharded):
                self.slots[part] = {name: replace(like, local=slot) for name, slot in made.items()}
        return {name: local_of(slot) for name, slot in self.slots[part].items()}


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
        table, rows = _here(whole, changed)
        if rules.rows[name] == "replace":
            scatter_add_(table, rows)
            if name in sphere:
                table[rows.ids] = project_to_sphere(table[rows.ids])
        else:
            # A difference of rows, not a gradient: at rate 1 the mean of the clients' rows comes out.
            optimizer, gradient = optimizers.tables[name], Rows(rows.ids, -rows.values)
            slots = state.slots_for(f"tables/{name}", optimizer, whole, lazy=True)
            step_rows_(optimizer, table, gradient, slots, sphere=name in sphere)


@torch.no_grad()
def descend_table_(
    state: ServerState, part: str, name: str, gradient: Rows, optimizer: Optimizer, *, sphere: bool
) -> None:
    """One lazy step of a table down a regulariser's gradient; `part` names whose state it is."""
    slots = state.slots_for(part, optimizer, state.tables[name], lazy=True)
    table, gradient = _here(state.tables[name], gradient)
    if sphere:
        gradient = Rows(gradient.ids, along_sphere(gradient.values, table[gradient.ids]))
    step_rows_(optimizer, table, gradient, slots, sphere=sphere)


def _here(table: Table, rows: Rows) -> tuple[Tensor, Rows]:
    """The part of a table that is here, and what is to happen to it."""
    return (table.local, table.own(rows)) if isinstance(table, Sharded) else (local_of(table), rows)
