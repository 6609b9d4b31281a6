"""The reference executor: one client after another, exactly as a server and its clients would do it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import torch

from spreadout.core.client_state import ClientStates
from spreadout.core.ragged import Ragged
from spreadout.core.rows import Rows, SubModel, Update, nbytes, sub_model
from spreadout.core.state import ServerState
from spreadout.core.traffic import Traffic
from spreadout.core.types import Params, Tensors
from spreadout.federated import aggregate, central, checks
from spreadout.federated.aggregate import Aggregate
from spreadout.federated.batches import cohort_batches, positives_of, row_ids, row_info
from spreadout.federated.cohort import Cohort
from spreadout.federated.drift.control import new_states, offsets, sent_control, state_changes
from spreadout.federated.example_noise import example_noise
from spreadout.federated.executor import Executor, register_executor
from spreadout.federated.federation import Federation
from spreadout.federated.in_one_place import Memory, keep_, remembered
from spreadout.federated.local import local_update
from spreadout.federated.robust import merging as robust
from spreadout.privacy.mechanism import clip_norm, simulate_noise_, without_non_finite


@register_executor("sequential")
class Sequential(Executor):
    """Sends each client its sub-model, trains it, and checks what comes back.

    >>> import spreadout as so
    >>> alone = so.Experiment.of({"rounds": 1, "run": {"executor": "sequential"}})
    >>> so.run(alone).metrics == so.run(so.Experiment(rounds=1)).metrics  # as clients side by side
    True
    """

    def train(self, federation: Federation, state: ServerState, cohort: Cohort) -> Iterator[Aggregate]:
        f = federation
        sizes = {name: len(table) for name, table in state.tables.items()}
        for i, client in enumerate(cohort.clients.tolist()):
            request = {name: rows[i].to(f.device) for name, rows in cohort.requests.items()}
            control = sent_control(f, state)
            sent = self.sent_to(f, state, request, control)
            own = replace(f, data=f.data.view(client))
            memory = remembered(f, state, request)
            update, kept = train_client(own, sent, state.clients, memory)
            keep_(state, request, memory)
            reason = checks.validate_update(
                update,
                sent,
                client=int(own.data.number_of(torch.tensor([0]))[0]),
                table_sizes=sizes,
                fixed=f.clients.training.fixed,
                counted=f.rules.counted,
                max_norm=f.clients.max_norm,
                max_examples=1 if f.hides_sizes else f.clients.schedule.max_examples,
                private=f.clients.privacy is not None,
            )
            part = aggregate.refused(reason) if reason else accepted(f, state, update, control)
            part.client_states = {} if reason else kept  # a refused update has changed nothing
            new = bool(state.records.lacks_fixed_rows(cohort.clients[i : i + 1]))
            kept_rows = frozenset() if new else f.clients.training.fixed
            part.traffic = self.traffic(f, state, sent, update, kept_rows)
            yield part

    def sent_to(self, f: Federation, state: ServerState, request: Tensors, control: Tensors) -> SubModel:
        """What a client gets for its request."""
        return sub_model(state.round, state.dense, state.tables, request, control)

    def traffic(
        self, f: Federation, state: ServerState, sent: SubModel, update: Update, kept: frozenset[str]
    ) -> Traffic:
        """The bytes of a client's round trip; kept: tables whose rows it has already."""
        return traffic_of(sent, update, kept)


def accepted(federation: Federation, state: ServerState, update: Update, control: Tensors) -> Aggregate:
    """One accepted update as an aggregate of one; with how far the client's state has moved by it.

    control: as the client was sent it.
    """
    f = federation
    change = stack_of(update)
    ids = {name: rows.ids[None] for name, rows in update.tables.items()}
    if f.noises_sums:
        bounded, lengths = central.clipped_stack(f, state, change)
    else:
        bounded, lengths = robust.looked_at(f, state, change, ids)
    part = aggregate.of_update(_with_change(update, bounded), f.rules)
    part.lengths = lengths
    part.updates = robust.held(
        f,
        bounded,
        ids,
        torch.tensor([update.client]),
        torch.tensor([update.examples], device=f.device),
        {name: counts[None] for name, counts in update.positives.items()},
        torch.ones(1, dtype=torch.bool, device=f.device),
    )
    # Only corrections that keep states ask for steps, and they are refused where sizes are hidden.
    steps = f.clients.schedule.steps_of(torch.tensor([update.examples]))
    moved = state_changes(f, change, steps, control, update.round)
    part.control = {name: part.weight * value[0] for name, value in moved.items()}
    return part


