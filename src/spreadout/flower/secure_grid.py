"""Rounds of which the server sees the sum alone: five messages to a node where one was enough.

Nodes that answer the first step are those of the round, and their number sets the threshold. Whoever
leaves after the second step is taken out of the sum by the shares that others hold. Below the threshold
nothing is unmasked, no node would help, and the round changes nothing.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import torch
from flwr.app import ConfigRecord, RecordDict

from spreadout.core.rows import gather, nbytes
from spreadout.core.state import ServerState
from spreadout.core.traffic import Traffic
from spreadout.core.types import Tensors
from spreadout.federated import aggregate as merge
from spreadout.federated.aggregate import Aggregate
from spreadout.federated.checks import MALFORMED
from spreadout.federated.cohort import Cohort
from spreadout.federated.federation import Federation
from spreadout.federated.sum_layout import SumLayout
from spreadout.flower import bounds, messages, secure_messages
from spreadout.flower.agreed import agreed_form
from spreadout.flower.grid import NO_UPDATE, GridExecutor
from spreadout.flower.messages import CONFIRM, KEYS, REVEAL, SHARES, Malformed
from spreadout.flower.refusals import NOBODY
from spreadout.flower.rpc import NOT_CONNECTED, Call, Replies
from spreadout.privacy.masking import Bits, Broken, Masked
from spreadout.privacy.release import Grid
from spreadout.privacy.secure_party import Announced, about_round
from spreadout.privacy.secure_sum import unmasked
from spreadout.privacy.thresholds import least, most_colluding, noisy

TOO_FEW = "too few nodes for a secure sum"
NOT_UNMASKED = "sum not unmasked"
MOST_DEVIATIONS = 40  # of the noise, that a sum has room for


@dataclass
class SecureRound:
    """What the server knows of a round's secure sum, step by step."""

    names: dict[int, str]  # node → its name
    announced: dict[str, Announced]
    threshold: int
    commitments: dict[str, bytes]
    letters: dict[str, dict[str, bytes]]  # by receiver, by sender
    members: list[int] = field(default_factory=list)  # clients of all nodes that are asked in step 3


