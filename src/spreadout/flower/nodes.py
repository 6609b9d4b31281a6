"""The nodes of a grid: who is online, the clients each answers for, and their requests so far."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from logging import INFO, WARNING
from typing import Any

from cryptography.exceptions import UnsupportedAlgorithm
from flwr.app import ConfigRecord, RecordDict
from flwr.serverapp import Grid
from flwr.supercore import log

from spreadout.core.rows import nbytes
from spreadout.core.types import Tensors
from spreadout.data.in_words import counted
from spreadout.federated import checks
from spreadout.federated.executor import Heard
from spreadout.flower import bounds, messages, rpc
from spreadout.flower.access import ANOTHERS_CLIENT, NOT_ALLOWED, AccessControl, fingerprint
from spreadout.flower.messages import HELLO, REQUESTS, Malformed, TooManyClients
from spreadout.flower.refusals import NOBODY, Refusals
from spreadout.flower.rpc import NO_ANSWER, Call, Replies
from spreadout.methods.class_counts import SetupMessage, is_row_list

BEFORE = 0.5  # the share of a round's time for calls that come before training
MOST_SAID = 300  # characters of a node's own words that go into the log
MOST_CLIENTS = 1000  # a node answers for, unless the config says otherwise
MOST_HELLO = 256 * 2**20  # bytes of a hello, unless the config says otherwise


@dataclass
class Nodes:
    """The nodes that are online. A node may go, come back, or have lost what it kept."""

    grid: Grid
    access: AccessControl
    timeout: float
    classes: int
    refusals: Refusals = field(default_factory=Refusals)
    told: Callable[[int, int], None] = lambda nodes, clients: None  # who is there now
    most_clients: int = MOST_CLIENTS  # a node may answer for
    most_hello: int = MOST_HELLO  # bytes of its hello: it follows from the node's own data
    public: Tensors = field(default_factory=dict)  # what the server sends to all
    public_bytes: int = 0  # bytes of it that were sent and not yet counted
    node_of: dict[int, int] = field(default_factory=dict)  # client → node that answers for it now
    _met: dict[int, str] = field(default_factory=dict)  # node → its key's fingerprint
    _requests: dict[int, tuple[int, Tensors]] = field(default_factory=dict)  # client → round, request
    _informed: set[int] = field(default_factory=set)  # nodes that have it
    _setup: dict[int, SetupMessage] = field(default_factory=dict)
    _waiting: dict[int, tuple[int, int]] = field(default_factory=dict)  # client → node, size
    _looks: int = 0  # how often `meet` was called: once a round, and while a run waits to begin
    _silent: dict[int, tuple[int, int]] = field(
        default_factory=dict
    )  # node → misses, when to call again
    _until: float = 0.0  # when the present round must end
    last_problem: str = ""  # the last failure of a node, silence only if there was no other
    heard: list[Heard] = field(default_factory=list)  # requests that have come since they were logged

    def __len__(self) -> int:
        """How many are online and have registered their clients."""
        return len(self._met)

    def tell(self) -> None:
        """Say how many are there, and how many clients they answer for."""
        self.told(len(self._met), len(self.node_of))

    def request_of(self, client: int, round: int) -> Tensors | None:
        """The rows a client requests in this round, if they are known."""
        known = self._requests.get(client)
        return known[1] if known is not None and known[0] == round else None

    def meet(
        self,
        round: int,
        *,
        setup: bool = False,
        longer: Callable[[int], bool] = lambda there: False,
        longest: float = 0.0,
    ) -> None:
        """A round begins: greet new nodes and learn which clients they answer for.

        longer: told how many nodes are there, whether slow ones may take up to `longest` seconds; once
        somebody else comes, they are called again later.
        """
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
        task = self.task(round, setup=setup)
        calls = {node: Call(HELLO, RecordDict({"task": task}), self.most_hello) for node in new}

        def wait_on(so_far: Replies) -> bool:
            if not longer(len(self._met) + len(so_far.content)):
                return False
            return not {info.node_id for info in self.grid.get_nodes()} - online.keys()

        replies = self.call(calls, round, BEFORE, longer=wait_on, longest=longest)
        for node, why in replies.missing.items():
            if why == rpc.TOO_LONG:
                self.refusals.add(round, NOBODY, node, why)
        for node, content in replies.content.items():
            try:
                self._admit(node, content, round, online, names)
                self._met[node] = online[node]
            except Malformed as error:
                self._miss(node)
                self.warn(round, node, f"{error.reason}: {error}")
                self.refusals.add(round, NOBODY, node, error.reason)
        self.refusals.flush()

    def _rests(self, node: int) -> bool:
        """Whether a node that did not answer is left alone for now."""
        return self._silent.get(node, (0, 0))[1] > self._looks

    def _miss(self, node: int) -> None:
        """It did not answer, and waiting delays everybody: it is called less and less often."""
        misses = self._silent.get(node, (0, 0))[0] + 1
        self._silent[node] = misses, self._looks + 2 ** min(misses - 1, 10)

    def _admit(
        self, node: int, content: RecordDict, round: int, online: dict[int, str], names: set[str]
    ) -> None:
        about, arrays = messages.numbers_in(content, "about"), messages.tensors_in(content, "clients")
        numbers, sizes = messages.whole(arrays, "numbers"), messages.whole(arrays, "sizes")
        if len(numbers) != len(sizes):
            raise Malformed("it does not say how many examples its clients have")
        if len(numbers) > self.most_clients:
            raise TooManyClients(
                f"it names {len(numbers):,} clients; deploy.max_clients = {self.most_clients:,} a node"
            )
        messages.refuse_wrong_numbers(numbers)
        if about.get("classes") != self.classes:
            raise Malformed(f"its data has {about.get('classes')} classes, the model {self.classes}")
        setup = messages.setup_in(content)
        refused: dict[str, list[int]] = {}  # by reason
        for client, size in zip(numbers.tolist(), sizes.tolist(), strict=True):
            capped = max(0, min(size, checks.MOST_EXAMPLES))
            reason = self._claim(client, capped, node, online, names)
            if reason is None:
                said = setup.get(client, {})
                allowed = self.access.may_name(client, said)
                self._setup[client] = said if allowed else {}
                if not allowed:
                    refused.setdefault(NOT_ALLOWED, []).append(client)
                continue
            if reason == ANOTHERS_CLIENT and self.access.takeover:
                self._waiting[client] = node, capped  # the node that has it may only seem to be online
            refused.setdefault(reason, []).append(client)
        for reason, clients in refused.items():
            self.refusals.add_unasked(round, clients, node, reason)
        self.read_requests(node, content, round)
        if ANOTHERS_CLIENT in refused and self.access.roster is None and not self.access.takeover:
            why = (
                f"{len(refused[ANOTHERS_CLIENT])} of its clients are another node's; a node without a "
                "key is another one after every start: set deploy.takeover = true"
            )
            self.warn(round, node, why)
        mine = sum(n == node for n in self.node_of.values())
        log(INFO, "node %s answers for %s", node, counted(mine, "client"))

    def _claim(
        self, client: int, size: int, node: int, online: dict[int, str], names: set[str]
    ) -> str | None:
        reason = self.access.claim(client, size, online[node], names)
        if reason is None:
            self.node_of[client] = node
        return reason

    def setup_messages(self) -> Iterator[SetupMessage]:
        """The setup messages of the clients; they are not kept."""
        said, self._setup = self._setup, {}
        return (said[client] for client in sorted(said) if said[client])

    def fetch_requests(self, clients: Sequence[int], round: int) -> dict[int, str]:
        """Fetch the requests that are not known; returns, by client, why one is still missing."""
        missing = self.by_node([client for client in clients if self.request_of(client, round) is None])
        if not missing:
            return {}
        calls = {node: self.requests_call(node, some, round) for node, some in missing.items()}
        replies = self.call(calls, round, BEFORE)
        for node, content in replies.content.items():
            self.read_requests(node, content, round)
        return {
            client: replies.missing[node]
            for node, some in missing.items()
            if node in replies.missing
            for client in some
        }

    def requests_call(self, node: int, clients: Sequence[int], round: int) -> Call:
        """The call that asks a node for its clients' requests in a round."""
        task = self.task(round, clients=list(clients))
        most = self.most_of_requests(len(clients))
        return Call(REQUESTS, self.with_public(node, RecordDict({"task": task})), most)

    def task(self, round: int, **about: Any) -> ConfigRecord:
        """What a question says of itself."""
        return ConfigRecord({"run": self.access.run, "round": round, **about})

    def most_of_requests(self, clients: int) -> int:
        """Bytes of the requests of so many clients, at most."""
        return bounds.requests(clients, self.access.tables, self.access.most)

    def call(
        self,
        calls: dict[int, Call],
        round: int,
        share: float = 1.0,
        *,
        longer: Callable[[Replies], bool] = lambda so_far: False,
        longest: float = 0.0,
    ) -> Replies:
        """Call nodes within a share of the round's time, and within what is left of it."""
        left = max(self._until - time.monotonic(), (1 - BEFORE) * self.timeout)
        replies = rpc.call(
            self.grid,
            calls,
            min(share * self.timeout, left),
            group=str(round),
            longer=longer,
            longest=longest,
        )
        for node in calls:
            if node in replies.missing:
                self._miss(node)
            else:
                self._silent.pop(node, None)
        for node, content in list(replies.content.items()):
            problem = _problem(content)
            if problem is not None:  # it answered with an error
                del replies.content[node]
                replies.missing[node], replies.details[node] = rpc.FAILED, problem
                self._forget_requests(node)
        self._informed |= {node for node in replies.content if "public" in calls[node].content}
        for node, why in replies.missing.items():
            self.warn(round, node, replies.details.get(node, why))
        for node, why in replies.extra:
            self.warn(round, node, why)
        return replies

    def read_requests(self, node: int, content: RecordDict, round: int) -> None:
        try:
            found = messages.requests_in(content)
        except Malformed as error:
            self.warn(round, node, f"{checks.MALFORMED}: {error}")
            return
        others = 0
        for client, request in found.items():
            if self.node_of.get(client) == node:
                self._requests[client] = round, request
                rows = request.get("classes")
                if rows is not None and is_row_list(rows.numpy(), self.classes):  # else it is denied
                    self.heard.append(Heard(round, client, rows.tolist()))
            else:
                others += 1
        if others:
            self.warn(round, node, f"requests rows for {others} clients that are not its own")

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
        """It may have lost its state: requests and public values are sent again."""
        self._informed.discard(node)
        for client, at in self.node_of.items():
            if at == node:
                self._requests.pop(client, None)

    def warn(self, round: int, node: int, why: str) -> None:
        if why != NO_ANSWER or not self.last_problem:  # what it said before it fell silent counts
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
