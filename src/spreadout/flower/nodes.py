"""The nodes of a grid: who is there, which clients each answers for, what they have asked for so far."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from logging import INFO, WARNING

from cryptography.exceptions import UnsupportedAlgorithm
from flwr.app import ConfigRecord, RecordDict
from flwr.serverapp import Grid
from flwr.supercore import log

from spreadout.core.rows import nbytes
from spreadout.core.types import Tensors
from spreadout.federated import checks
from spreadout.flower import messages, rpc
from spreadout.flower.access import ANOTHERS_CLIENT, NOT_ALLOWED, AccessControl, fingerprint
from spreadout.flower.messages import HELLO, REQUESTS, Malformed
from spreadout.flower.rpc import Call, Replies
from spreadout.methods.base import SetupMessage

BEFORE = 0.5  # the share of a round's time for whatever must be asked before anybody trains
NOBODY = -1  # where a refusal is no client's, or a client has no node
MOST_SAID = 300  # characters of a node's own words that go into the log
Refused = Callable[[int, int, int, str], None]  # round, client (−1: none), node, why


@dataclass
class Nodes:
    """Who is there now. A node may go, come back, or have forgotten what it kept."""

    grid: Grid
    access: AccessControl
    timeout: float
    classes: int
    refused: Refused = lambda round, client, node, why: None
    public: Tensors = field(default_factory=dict)  # what all are told
    public_bytes: int = 0  # that were sent of it and are not yet in the ledger
    node_of: dict[int, int] = field(default_factory=dict)  # client → node that answers for it now
    _met: dict[int, str] = field(default_factory=dict)  # node → its key's fingerprint
    _asked: dict[int, tuple[int, Tensors]] = field(default_factory=dict)  # client → round, request
    _informed: set[int] = field(default_factory=set)  # nodes that know it
    _setup: dict[int, SetupMessage] = field(default_factory=dict)
    _waiting: dict[int, tuple[int, int]] = field(default_factory=dict)  # client → node, size
    _looks: int = 0  # how often we looked who is there: once a round, and while a run waits to begin
    _silent: dict[int, tuple[int, int]] = field(default_factory=dict)  # node → misses, when to ask again
    _until: float = 0.0  # when the present round must end
    last_problem: str = ""  # what a node failed with

    def __len__(self) -> int:
        """How many are there and have said who they are."""
        return len(self._met)

    def request_of(self, client: int, round: int) -> Tensors | None:
        """What a client asked for in this round, if it is known."""
        known = self._asked.get(client)
        return known[1] if known is not None and known[0] == round else None

    def meet(self, round: int, *, setup: bool = False) -> None:
        """A round begins: greet the nodes that are new, and hear which clients they answer for."""
        self._looks += 1
        self._until = time.monotonic() + self.timeout
        online = {info.node_id: _name(info.public_key, info.node_id) for info in self.grid.get_nodes()}
        for gone in self._met.keys() - online.keys():
            self._forget(gone)
            del self._met[gone]
        for gone in self._silent.keys() - online.keys():
            del self._silent[gone]
        names = set(online.values())
        for client, (node, size) in list(self._waiting.items()):
            if node not in self._met or self._claim(client, size, node, online, names) is None:
                del self._waiting[client]
        new = [node for node in online if node not in self._met and not self._rests(node)]
        if not new:
            return
        task = ConfigRecord({"round": round, "setup": setup})
        questions = {node: (HELLO, RecordDict({"task": task})) for node in new}
        answers = self.ask(questions, round, BEFORE)
        for node, content in answers.content.items():
            try:
                self._admit(node, content, round, online, names)
                self._met[node] = online[node]
            except Malformed as error:
                self._miss(node)
                self.complain(round, node, f"{checks.MALFORMED}: {error}")
                self.refused(round, NOBODY, node, checks.MALFORMED)

    def _rests(self, node: int) -> bool:
        """Whether a node that did not answer is left alone for now."""
        return self._silent.get(node, (0, 0))[1] > self._looks

    def _miss(self, node: int) -> None:
        """It did not answer, and waiting costs everybody's time: it is asked less and less often."""
        misses = self._silent.get(node, (0, 0))[0] + 1
        self._silent[node] = misses, self._looks + 2 ** min(misses - 1, 10)

    def _admit(
        self, node: int, content: RecordDict, round: int, online: dict[int, str], names: set[str]
    ) -> None:
        about, arrays = messages.numbers_in(content, "about"), messages.tensors_in(content, "clients")
        numbers, sizes = messages.whole(arrays, "numbers"), messages.whole(arrays, "sizes")
        if len(numbers) != len(sizes):
            raise Malformed("it does not say how many examples its clients have")
        if about.get("classes") != self.classes:
            raise Malformed(f"its data has {about.get('classes')} classes, the model {self.classes}")
        told = messages.setup_in(content)
        for client, size in zip(numbers.tolist(), sizes.tolist(), strict=True):
            capped = max(0, min(size, checks.MOST_EXAMPLES))
            reason = self._claim(client, capped, node, online, names)
            if reason is None:
                said = told.get(client, {})
                allowed = self.access.may_name(client, said)
                self._setup[client] = said if allowed else {}
                if not allowed:
                    self.refused(round, client, node, NOT_ALLOWED)
                continue
            if reason == ANOTHERS_CLIENT and self.access.takeover:
                self._waiting[client] = node, capped  # the node that has it may only seem to be there
            self.refused(round, client, node, reason)
        self.hear_requests(node, content, round)
        log(INFO, "node %s answers for %d clients", node, sum(n == node for n in self.node_of.values()))

    def _claim(
        self, client: int, size: int, node: int, online: dict[int, str], names: set[str]
    ) -> str | None:
        reason = self.access.claim(client, size, online[node], names)
        if reason is None:
            self.node_of[client] = node
        return reason

    def setup_messages(self) -> Iterator[SetupMessage]:
        """What the clients said when they were greeted; it is not kept."""
        said, self._setup = self._setup, {}
        return (said[client] for client in sorted(said) if said[client])

    def fetch_requests(self, clients: Sequence[int], round: int) -> dict[int, str]:
        """Ask for the requests that are not known; by client, why one still is not."""
        missing = self.by_node([client for client in clients if self.request_of(client, round) is None])
        if not missing:
            return {}
        questions = {node: self.about_rows(node, some, round) for node, some in missing.items()}
        answers = self.ask(questions, round, BEFORE)
        for node, content in answers.content.items():
            self.hear_requests(node, content, round)
        return {
            client: answers.missing[node]
            for node, some in missing.items()
            if node in answers.missing
            for client in some
        }

    def about_rows(self, node: int, clients: Sequence[int], round: int) -> Call:
        """What do these clients want in a round?"""
        task = ConfigRecord({"round": round, "clients": list(clients)})
        return REQUESTS, self.with_public(node, RecordDict({"task": task}))

    def ask(self, questions: dict[int, Call], round: int, share: float = 1.0) -> Replies:
        """Within a share of the round's time, and of what is left of it."""
        left = max(self._until - time.monotonic(), (1 - BEFORE) * self.timeout)
        answers = rpc.call(self.grid, questions, min(share * self.timeout, left), group=str(round))
        for node in questions:
            if node in answers.missing:
                self._miss(node)
            else:
                self._silent.pop(node, None)
        for node, content in list(answers.content.items()):
            problem = _problem(content)
            if problem is not None:  # it answered, and says why it cannot
                del answers.content[node]
                answers.missing[node], answers.details[node] = rpc.FAILED, problem
                self._forget_requests(node)
        self._informed |= {node for node in answers.content if "public" in questions[node][1]}
        for node, why in answers.missing.items():
            self.complain(round, node, answers.details.get(node, why))
        for node, why in answers.extra:
            self.complain(round, node, why)
        return answers

    def hear_requests(self, node: int, content: RecordDict, round: int) -> None:
        try:
            found = messages.requests_in(content)
        except Malformed as error:
            self.complain(round, node, f"{checks.MALFORMED}: {error}")
            return
        for client, request in found.items():
            if self.node_of.get(client) == node:
                self._asked[client] = round, request
            else:
                self.complain(round, node, f"asks for rows of client {client}, which it does not hold")

    def by_node(self, clients: Sequence[int]) -> dict[int, list[int]]:
        """Which of these clients each node answers for; those of nodes that are away are left out."""
        found: dict[int, list[int]] = {}
        for client in clients:
            node = self.node_of.get(client)
            if node is not None and node in self._met and not self._rests(node):
                found.setdefault(node, []).append(client)
        return found

    def with_public(self, node: int, content: RecordDict) -> RecordDict:
        if self.public and node not in self._informed:
            content["public"] = messages.packed(self.public)
            self.public_bytes += nbytes(self.public.values())
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

    def complain(self, round: int, node: int, why: str) -> None:
        self.last_problem = why
        log(WARNING, "round %d: node %s: %s", round, node, why)


def _problem(content: RecordDict) -> str | None:
    try:
        if "problem" not in content:
            return None
        return repr(str(messages.numbers_in(content, "problem")["reason"])[:MOST_SAID])
    except (Malformed, KeyError):
        return checks.MALFORMED


def _name(key: bytes, node: int) -> str:
    """What a node is known by from run to run: its key, or without one its number."""
    try:
        return fingerprint(key)
    except (ValueError, UnsupportedAlgorithm):
        return f"node {node}"