@dataclass
class SecureGridExecutor(GridExecutor):
    """Clients on the nodes of a Flower grid, whose updates are summed without being seen."""

    config: bytes = b""  # a digest of all settings, the same on every node

    def train(self, federation: Federation, state: ServerState, cohort: Cohort) -> Iterator[Aggregate]:
        f, round, nodes = federation, state.round, self.nodes
        clients = f.data.number_of(cohort.clients).tolist()
        secure = self._prepared(f, round, clients)
        calls, down = self._calls(f, state, cohort, clients, {})
        layout = _layout(f, state, cohort, clients, self._why)
        bits = _bits(f, secure, len(clients))
        if secure is not None:
            secure.members = [client for node in down for client in _asked_of(calls[node])]
            self._add_letters(calls, down, secure, layout, bits)
        replies = self._asked(calls, round, clients)
        sent: dict[str, Masked] = {}
        inside: dict[int, str] = {}  # client → the node whose numbers it is in
        for node in list(replies.content):
            content = replies.content.pop(node)
            nodes.read_requests(node, content, round + 1)
            if secure is None or node not in down:
                continue
            theirs = {c for c in clients if nodes.node_of.get(c) == node and c not in self._why}
            try:
                numbers, counted = secure_messages.masked_in(content, layout.count, bits)
                if not counted or not set(counted) <= theirs:
                    raise Malformed("masked numbers of clients that were not asked")
            except Malformed as error:
                nodes.warn(round, node, f"{MALFORMED}: {error}")
                replies.missing[node] = MALFORMED
                continue
            sent[secure.names[node]] = numbers
            inside |= dict.fromkeys(counted, secure.names[node])
        found, why = self._sum(f, state, cohort, clients, secure, layout, bits, sent, inside)
        if found is not None:
            yield found
        yield from self._refused(round, clients, replies, inside if found is not None else {}, why)
        yield Aggregate(traffic=_traffic(cohort, down, layout, sent, inside))
        nodes.refusals.flush()
        yield Aggregate(traffic=Traffic(once_down=nodes.public_bytes))
        nodes.public_bytes = 0

    def _prepared(self, f: Federation, round: int, clients: list[int]) -> SecureRound | None:
        """Steps 1 and 2; clients of nodes that do not get that far cannot train in this round."""
        nodes, mechanism = self.nodes, f.clients.privacy
        assert mechanism is not None
        at_work = nodes.by_node([client for client in clients if client not in self._why])
        task = RecordDict({"task": nodes.task(round)})
        replies = nodes.call(
            {node: Call(KEYS, task, bounds.ROOM + secure_messages.ENTRY) for node in at_work}, round
        )
        names: dict[int, str] = {}
        announced: dict[str, Announced] = {}
        for node, content in replies.content.items():
            try:
                ((name, keys),) = secure_messages.keys_in(content).items()
                if name in announced:
                    raise Malformed("two nodes with one key")
                names[node], announced[name] = name, keys
            except ValueError as error:  # Malformed is one
                nodes.warn(round, node, f"{MALFORMED}: {error}")
                self._lose(node, at_work, MALFORMED)
        for node, why in replies.missing.items():
            self._lose(node, at_work, why)
        threshold = least(len(announced), mechanism.share)
        colluding = most_colluding(len(announced), threshold)
        if len(announced) < threshold or mechanism.colluding > colluding:
            self._why |= dict.fromkeys((c for some in at_work.values() for c in some), TOO_FEW)
            return None
        question = RecordDict({"task": nodes.task(round), "keys": secure_messages.put_keys(announced)})
        most = bounds.ROOM + (len(announced) + 1) * secure_messages.ENTRY
        replies = nodes.call({node: Call(SHARES, question, most) for node in names}, round)
        secure = SecureRound(names, announced, threshold, {}, {name: {} for name in announced})
        for node, content in replies.content.items():
            name = names[node]
            try:
                letters = secure_messages.bytes_in(content, "letters")
                if letters.keys() != announced.keys() - {name}:
                    raise Malformed("letters to other nodes than those of the round")
                secure.commitments[name] = secure_messages.bytes_in(content, "commitment")[name]
            except (Malformed, KeyError) as error:
                nodes.warn(round, node, f"{MALFORMED}: {error}")
                self._lose(node, at_work, MALFORMED)
                continue
            for other, letter in letters.items():
                secure.letters[other][name] = letter
        for node, why in replies.missing.items():
            self._lose(node, at_work, why)
        if len(secure.commitments) < threshold:
            self._why |= dict.fromkeys((c for some in at_work.values() for c in some), TOO_FEW)
            return None
        return secure

    def _lose(self, node: int, at_work: Mapping[int, list[int]], why: str) -> None:
        """The clients of a node cannot train in this round."""
        self._why |= dict.fromkeys(at_work[node], why)

    def _add_letters(
        self,
        calls: dict[int, Call],
        down: dict[int, Traffic],
        secure: SecureRound,
        layout: SumLayout,
        bits: Bits,
    ) -> None:
        """What nodes at work need for step 3 beside the model."""
        for node in down:
            call, letters = calls[node], secure.letters[secure.names[node]]
            there = {name: letter for name, letter in letters.items() if name in secure.commitments}
            task = call.content["task"]
            call.content["task"] = ConfigRecord({**task, "bits": bits})  # type: ignore[dict-item]
            call.content["letters"] = secure_messages.put_bytes(there)
            call.content["sum"] = secure_messages.put_public_rows(dict(layout.rows))
            call.content["members"] = secure_messages.put_members(secure.members)
            most = bounds.ROOM + layout.count * bits // 8 + call.most
            calls[node] = call._replace(most=most)
            extra = sum(map(len, there.values())) + nbytes(layout.rows.values())
            down[node] += Traffic(dense_down=extra + 8 * len(secure.members))

    def _sum(
        self,
        f: Federation,
        state: ServerState,
        cohort: Cohort,
        clients: list[int],
        secure: SecureRound | None,
        layout: SumLayout,
        bits: Bits,
        sent: Mapping[str, Masked],
        inside: Mapping[int, str],
    ) -> tuple[Aggregate | None, str]:
        """Steps 4 and 5, and the sum; or why there is none."""
        if secure is None or len(sent) < secure.threshold:
            return None, TOO_FEW
        nodes, round = self.nodes, state.round
        revealed = self._revealed(round, secure, sent)
        try:
            total = unmasked(
                about_round(nodes.access.run, round),
                secure.threshold,
                secure.announced,
                secure.commitments,
                sent,
                revealed,
                bits,
                agreed_form(
                    self.config, layout, state.dense, _sent_to_all(f, state, layout), secure.members
                ),
            )
        except Broken as error:
            nodes.warn(round, NOBODY, f"{NOT_UNMASKED}: {error}")
            return None, NOT_UNMASKED
        held = {
            name: torch.cat([rows[i] for i, c in enumerate(clients) if c in inside])
            for name, rows in cohort.requests.items()
        }
        unit = _grid(f, secure).unit
        return layout.aggregate(total, unit, len(inside), held, state.dense), ""

    def _revealed(
        self, round: int, secure: SecureRound, sent: Collection[str]
    ) -> dict[str, dict[str, bytes]]:
        """By node, its shares of the others: of those that have signed who is in the sum."""
        there = secure_messages.put_bytes(dict.fromkeys(sent, b""))
        question = RecordDict({"task": self.nodes.task(round), "there": there})
        asked = [node for node, name in secure.names.items() if name in sent]
        signed = self._said_by(asked, CONFIRM, question, secure, round, "signature")
        signatures = {
            secure.names[node]: own.get(secure.names[node], b"") for node, own in signed.items()
        }
        question = RecordDict({**question, "signatures": secure_messages.put_bytes(signatures)})
        shares = self._said_by(list(signed), REVEAL, question, secure, round, "shares")
        return {secure.names[node]: its for node, its in shares.items()}

    def _said_by(
        self,
        asked: Sequence[int],
        step: str,
        question: RecordDict,
        secure: SecureRound,
        round: int,
        record: str,
    ) -> dict[int, dict[str, bytes]]:
        """What nodes answer to a step, by node."""
        most = bounds.ROOM + len(secure.announced) * secure_messages.ENTRY
        found = {}
        for node, content in self.nodes.call(
            {node: Call(step, question, most) for node in asked}, round
        ).content.items():
            try:
                found[node] = secure_messages.bytes_in(content, record)
            except Malformed as error:
                self.nodes.warn(round, node, f"{MALFORMED}: {error}")
        return found

    def _refused(
        self, round: int, clients: list[int], replies: Replies, inside: Mapping[int, str], why: str
    ) -> Iterator[Aggregate]:
        """Every client that is not in the sum, with the reason."""
        counts: Counter[str] = Counter()
        for client in clients:
            if client in inside:
                continue
            node = self.nodes.node_of.get(client, NOBODY)
            reason = self._why.get(client) or replies.missing.get(node) or why
            reason = reason or (NO_UPDATE if node != NOBODY else NOT_CONNECTED)
            counts[reason] += 1
            self.nodes.refusals.add(round + 1, client, node, reason)
        for reason, count in counts.items():
            yield merge.refused(reason, count)


