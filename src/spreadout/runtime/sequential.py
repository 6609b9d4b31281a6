"""The reference executor: one client after another, exactly as a server and its clients would do it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import torch

from spreadout.core.ragged import Ragged
from spreadout.core.rows import Rows, SubModel, Update, nbytes, sub_model
from spreadout.core.state import ServerState
from spreadout.core.traffic import Traffic
from spreadout.core.types import Params
from spreadout.federated import aggregate as merge
from spreadout.federated import checks
from spreadout.federated.aggregate import Aggregate
from spreadout.federated.batches import positives_of, row_ids, row_info
from spreadout.federated.local import local_update
from spreadout.federated.round import Cohort, Federation
from spreadout.federated.schedule import plan
from spreadout.privacy.mechanism import add_noise_, clip_norm


def sequential(federation: Federation, state: ServerState, cohort: Cohort) -> Iterator[Aggregate]:
    """Send each client its sub-model, train it, check what comes back."""
    sizes = {name: len(table) for name, table in state.tables.items()}
    for i, client in enumerate(cohort.clients.tolist()):
        request = {name: rows[i].to(federation.device) for name, rows in cohort.requests.items()}
        sent = sub_model(state.round, state.dense, state.tables, request)
        own = replace(federation, data=federation.data.view(client))
        update = train_client(own, sent)
        reason = checks.validate_update(
            update,
            sent,
            client=int(own.data.number_of(torch.tensor([0]))[0]),
            table_sizes=sizes,
            fixed=federation.training.fixed,
            counted=federation.rules.counted,
            max_norm=federation.max_norm,
            max_examples=federation.schedule.max_examples,
        )
        part = merge.refused(reason) if reason else merge.of_update(update, federation.rules)
        keeps = "keeps_fixed" in state.memory and bool(state.memory["keeps_fixed"][client])
        part.traffic = traffic_of(sent, update, federation.training.fixed if keeps else frozenset())
        yield part


def train_client(federation: Federation, sent: SubModel) -> Update:
    """All that one client does in a round: from the sub-model it was sent to the update it returns.

    `federation.data` is the client's own view: there is nobody else's example in it to look at.
    """
    f = federation
    only = torch.tensor([0])
    client = int(f.data.number_of(only)[0])
    sizes = f.data.sizes
    steps = plan(f.schedule, sizes, f.data.number_of(only), seed=f.seed, round=sent.round)
    requests = {name: Ragged.from_lists([rows.ids.cpu()]) for name, rows in sent.tables.items()}
    ids = row_ids(requests, f.device)
    stack = f.batches(only, steps, ids, sent.round)
    start = Params(sent.dense, {name: rows.values for name, rows in sent.tables.items()})
    stacked = row_info(f.data, only, ids, own=f.method.needs_own, popularity=f.method.needs_popularity)
    info = stacked.at(0)
    batches = {name: column[0] for name, column in stack.items()}
    change, loss = local_update(f.objective(), f.present_training, start, batches, info)
    if f.privacy is not None:
        change = clip_norm(change, f.privacy.clip)
        add_noise_(change.dense, change.rows, f.privacy, seed=f.seed, round=sent.round, client=client)
    tables = {name: Rows(sent.tables[name].ids, value) for name, value in change.rows.items()}
    examples = int(f.schedule.usable(sizes)[0])
    used = torch.tensor([examples])
    counted = [name for name in tables if name in f.rules.counted]
    positives = {name: positives_of(f.data, only, ids[name], used)[0] for name in counted}
    return Update(client, sent.round, examples, change.dense, tables, float(loss), positives)


def traffic_of(sent: SubModel, update: Update, kept: frozenset[str] = frozenset()) -> Traffic:
    """The bytes of one client's round trip, from the objects themselves.

    kept: tables whose rows the client was sent before, and which never change.
    """
    tables = [rows for name, rows in sent.tables.items() if name not in kept]
    return Traffic(
        dense_down=nbytes(sent.dense.values()),
        rows_down=sum(rows.nbytes for rows in tables),
        requests_up=nbytes(rows.ids for rows in tables),
        dense_up=nbytes(update.dense.values()),
        rows_up=sum(rows.nbytes for rows in update.tables.values()) + nbytes(update.positives.values()),
        participations=1,
    )
