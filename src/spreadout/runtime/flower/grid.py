"""The executor whose clients are elsewhere: it asks nodes for requests, sends models, judges replies.

A round costs one message a node: its clients' updates come back together with the requests of those
who are in the next round. Where a request is not known yet (a node that was away), it costs one more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from logging import INFO, WARNING

import numpy as np
import torch
from flwr.app import ConfigRecord, RecordDict
from flwr.serverapp import Grid
from flwr.supercore import log
from torch import Tensor

from spreadout.federated import checks, merge
from spreadout.federated.merge import Aggregate
from spreadout.federated.round import Cohort, Federation
from spreadout.federated.rows import Rows, SubModel, Tensors, Update, gather, nbytes, sub_model
from spreadout.federated.sampling import sample_clients
from spreadout.federated.server import ServerState
from spreadout.federated.traffic import Traffic
from spreadout.methods.base import Told
from spreadout.ragged import Ragged
from spreadout.runtime.flower import exchange, messages
from spreadout.runtime.flower.exchange import NOT_CONNECTED, Answers, Question
from spreadout.runtime.flower.grants import Grants, fingerprint
from spreadout.runtime.flower.messages import HELLO, REQUESTS, TRAIN, Malformed

NO_UPDATE = "no update"
Refused = Callable[[int, int, int, str], None]  # round, client (−1: none), node, why


@dataclass
class OverGrid:
    """Clients on the nodes of a Flower grid."""

    grid: Grid
    grants: Grants
    timeout: float
    classes: int
    begun: bool = False  # whether rounds are waiting
    refused: Refused = lambda round, client, node, why: None
    node_of: dict[int, int] = field(default_factory=dict)  # client → node that answers for it now
    _met: dict[int, str] = field(default_factory=dict)  # node → its key's fingerprint
    _asked: dict[int, tuple[int, Tensors]] = field(default_factory=dict)  # client → round, request
    _informed: set[int] = field(default_factory=set)  # nodes that know what all are told
    _once_down: int = 0  # bytes of it, not yet in the ledger
    _told: dict[int, Told] = field(default_factory=dict)
    _waiting: dict[int, tuple[int, int]] = field(default_factory=dict)  # client → node, size
    _silent: dict[int, tuple[int, int]] = field(default_factory=dict)  # node → misses, next round
    _why: dict[int, str] = field(default_factory=dict)  # clients without a request this round
    _public: Tensors = field(default_factory=dict)

    # Before the first round

    @property
    def nodes(self) -> list[int]:
        """Those that have been greeted and are there."""
        return list(self._met)

    def meet(self, round: int, *, tell: bool = False) -> None:
        """Greet the nodes that are new, and hear which clients they answer for."""
        online = {info.node_id: _name(info.public_key, info.node_id) for info in self.grid.get_nodes()}
        for gone in self._met.keys() - online.keys():
            self._forget(gone)
            del self._met[gone]
        for client, (node, size) in list(self._waiting.items()):
            if node not in self._met or self._claim(client, size, node, online) is None:
                del self._waiting[client]
        new = [
            node
            for node in online
            if node not in self._met and self._silent.get(node, (0, round))[1] <= round
        ]
        if not new:
            return
        task = ConfigRecord({"round": round, "tell": tell})
        answers = self._ask({node: (HELLO, RecordDict({"task": task})) for node in new}, round)
        for node in answers.missing:  # waiting for it costs a round: it is asked less and less often
            misses = self._silent.get(node, (0, 0))[0] + 1
            self._silent[node] = misses, round + 2**misses * self.begun
        for node, content in answers.content.items():
            self._met[node] = online[node]
            try:
                self._admit(node, content, round, online)
            except Malformed as error:
                self._complain(round, node, f"{checks.MALFORMED}: {error}")

    def _admit(self, node: int, content: RecordDict, round: int, online: dict[int, str]) -> None:
        about, arrays = messages.numbers_in(content, "about"), messages.tensors_in(content, "clients")
        numbers, sizes = messages.whole(arrays, "numbers"), messages.whole(arrays, "sizes")
        if len(numbers) != len(sizes):
            raise Malformed("it does not say how many examples its clients have")
        if about.get("classes") != self.classes:
            raise Malformed(f"its data has {about.get('classes')} classes, the model {self.classes}")
        told = messages.told_in(content)
        for client, size in zip(numbers.tolist(), sizes.tolist(), strict=True):
            capped = max(0, min(size, checks.MOST_EXAMPLES))
            reason = self._claim(client, capped, node, online)
            if reason is None:
                self._told[client] = told.get(client, {})
            else:  # perhaps later: the node that has it may only seem to be there
                self._waiting[client] = node, capped
                self.refused(round, client, node, reason)
        self._hear_requests(node, content, round)
        log(INFO, "node %s answers for %d clients", node, sum(n == node for n in self.node_of.values()))

    def _claim(self, client: int, size: int, node: int, online: dict[int, str]) -> str | None:
        reason = self.grants.claim(client, size, online[node], set(online.values()))
        if reason is None:
            self.node_of[client] = node
        return reason

    def told(self, federation: Federation) -> Iterator[Told]:
        """What the clients said when they were greeted; it is not kept."""
        said, self._told = self._told, {}
        return (said[client] for client in sorted(said) if said[client])

    # A round

    def cohort(self, federation: Federation, state: ServerState) -> Cohort:
        """Who takes part, and what each of them asked for; nothing, where it could not be asked."""
        f, round = federation, state.round
        self._public = f.method.public(state)
        self.begun = True
        self.meet(round)
        places = self._drawn(f, round)
        numbers = f.data.number_of(places).tolist()
        self._why = {}
        self._fetch_requests(f, numbers, round)
        asked: list[Tensors] = []
        for client in numbers:
            known = self._asked.get(client)
            if client in self._why or known is None or known[0] != round:
                self._why.setdefault(client, NOT_CONNECTED)
                asked.append({})
                continue
            if reason := self.grants.refusal(client, known[1]):
                self._why[client] = reason
                asked.append({})
            else:
                asked.append(known[1])
        empty = torch.empty(0, dtype=torch.int64)
        lists = {
            table: Ragged.from_lists([one.get(table, empty) for one in asked])
            for table in f.model.tables
        }
        return Cohort(places, lists)

    def _drawn(self, f: Federation, round: int) -> Tensor:
        return sample_clients(f.selection, f.data.sizes, f.per_round, seed=f.seed, round=round)

    def _fetch_requests(self, f: Federation, numbers: Sequence[int], round: int) -> None:
        """Ask for the requests that did not come with an update."""
        missing = self._by_node(
            [client for client in numbers if self._asked.get(client, (-1,))[0] != round]
        )
        if not missing:
            return
        questions = {node: self._about_rows(node, clients, round) for node, clients in missing.items()}
        answers = self._ask(questions, round)
        for node, clients in missing.items():
            if node in answers.content:
                self._hear_requests(node, answers.content[node], round)
            else:
                self._why.update(dict.fromkeys(clients, answers.missing[node]))

    def __call__(
        self, federation: Federation, state: ServerState, cohort: Cohort
    ) -> Iterator[Aggregate]:
        f, round = federation, state.round
        numbers = f.data.number_of(cohort.clients).tolist()
        place = {client: i for i, client in enumerate(numbers)}
        ahead = self._next(f, round)
        at_work = self._by_node([client for client in numbers if client not in self._why])
        questions = {  # those at rest in this round have time to say what they want in the next
            node: self._about_rows(node, clients, round + 1)
            for node, clients in ahead.items()
            if node not in at_work
        }
        sent_down = {}
        for node, clients in at_work.items():
            members = torch.tensor([place[client] for client in clients])
            content, traffic = self._question(f, state, cohort, members, node)
            content["task"] = ConfigRecord(
                {"round": round, "clients": clients, "next": ahead.get(node, [])}
            )
            questions[node], sent_down[node] = (TRAIN, content), traffic
        answers = self._ask(questions, round) if questions else Answers()
        came = {}
        for node, content in answers.content.items():
            self._hear_requests(node, content, round + 1)
            came[node] = self._updates_of(node, content, round)
        for i, client in enumerate(numbers):
            node = self.node_of.get(client, -1)
            reason = self._why.get(client) or answers.missing.get(node)
            update = None
            if reason is None:
                request = {name: rows[i].to(f.device) for name, rows in cohort.requests.items()}
                sent = sub_model(round, state.dense, state.tables, request)
                update, reason = self._judged(f, state, came[node], client, sent)
            if reason:
                self.refused(round + 1, client, node, reason)
            part = (
                merge.refused(reason or NO_UPDATE)
                if reason or update is None
                else merge.of_update(update, f.rules)
            )
            part.traffic = sent_down.pop(node, Traffic()) + _returned(cohort, i, update)
            yield part
        for _, why in answers.extra:
            yield merge.refused(why)
        yield Aggregate(traffic=Traffic(once_down=self._once_down))
        self._once_down = 0

    def _question(
        self, f: Federation, state: ServerState, cohort: Cohort, members: Tensor, node: int
    ) -> tuple[RecordDict, Traffic]:
        """What a node is sent: the dense part, and once each the rows its clients asked for."""
        rows = {
            name: gather(state.tables[name], torch.unique(asked.select(members).values).to(f.device))
            for name, asked in cohort.requests.items()
        }
        content = RecordDict({"dense": messages.packed(state.dense), "rows": messages.put_rows(rows)})
        traffic = Traffic(
            dense_down=nbytes(state.dense.values()),
            rows_down=sum(some.nbytes for some in rows.values()),
        )
        return self._with_public(node, content), traffic

    def _updates_of(self, node: int, content: RecordDict, round: int) -> dict[int, Tensors] | None:
        try:
            return messages.updates_in(content)
        except Malformed as error:
            self._complain(round, node, f"{checks.MALFORMED}: {error}")
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
        try:
            update = messages.update_of(came[client])
        except Malformed:
            return None, checks.MALFORMED
        update = _on(update, f.device)
        most = int(f.schedule.usable(np.array([self.grants.sizes[client]]))[0])
        if most == 0:
            return update, checks.NO_EXAMPLES
        reason = checks.refusal(
            update,
            sent,
            client=client,
            table_sizes={name: len(table) for name, table in state.tables.items()},
            fixed=f.training.fixed,
            counted=f.rules.counted,
            max_norm=f.max_norm,
            max_examples=most,  # no more than it said it has
        )
        return update, reason

    # What nodes say

    def _about_rows(self, node: int, clients: Sequence[int], round: int) -> Question:
        """What do these clients want in a round?"""
        task = ConfigRecord({"round": round, "clients": list(clients)})
        return REQUESTS, self._with_public(node, RecordDict({"task": task}))

    def _ask(self, questions: dict[int, Question], round: int) -> Answers:
        answers = exchange.ask(self.grid, questions, self.timeout, group=str(round))
        for node, content in list(answers.content.items()):
            problem = _problem(content)
            if problem is not None:  # it answered, and says why it cannot
                del answers.content[node]
                answers.missing[node], answers.details[node] = exchange.FAILED, problem
                self._forget_requests(node)
        self._informed |= {node for node in answers.content if "public" in questions[node][1]}
        for node, why in answers.missing.items():
            self._complain(round, node, answers.details.get(node, why))
        for node, why in answers.extra:
            self._complain(round, node, why)
        return answers

    def _hear_requests(self, node: int, content: RecordDict, round: int) -> None:
        try:
            found = messages.requests_in(content)
        except Malformed as error:
            self._complain(round, node, f"{checks.MALFORMED}: {error}")
            return
        for client, request in found.items():
            if self.node_of.get(client) == node:
                self._asked[client] = round, request
            else:
                self._complain(round, node, f"asks for rows of client {client}, which it does not hold")

    def _next(self, f: Federation, round: int) -> dict[int, list[int]]:
        """Whose requests the nodes should send along: those of the next round."""
        if round + 1 >= f.rounds:
            return {}
        return self._by_node(f.data.number_of(self._drawn(f, round + 1)).tolist())

    def _by_node(self, clients: Sequence[int]) -> dict[int, list[int]]:
        """Which of these clients each node answers for; those of nodes that are away are left out."""
        found: dict[int, list[int]] = {}
        for client in clients:
            node = self.node_of.get(client)
            if node is not None and node in self._met:
                found.setdefault(node, []).append(client)
        return found

    def _with_public(self, node: int, content: RecordDict) -> RecordDict:
        if self._public and node not in self._informed:
            content["public"] = messages.packed(self._public)
            self._once_down += nbytes(self._public.values())
        return content

    def _forget(self, node: int) -> None:
        self._forget_requests(node)
        for client in [client for client, at in self.node_of.items() if at == node]:
            del self.node_of[client]

    def _forget_requests(self, node: int) -> None:
        """It may have lost what it kept: it must ask again, and be told again."""
        self._informed.discard(node)
        for client, at in self.node_of.items():
            if at == node:
                self._asked.pop(client, None)

    def _complain(self, round: int, node: int, why: str) -> None:
        log(WARNING, "round %d: node %s: %s", round, node, why)


def _returned(cohort: Cohort, i: int, update: Update | None) -> Traffic:
    """The bytes one client sent: its request, and its update if there is one."""
    asked = nbytes(rows[i] for rows in cohort.requests.values())
    if update is None:
        return Traffic(requests_up=asked, participations=1)
    try:
        rows = sum(rows.nbytes for rows in update.tables.values()) + nbytes(update.positives.values())
        return Traffic(
            requests_up=asked, dense_up=nbytes(update.dense.values()), rows_up=rows, participations=1
        )
    except (AttributeError, TypeError):
        return Traffic(requests_up=asked, participations=1)


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


def _problem(content: RecordDict) -> str | None:
    try:
        return str(messages.numbers_in(content, "problem")["reason"]) if "problem" in content else None
    except (Malformed, KeyError):
        return checks.MALFORMED


def _name(key: bytes, node: int) -> str:
    """What a node is known by from run to run: its key, or without one its number."""
    try:
        return fingerprint(key)
    except ValueError:
        return f"node {node}"
