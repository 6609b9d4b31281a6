"""The executor whose clients are on other machines: it sends models and checks what comes back.

A round costs one message a node: its clients' updates come back together with the requests of those
who are in the next round. Where a request is not known yet (a node that was away), it costs one more.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import ClassVar, NamedTuple

import numpy as np
import torch
from flwr.app import ArrayRecord, RecordDict
from torch import Tensor

from spreadout.core.ragged import Ragged
from spreadout.core.rows import Rows, SubModel, Update, gather, nbytes, sub_model
from spreadout.core.state import ServerState
from spreadout.core.traffic import Traffic
from spreadout.core.types import Tensors
from spreadout.federated import aggregate as merge
from spreadout.federated import checks
from spreadout.federated.aggregate import Aggregate
from spreadout.federated.cohort import Cohort, draw_clients
from spreadout.federated.drift.control import sent_control
from spreadout.federated.executor import Executor, Heard
from spreadout.federated.federation import Federation
from spreadout.federated.robust import merging as robust
from spreadout.federated.robust.limits import lengths_of
from spreadout.federated.sampling import sample_in_secret
from spreadout.flower import bounds, messages
from spreadout.flower.messages import TRAIN, Malformed
from spreadout.flower.nodes import Nodes
from spreadout.flower.refusals import NOBODY
from spreadout.flower.releases import ReleaseLog
from spreadout.flower.rpc import NOT_CONNECTED, Call, Replies
from spreadout.methods.class_counts import SetupMessage
from spreadout.privacy.keystream import KeyStream
from spreadout.runtime.sequential import accepted, stack_of

NO_UPDATE = "no update"
NOT_SELECTED = "update of a client that was not asked"


class Verdict(NamedTuple):
    """What came of a client that was asked."""

    client: int
    node: int
    update: Update | None
    reason: str | None  # why it is refused


@dataclass
class GridExecutor(Executor):
    """Clients on the nodes of a Flower grid."""

    clients_elsewhere: ClassVar[bool] = True
    nodes: Nodes
    log: ReleaseLog | None = None  # of a private run
    _why: dict[int, str] = field(default_factory=dict)  # clients that cannot train in this round
    _ahead: dict[int, Tensor] = field(default_factory=dict)  # round → who was drawn for it in secret

    def setup_messages(self, federation: Federation) -> Iterator[SetupMessage]:
        """What clients sent before the first round."""
        return self.nodes.setup_messages()

    def heard_requests(self, federation: Federation, cohort: Cohort) -> Iterator[Heard]:
        """All that nodes have said, of clients that were not trained too; whoever answered first."""
        heard, self.nodes.heard = self.nodes.heard, []
        return iter(sorted(heard))

    def releases(self, state: ServerState) -> Mapping[int, int]:
        """As they were asked for, in rounds that a crash took back too."""
        return super().releases(state) if self.log is None else self.log.counts

    def cohort(self, federation: Federation, state: ServerState) -> Cohort:
        """Who takes part, and the rows each requests; none for a client that could not be reached."""
        f, round, nodes = federation, state.round, self.nodes
        nodes.public = f.method.public_state(state)
        nodes.meet(round)
        nodes.tell()
        places = self._drawn(f, round)
        self._ahead.clear()  # used once: a round that comes again is drawn again
        clients = f.data.number_of(places).tolist()
        self._why = nodes.fetch_requests(clients, round)
        granted = [self._granted(client, round) for client in clients]
        nothing = torch.empty(0, dtype=torch.int64)
        tables = {
            table: Ragged.from_lists([rows.get(table, nothing) for rows in granted])
            for table in f.model.tables
        }
        return Cohort(round, places, tables)

    def _drawn(self, f: Federation, round: int) -> Tensor:
        """Who takes part in a round.

        Where the server's noise counts on it, nobody can know: every draw has a key of its own, which is
        kept nowhere. A crash forgets the draw of a round ahead, whose nodes may know that they were in
        it; the draw that takes its place owes nothing to it.
        """
        if not f.noises_sums:
            return draw_clients(f, round)
        if round not in self._ahead:
            server, clients = f.server, f.data.clients
            drawn = sample_in_secret(server.selection, clients, server.per_round, KeyStream())
            self._ahead[round] = drawn
        return self._ahead[round]

    def _granted(self, client: int, round: int) -> Tensors:
        """The rows a client requested, if they are known and it may have them."""
        request = self.nodes.request_of(client, round)
        if request is None:
            self._why.setdefault(client, NOT_CONNECTED)
            return {}
        if reason := self.nodes.access.denial(client, request):
            self._why[client] = reason
            return {}
        return request

    def train(self, federation: Federation, state: ServerState, cohort: Cohort) -> Iterator[Aggregate]:
        f, round, nodes = federation, state.round, self.nodes
        clients = f.data.number_of(cohort.clients).tolist()
        control = sent_control(f, state)
        replies, sent_down = self._call_nodes(f, state, cohort, clients, control)
        came = {}
        for node in list(replies.content):
            content = replies.content.pop(node)  # read once, and not kept
            nodes.read_requests(node, content, round + 1)
            came[node] = self._updates_of(node, content, round)
            theirs = {client for client in clients if nodes.node_of.get(client) == node}
            unasked = (came[node] or {}).keys() - theirs - self._why.keys()
            if count := nodes.refusals.add_unasked(round + 1, unasked, node, NOT_SELECTED):
                yield merge.refused(NOT_SELECTED, count)
        verdicts: list[Verdict] = []
        for i, client in enumerate(clients):
            node = nodes.node_of.get(client, NOBODY)
            reason = self._why.get(client)
            if reason is None and node not in came:
                reason = replies.missing.get(node, NOT_CONNECTED)
            update = None
            if reason is None:
                request = {name: rows[i].to(f.device) for name, rows in cohort.requests.items()}
                sent = sub_model(round, state.dense, state.tables, request, control)
                update, reason = self._judged(f, state, came[node], client, sent)
            verdicts.append(Verdict(client, node, update, reason))
        del came
        if robust.needs_first_limits(f, state):
            robust.set_first_limits(f, state, _lengths(verdicts))
        for i, (client, node, update, reason) in enumerate(verdicts):
            if reason is None and update is not None:
                part = accepted(f, state, update, control)
            else:
                part = merge.refused(reason or NO_UPDATE)
                nodes.refusals.add(round + 1, client, node, reason or NO_UPDATE)
            part.traffic = sent_down.pop(node, Traffic()) + _returned(cohort, i, update)
            yield part
        for node, why in replies.extra:
            nodes.refusals.add(round + 1, NOBODY, node, why)
            yield merge.refused(why)
        nodes.refusals.flush()
        yield Aggregate(traffic=Traffic(once_down=nodes.public_bytes))
        nodes.public_bytes = 0

    def _call_nodes(
        self,
        f: Federation,
        state: ServerState,
        cohort: Cohort,
        clients: list[int],
        control: Tensors,
    ) -> tuple[Replies, dict[int, Traffic]]:
        """Send nodes at work in this round their part of the model; the replies, and the bytes sent."""
        calls, down = self._calls(f, state, cohort, clients, control)
        return self._asked(calls, state.round, clients), down

    def _asked(self, calls: dict[int, Call], round: int, clients: list[int]) -> Replies:
        """Write down who is asked for an update, then ask."""
        at_work = self.nodes.by_node([client for client in clients if client not in self._why])
        if self.log is not None and at_work:
            self.log.asked(round, [client for some in at_work.values() for client in some])
        return self.nodes.call(calls, round) if calls else Replies()

    def _calls(
        self,
        f: Federation,
        state: ServerState,
        cohort: Cohort,
        clients: list[int],
        control: Tensors,
    ) -> tuple[dict[int, Call], dict[int, Traffic]]:
        """By node, what it is sent in this round, and of those at work the bytes of it."""
        round, nodes = state.round, self.nodes
        place = {client: i for i, client in enumerate(clients)}
        at_work = nodes.by_node([client for client in clients if client not in self._why])
        in_next_round: dict[int, list[int]] = {}
        if round + 1 < f.rounds:
            in_next_round = nodes.by_node(f.data.number_of(self._drawn(f, round + 1)).tolist())
        calls = {  # nodes without clients in this round send the requests of the next
            node: nodes.requests_call(node, some, round + 1)
            for node, some in in_next_round.items()
            if node not in at_work
        }
        shared, down = {"dense": messages.packed(state.dense)}, {}
        if control:
            shared["control"] = messages.packed(control)
        for node, some in at_work.items():
            members = torch.tensor([place[client] for client in some])
            content, down[node] = _sub_models(f, state, cohort, members, shared, control)
            following = in_next_round.get(node, [])
            content["task"] = nodes.task(round, clients=some, next=following)
            most = bounds.updates(state.dense, state.tables, cohort.requests, members)
            most += nodes.most_of_requests(len(following))
            calls[node] = Call(TRAIN, nodes.with_public(node, content), most)
        return calls, down

    def _updates_of(self, node: int, content: RecordDict, round: int) -> dict[int, Tensors] | None:
        try:
            return messages.updates_in(content)
        except Malformed as error:
            self.nodes.warn(round, node, f"{checks.MALFORMED}: {error}")
            return None

    def _judged(
        self,
        f: Federation,
        state: ServerState,
        came: dict[int, Tensors] | None,
        client: int,
        sent: SubModel,
    ) -> tuple[Update | None, str | None]:
        """A client's update out of its node's reply, or why there is none to be used."""
        if came is None:
            return None, checks.MALFORMED
        if client not in came:
            return None, NO_UPDATE
        private = f.clients.privacy is not None
        try:
            update = messages.update_of(came[client], private=private)
        except Malformed:
            return None, checks.MALFORMED
        update = _on(update, f.device)
        most = int(f.clients.schedule.usable(np.array([self.nodes.access.sizes[client]]))[0])
        if most == 0:
            return update, checks.NO_EXAMPLES
        reason = checks.validate_update(
            update,
            sent,
            client=client,
            table_sizes={name: len(table) for name, table in state.tables.items()},
            fixed=f.clients.training.fixed,
            counted=f.rules.counted,
            max_norm=f.clients.max_norm,
            max_examples=most,  # no more than it reported
            private=private,
        )
        if reason is None and f.method.returns_own_rows:
            named = {name: rows.ids.cpu() for name, rows in update.tables.items()}
            reason = self.nodes.access.not_its_own(client, named)
        return update, reason


def _sub_models(
    f: Federation,
    state: ServerState,
    cohort: Cohort,
    members: Tensor,
    shared: dict[str, ArrayRecord],
    control: Tensors,
) -> tuple[RecordDict, Traffic]:
    """What a node is sent: the dense part, and each row that its clients requested once."""
    rows = {
        name: gather(state.tables[name], torch.unique(requested.select(members).values).to(f.device))
        for name, requested in cohort.requests.items()
    }
    down = Traffic(
        dense_down=nbytes([*state.dense.values(), *control.values()]),
        rows_down=sum(some.nbytes for some in rows.values()),
    )
    return RecordDict({**shared, "rows": messages.put_rows(rows)}), down


def _lengths(verdicts: list[Verdict]) -> Tensors:
    """How long the accepted updates are, by part."""
    each = [
        lengths_of(stack_of(update), {name: rows.ids[None] for name, rows in update.tables.items()})
        for _, _, update, reason in verdicts
        if update is not None and reason is None
    ]
    return {part: torch.cat([one[part] for one in each]) for part in (each[0] if each else {})}


def _returned(cohort: Cohort, i: int, update: Update | None) -> Traffic:
    """The bytes one client sent: its request, and its update if there is one."""
    requests = nbytes(rows[i] for rows in cohort.requests.values())
    if update is None:
        return Traffic(requests_up=requests, participations=1)
    rows = sum(rows.nbytes for rows in update.tables.values()) + nbytes(update.positives.values())
    return Traffic(
        requests_up=requests, dense_up=nbytes(update.dense.values()), rows_up=rows, participations=1
    )


def _on(update: Update, device: torch.device) -> Update:
    """The same update on the server's device."""
    return Update(
        update.client,
        update.round,
        update.examples,
        {name: value.to(device) for name, value in update.dense.items()},
        {
            name: Rows(rows.ids.to(device), rows.values.to(device))
            for name, rows in update.tables.items()
        },
        update.loss,
        {name: value.to(device) for name, value in update.positives.items()},
    )