def stack_of(update: Update) -> Params:
    """An update as a stack of one."""
    return Params(
        {name: value[None] for name, value in update.dense.items()},
        {name: rows.values[None] for name, rows in update.tables.items()},
    )


def _with_change(update: Update, change: Params) -> Update:
    """The update with another change, given as a stack of one."""
    return replace(
        update,
        dense={name: value[0] for name, value in change.dense.items()},
        tables={name: Rows(update.tables[name].ids, value[0]) for name, value in change.rows.items()},
    )


def train_client(
    federation: Federation, sent: SubModel, states: ClientStates, memory: Memory | None = None
) -> tuple[Update, ClientStates]:
    """All that one client does in a round: from the sub-model it was sent to the update it returns.

    `federation.data` is the client's own view and holds no other client's examples. states: what it
    keeps from earlier rounds. memory: what its optimisers do, where all data is in one place. Returns
    the update, and what the client keeps until its next round.
    """
    f = federation
    only = torch.tensor([0])
    client = int(f.data.number_of(only)[0])
    number = torch.tensor([client])
    examples = int(f.clients.schedule.usable(f.data.sizes)[0])
    if not examples:  # it says so, and has nothing else to send
        return Update(client, sent.round, 0, {}, {}, 0.0), {}
    steps = f.plan(only, sent.round)
    requests = {name: Ragged.from_lists([rows.ids.cpu()]) for name, rows in sent.tables.items()}
    ids = row_ids(requests, f.device)
    corrupt = f.corruption(only, sent.round)
    stack = cohort_batches(f.data, only, steps, ids, f.device, corrupt)
    start = Params(sent.dense, {name: rows.values for name, rows in sent.tables.items()})
    stacked = Params(*({name: value[None] for name, value in part.items()} for part in start))
    added = offsets(f, stacked, number, states, sent.control)
    offset = added and Params(*({n: v[0] for n, v in part.items()} for part in added))
    method = f.method
    info = row_info(
        f.data,
        only,
        ids,
        own=method.needs_own,
        popularity=method.needs_popularity,
        counts=method.needs_counts,
    ).at(0)
    batches = {name: column[0] for name, column in stack.items()}
    training = f.training_at(sent.round)
    private = example_noise(f, number, sent.round)
    change, loss = local_update(
        f.objective(),
        training,
        start,
        batches,
        info,
        offset=offset,
        examples=private,
        memory=memory,
    )
    back = {name: rows.ids for name, rows in sent.tables.items()}
    if method.returns_own_rows and "classes" in change.rows:
        mine = info.own["classes"]
        back["classes"], change.rows["classes"] = back["classes"][mine], change.rows["classes"][mine]
    moved = Params(*({name: value[None] for name, value in part.items()} for part in change))
    changes = state_changes(f, moved, steps.steps, sent.control, sent.round)
    kept = new_states(states, number, changes)
    privacy = f.clients.privacy
    if f.noises_sums or private is not None:
        change = without_non_finite(change)  # clipped by the server, or before
    elif privacy is not None:
        change = clip_norm(change, privacy.clip)
        simulate_noise_(change.dense, change.rows, privacy, seed=f.seed, round=sent.round, client=client)
    tables = {name: Rows(back[name], value) for name, value in change.rows.items()}
    used = torch.tensor([examples])
    counted = [name for name in tables if name in f.rules.counted]
    positives = {name: positives_of(f.data, only, back[name][None], used)[0] for name in counted}
    told = 1 if f.hides_sizes else examples
    said = float("nan") if privacy is not None else float(loss)
    return Update(client, sent.round, told, change.dense, tables, said, positives), kept


def traffic_of(sent: SubModel, update: Update, kept: frozenset[str] = frozenset()) -> Traffic:
    """The bytes of one client's round trip, from the objects themselves.

    kept: tables whose rows the client was sent before, and which never change.
    """
    tables = [rows for name, rows in sent.tables.items() if name not in kept]
    return Traffic(
        dense_down=nbytes([*sent.dense.values(), *sent.control.values()]),
        rows_down=sum(rows.nbytes for rows in tables),
        requests_up=nbytes(rows.ids for rows in tables),
        dense_up=nbytes(update.dense.values()),
        rows_up=sum(rows.nbytes for rows in update.tables.values()) + nbytes(update.positives.values()),
        participations=1,
    )
