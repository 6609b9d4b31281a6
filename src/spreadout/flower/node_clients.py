"""The clients of a node, and what the node keeps for them between messages."""

from __future__ import annotations

import hmac
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
from flwr.app import ArrayRecord, RecordDict

from spreadout.config.experiment import Experiment
from spreadout.core.client_state import ClientStates, PerClient
from spreadout.core.rows import Rows
from spreadout.federated.federation import Federation
from spreadout.flower import client_host, messages
from spreadout.flower.agreed import config_digest
from spreadout.flower.data import NodeConfig
from spreadout.flower.node_settings import SECRET, has_budget, read_secret
from spreadout.flower.secure_node import SecureNode
from spreadout.privacy.ledger import NodeLedger

STATES, CLIENTS, VALUES = "states", "|clients", "|values"  # of what stays with clients


@dataclass(frozen=True)
class NodeClients:
    """The clients of a node, and what the node has kept for them."""

    federation: Federation
    experiment: Experiment
    node: NodeConfig
    state: RecordDict  # Flower keeps it between messages
    ledger: NodeLedger | None = None  # what it has given away, which Flower does not keep

    @property
    def hides_sizes(self) -> bool:
        """A node with a budget tells none, whatever a server's config says."""
        return self.federation.hides_sizes or has_budget(self.ledger)

    @property
    def numbers(self) -> list[int]:
        data = self.federation.data
        return [int(number) for number in data.number_of(torch.arange(data.clients))]

    @property
    def hides_rows(self) -> bool:
        """Whether a client's rows are among others that it requests, and no update names them."""
        method = self.federation.method
        return method.row_access == "sample" and not method.names_own_rows

    @property
    def draws_anew(self) -> bool:
        """Whether every round's request tells more of what a client holds."""
        f = self.federation
        return f.clients.requests_seen or (self.hides_rows and not f.method.draws.fixed)

    @property
    def counts_looks(self) -> bool:
        """Whether requests hide what a client holds among other rows, and a ledger counts them.

        Rows that are drawn once for all are others if a server asks with another config.
        """
        return self.ledger is not None and (self.draws_anew or self.hides_rows)

    def kept(self) -> dict[str, Rows]:
        """Rows of tables that never change, sent before."""
        return messages.rows_in(self.state, "kept")

    @property
    def noise(self) -> float:
        """Of its own, on what it sends; what a server adds is not in its hands."""
        privacy = self.federation.clients.privacy
        return 0.0 if privacy is None or privacy.on_the_server else privacy.noise

    @property
    def data_id(self) -> str:
        """What the node's data is known by in its ledger: nothing to whoever lacks the secret."""
        if self.ledger is None or SECRET not in self.node:
            return ""
        known = self.federation.data.fingerprint.encode()
        return hmac.digest(read_secret(self.node, SECRET), known, "sha256").hex()[:16]

    def secure(self) -> SecureNode | None:
        """What it needs for secure sums, where updates are not sent in any other way."""
        mechanism = self.federation.clients.privacy
        if mechanism is None or not mechanism.needs_others:
            return None
        config = config_digest(self.experiment)
        return SecureNode(mechanism, self.node, self.state, self.ledger, config)

    def client_states(self) -> ClientStates:
        """What stayed with the node's clients from earlier rounds."""
        found = messages.tensors_in(self.state, STATES)
        parts = {name.removesuffix(CLIENTS) for name in found if name.endswith(CLIENTS)}
        return {part: PerClient(found[part + CLIENTS], found[part + VALUES]) for part in parts}

    def keep_states(self, before: ClientStates, new: Iterable[ClientStates]) -> None:
        """Keep the clients' states until their next round."""
        kept = dict(before)
        for its in new:
            for part, theirs in its.items():
                own = PerClient(theirs.clients.cpu(), theirs.values.cpu())
                kept[part] = kept[part].updated(own) if part in kept else own
        if kept:
            named = {part + CLIENTS: states.clients for part, states in kept.items()}
            named |= {part + VALUES: states.values for part, states in kept.items()}
            self.state[STATES] = messages.packed(named)

    def requests(self, numbers: Sequence[int], run: str, round: int) -> ArrayRecord:
        """The requests of these clients, without the rows that the node has kept."""
        if self.ledger is not None and self.counts_looks:
            numbers = self.ledger.look(run, round, self.answers(numbers, round))
        requests = client_host.requests(self.federation, numbers, round)
        for table, rows in self.kept().items():
            requests[table] = client_host.without(requests[table], rows.ids)
        return messages.put_requests(numbers, requests)

    def answers(self, numbers: Sequence[int], round: int) -> dict[int, str]:
        """What each client's request of a round is known by in the ledger: alike if it is the same."""
        requests = client_host.requests(self.federation, numbers, round)
        secret = read_secret(self.node, SECRET) if SECRET in self.node else b""
        when = round if self.draws_anew else "any"
        found = {}
        for i, number in enumerate(numbers):
            rows = [(table, lists[i].tolist()) for table, lists in sorted(requests.items())]
            found[number] = hmac.digest(secret, repr((when, rows)).encode(), "sha256").hex()[:32]
        return found
