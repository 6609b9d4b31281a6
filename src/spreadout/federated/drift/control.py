"""Drift correction in a round: offsets before it, clients' states and the server's control after it.

A part of the model has one name: a dense tensor its own, a table that all clients hold `table/NAME`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from spreadout.core.client_state import ClientStates, PerClient
from spreadout.core.rows import project_to_sphere
from spreadout.core.state import ServerState
from spreadout.core.tables import local_of
from spreadout.core.types import Params, Tensors
from spreadout.federated.aggregate import Aggregate

if TYPE_CHECKING:
    from spreadout.federated.federation import Federation

TABLE = "table/"


def parts_of(federation: Federation, params: Params) -> Iterator[tuple[str, Tensor]]:
    """The tensors of a client, or of a stack, that have an offset; by part."""
    yield from params.dense.items()
    for table in sorted(federation.corrected_tables & params.rows.keys()):
        yield TABLE + table, params.rows[table]


def sent_control(federation: Federation, state: ServerState) -> Tensors:
    """What clients are sent with the model: the server's control, where they need it."""
    drift = federation.clients.drift
    if drift is None or not drift.sends_control:
        return {}
    found = dict(state.control)
    for name, value in parts_of(federation, model_of(federation, state)):
        if name not in found:
            found[name] = torch.zeros_like(value)
    return found


def model_of(federation: Federation, state: ServerState) -> Params:
    """The server's model as a client that holds all classes has it."""
    first = federation.model.first_class
    tables = {name: local_of(state.tables[name])[first:] for name in federation.corrected_tables}
    return Params(state.dense, tables)


def offsets(
    federation: Federation,
    start: Params,
    clients: Tensor,
    states: ClientStates,
    control: Mapping[str, Tensor],
) -> Params | None:
    """What is added to the gradients of a stack of clients; None where nothing is.

    start: with a leading k. clients (k,): their numbers. control: as they were sent it.
    """
    drift = federation.clients.drift
    if drift is None or not drift.keeps_state:
        return None
    found = Params({}, {})
    for part, value in parts_of(federation, start):
        like = value[0]
        own = states[part].of(clients, like) if part in states else torch.zeros_like(value)
        added = drift.offset(own, control.get(part, torch.zeros_like(like)))
        if part.startswith(TABLE):
            found.rows[part.removeprefix(TABLE)] = added
        else:
            found.dense[part] = added
    return found


def state_changes(
    federation: Federation,
    change: Params,
    steps: Tensor,
    control: Mapping[str, Tensor],
    round: int,
) -> Tensors:
    """How far the states of a stack of clients move, by part: (k, …). steps (k,): those each took."""
    drift = federation.clients.drift
    if drift is None or not drift.keeps_state:
        return {}
    training, found = federation.training_at(round), {}
    for part, moved in parts_of(federation, change):
        rule = training.rows[part.removeprefix(TABLE)] if part.startswith(TABLE) else training.dense
        travelled = (rule.lr * steps.to(moved)).clamp_min(1e-30).view(-1, *[1] * (moved.dim() - 1))
        sent = control.get(part, torch.zeros_like(moved[0]))
        found[part] = drift.state_change(sent, moved, travelled)
    return found


def new_states(states: ClientStates, clients: Tensor, changes: Mapping[str, Tensor]) -> ClientStates:
    """The states of a stack of clients after a round; a change that is not finite does not count."""
    if not changes:
        return {}
    sound = torch.stack([c.flatten(1).isfinite().all(1) for c in changes.values()]).all(0)  # (k,)
    at = sound.nonzero()[:, 0]
    order = at[torch.argsort(clients.to(at.device)[at])]
    numbers, found = clients.to(order.device)[order], {}
    for part, change in changes.items():
        moved = change[order]
        before = states[part].of(numbers, moved.new_zeros(moved.shape[1:])) if part in states else 0.0
        found[part] = PerClient(numbers, before + moved)
    return found


@torch.no_grad()
def advance_control_(federation: Federation, state: ServerState, aggregate: Aggregate) -> None:
    """The server's control is the mean of all clients' states: it moves by those that took part.

    Then the correction may shift the model that the merge has made.
    """
    f, drift = federation, federation.clients.drift
    if drift is None or not drift.keeps_state:
        return
    everyone = f.clients.schedule.usable(f.data.sizes)
    weights = f.rules.client_weight(torch.from_numpy(everyone[np.flatnonzero(everyone)]))
    total = float(weights.sum())
    for part, value in parts_of(f, model_of(f, state)):
        control = state.control.setdefault(part, torch.zeros_like(value))
        if part in aggregate.control:
            control += aggregate.control[part] / total
        shifted = drift.shift(value, control)
        if shifted is not value:
            sphere = part.startswith(TABLE) and part.removeprefix(TABLE) in f.model.sphere
            value.copy_(project_to_sphere(shifted) if sphere else shifted)