def _layout(
    f: Federation, state: ServerState, cohort: Cohort, clients: list[int], why: Mapping[int, str]
) -> SumLayout:
    """The dense part, and all rows that a client of this round has requested."""
    members = torch.tensor(
        [i for i, client in enumerate(clients) if client not in why], dtype=torch.int64
    )
    rows = {
        name: torch.unique(requested.select(members).values)
        for name, requested in cohort.requests.items()
        if name not in f.clients.training.fixed
    }
    dense = {name: tuple(value.shape) for name, value in state.dense.items()}
    return SumLayout(dense, rows, {name: state.tables[name].shape[1] for name in rows})


def _asked_of(call: Call) -> list[int]:
    return [int(client) for client in messages.numbers_in(call.content, "task")["clients"]]


def _sent_to_all(f: Federation, state: ServerState, layout: SumLayout) -> Tensors:
    """Rows that every node is sent alike."""
    if f.method.row_access != "all":
        return {}
    return {
        name: gather(state.tables[name], ids.to(f.device)).values for name, ids in layout.rows.items()
    }


def _grid(f: Federation, secure: SecureRound) -> Grid:
    assert f.clients.privacy is not None
    mechanism = f.clients.privacy
    return Grid.shared(mechanism, noisy(len(secure.announced), mechanism.share, mechanism.colluding))


def _bits(f: Federation, secure: SecureRound | None, clients: int) -> Bits:
    """Of the numbers summed: enough for the longest sum there can be, of updates and of noise."""
    if secure is None:
        return 32
    grid = _grid(f, secure)
    noise = MOST_DEVIATIONS * grid.sigma * math.sqrt(len(secure.announced))
    return 32 if clients * math.sqrt(grid.most) + noise < 2**31 else 64


def _traffic(
    cohort: Cohort,
    down: Mapping[int, Traffic],
    layout: SumLayout,
    sent: Mapping[str, Masked],
    inside: Mapping[int, str],
) -> Traffic:
    """All bytes of the round; keys, letters and shares are few, and of the dense part's count."""
    total = sum(down.values(), start=Traffic())
    up = sum(numbers.nbytes for numbers in sent.values())
    share = layout.dense_count / max(layout.count, 1)
    requests = nbytes(rows.values for rows in cohort.requests.values())
    return total + Traffic(
        requests_up=requests,
        dense_up=round(up * share),
        rows_up=up - round(up * share),
        participations=len(cohort.clients),
    )
