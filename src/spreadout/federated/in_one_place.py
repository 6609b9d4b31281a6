"""What the optimisers of data in one place remember from round to round.

A federated client begins every round from rest: it may not have taken part for long. With all data in
one place a round is only a stretch of one training, so Adam's moments and momentum go on.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from spreadout.core.state import ServerState
from spreadout.core.tables import local_of
from spreadout.core.types import Tensors
from spreadout.federated.federation import Federation

Memory = dict[str, Tensors]  # by tensor of the model: what its optimiser remembers
SHARED = "steps"  # the one number that all rows of a table share


def remembered(f: Federation, state: ServerState, ids: Mapping[str, Tensor]) -> Memory | None:
    """The memory for a round, to be changed by it; None where clients begin from rest.

    ids: of each table, the rows that are trained (m,).
    """
    if not f.keeps_optimizers:
        return None
    training, found = f.clients.training, Memory()
    for name, value in state.dense.items():
        found[name] = state.slots_for(_part(name), training.dense, value, lazy=False)
    for name, rows in ids.items():
        if name not in training.fixed:
            whole = state.slots_for(_part(name), training.rows[name], state.tables[name], lazy=False)
            found[name] = {slot: v if slot == SHARED else v[rows] for slot, v in whole.items()}
    return found


def keep_(state: ServerState, ids: Mapping[str, Tensor], memory: Memory | None) -> None:
    """Put a round's memory back, unless it has become useless: then the next round goes on without."""
    if memory is None:
        return
    every = [value for slots in memory.values() for value in slots.values()]
    if not bool(torch.stack([value.isfinite().all() for value in every]).all()):
        for name in memory:
            state.slots.pop(_part(name), None)
        return
    for name, rows in ids.items():
        for slot, value in memory.get(name, {}).items():
            if slot != SHARED:
                local_of(state.slots[_part(name)][slot])[rows] = value


def stacked(memory: Memory | None) -> Memory | None:
    """The same memory as a stack of one client's: views, which change with it."""
    if memory is None:
        return None
    return {
        name: {slot: v.reshape(-1) if slot == SHARED else v[None] for slot, v in slots.items()}
        for name, slots in memory.items()
    }


def _part(name: str) -> str:
    return f"in one place/{name}"
