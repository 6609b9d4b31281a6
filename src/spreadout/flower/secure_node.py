"""What a node does in a round of secure aggregation, message by message.

Between two messages its secrets are in its own Flower state, which never leaves the node and is gone
when it is started anew. That no step after the first is answered twice is written into the ledger, which
outlives that. The first gives new keys whenever it is asked: they are drawn then, depend on nothing, and
take the place of the old ones, with which the node can do no further step of the round.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import TypeVar

import torch
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from flwr.app import ConfigRecord, RecordDict

from spreadout.core.errors import UserError
from spreadout.core.rows import SubModel, Update
from spreadout.federated.federation import Federation
from spreadout.federated.sum_layout import SumLayout
from spreadout.flower import messages, secure_messages
from spreadout.flower.access import fingerprint
from spreadout.flower.agreed import agreed_form
from spreadout.flower.data import NodeConfig
from spreadout.flower.ledger_statement import ALGORITHM, private_key
from spreadout.flower.messages import Malformed
from spreadout.flower.node_settings import LEDGER, NODE_KEY, PEERS
from spreadout.flower.questions import Task
from spreadout.privacy import secure_party, unmasking
from spreadout.privacy.discrete_gaussian import discrete_gaussian
from spreadout.privacy.keystream import KeyStream
from spreadout.privacy.ledger import NodeLedger, Refusal
from spreadout.privacy.masking import Broken
from spreadout.privacy.mechanism import GaussianMechanism
from spreadout.privacy.release import Grid
from spreadout.privacy.secure_party import Party
from spreadout.privacy.thresholds import noisy

STATE, PARTY = "secure sum", "party"
SENT_SHARES, SENT_NUMBERS = "shares", "masked numbers"  # in the ledger
CONFIRMED, REVEALED = "who is in the sum", "unmasking"
NOTHING_TRAINED = "secure sum: none of this node's clients is trained, and others would be alone in it"


class SecureNode:
    """A node with a key of its own, and those of the nodes that its operator knows."""

    def __init__(
        self,
        mechanism: GaussianMechanism,
        config: NodeConfig,
        state: RecordDict,
        ledger: NodeLedger | None,
        settings: bytes = b"",
    ) -> None:
        """settings: a digest of the whole config, which every node of a sum must have alike."""
        if ledger is None:
            raise Refusal(
                f"--node-config: has no {LEDGER}; a secure sum takes one: no step is done twice"
            )
        for key, what in (
            (NODE_KEY, "its private key"),
            (PEERS, "a folder with other nodes' public keys"),
        ):
            if key not in config:
                raise Refusal(f"--node-config: has no {key}; a secure sum takes {what}")
        self.mechanism, self.state, self.ledger, self._settings = mechanism, state, ledger, settings
        self._private = private_key(Path(str(config[NODE_KEY])).expanduser())
        self.name = fingerprint(_openssh(self._private.public_key()))
        self._peers = peers_in(Path(str(config[PEERS])).expanduser())

    def keys(self, task: Task) -> RecordDict:
        """Step 1."""
        about = secure_party.about_round(task.run, task.round)
        party, announced = secure_party.announce(self.name, about, self._sign)
        self._keep(party)
        return RecordDict({"keys": secure_messages.put_keys({self.name: announced})})

    def shares(self, task: Task, content: RecordDict) -> RecordDict:
        """Step 2."""
        announced = secure_messages.keys_in(content)
        party, letters, known_by = _answered(
            lambda: secure_party.share(
                self._party(task),
                announced,
                self.mechanism.share,
                self._verifies,
                self.mechanism.colluding,
            )
        )
        self.ledger.once(task.run, task.round, SENT_SHARES)
        self._keep(party)
        return RecordDict(
            {
                "letters": secure_messages.put_bytes(letters),
                "commitment": secure_messages.put_bytes({self.name: known_by}),
            }
        )

    def letters(self, task: Task, content: RecordDict, own: Collection[int]) -> Party:
        """Step 3, before anything is trained: whether enough others are there, and with clients.

        own: all clients of this node. Nodes that add nothing to a sum would leave one alone in it.
        """
        if not task.clients:
            raise Refusal(NOTHING_TRAINED)
        members = secure_messages.members_in(content)
        if set(own) & set(members) != set(task.clients):
            raise Refusal("secure sum: its list of clients has others of this node than are asked")
        letters = secure_messages.bytes_in(content, "letters")
        if len(members) < len(letters) + 1:
            raise Refusal(
                f"secure sum: {len(members)} clients on {len(letters) + 1} nodes: some have none"
            )
        party = _answered(lambda: secure_party.received(self._party(task), letters))
        self.ledger.once(task.run, task.round, SENT_NUMBERS)
        return party

    def refuse_fewer(self, content: RecordDict, own: Collection[int], clients: Collection[int]) -> None:
        """Whether clients are those of this node that the sum's list names: all nodes count on them.

        own: all clients of this node; clients: those that it can add.
        """
        missing = set(own) & set(secure_messages.members_in(content)) - set(clients)
        if missing:
            raise Refusal(
                f"secure sum: client {min(missing)} is on its list, and this node cannot add it: its "
                "budget is spent, or its requests were seen too often"
            )

    def masked(
        self,
        f: Federation,
        party: Party,
        content: RecordDict,
        model: SubModel,
        updates: Sequence[Update],
    ) -> RecordDict:
        """Step 3: the sum over the node's own clients, with its part of the noise, masked."""
        layout = layout_of(f, content)
        nodes = len(party.others) + 1
        enough = noisy(nodes, self.mechanism.share, self.mechanism.colluding)
        grid = Grid.shared(self.mechanism, enough)
        trained = [update for update in updates if update.examples]
        if not trained:
            raise Refusal(NOTHING_TRAINED)
        try:
            numbers = sum(
                (layout.units(update, self.mechanism.clip, grid) for update in trained),
                start=torch.zeros(layout.count, dtype=torch.int64).numpy(),
            )
        except ValueError as error:
            raise Malformed(str(error)) from None
        if grid.sigma:
            numbers = numbers + discrete_gaussian(layout.count, grid.sigma, KeyStream())
        whole = {n: model.tables[n].values for n in layout.rows} if f.method.row_access == "all" else {}
        members = secure_messages.members_in(content)
        form = agreed_form(self._settings, layout, model.dense, whole, members)
        sent = secure_party.masked(party, numbers, secure_messages.bits_in(content), form)
        self._keep(party)  # not before: a node without numbers in the sum helps nobody to unmask it
        clients = [update.client for update in trained]
        return RecordDict({"masked": secure_messages.put_masked(sent, clients)})

    def confirm(self, task: Task, content: RecordDict) -> RecordDict:
        """Step 4: one list in a round, whatever becomes of the node's memory."""
        there = secure_messages.names_in(content, "there")
        party, signature = _answered(lambda: unmasking.confirm(self._party(task), there, self._sign))
        self.ledger.once(task.run, task.round, CONFIRMED)
        self._keep(party)
        return RecordDict({"signature": secure_messages.put_bytes({self.name: signature})})

    def reveal(self, task: Task, content: RecordDict) -> RecordDict:
        """Step 5."""
        there = secure_messages.names_in(content, "there")
        signatures = secure_messages.bytes_in(content, "signatures")
        party, shares = _answered(
            lambda: unmasking.reveal(self._party(task), there, signatures, self._verifies)
        )
        self.ledger.once(task.run, task.round, REVEALED)
        self._keep(party)
        return RecordDict({"shares": secure_messages.put_bytes(shares)})

    def _sign(self, text: bytes) -> bytes:
        return self._private.sign(text, ALGORITHM)

    def _verifies(self, name: str, text: bytes, signature: bytes) -> bool:
        key = self._private.public_key() if name == self.name else self._peers.get(name)
        if key is None:
            return False
        try:
            key.verify(signature, text, ALGORITHM)
        except InvalidSignature:
            return False
        return True

    def _keep(self, party: Party) -> None:
        self.state[STATE] = ConfigRecord({PARTY: party.to_bytes()})

    def _party(self, task: Task) -> Party:
        kept = messages.numbers_in(self.state, STATE).get(PARTY)
        about = secure_party.about_round(task.run, task.round)
        party = None if kept is None else Party.from_bytes(kept)
        if party is None or not party.is_of(about):
            raise Refusal(f"round {task.round} of this run: it has no keys for a secure sum of it")
        return party


T = TypeVar("T")


def _answered(step: Callable[[], T]) -> T:
    """A step of the protocol; what is wrong with what the server sent, it is told."""
    try:
        return step()
    except Broken as error:
        raise Refusal(f"secure sum: {error}") from None


def layout_of(f: Federation, content: RecordDict) -> SumLayout:
    """What a sum is made of: the model's dense part, and the rows that the server names."""
    dense = {n: tuple(v.shape) for n, v in f.model.encoder.named_parameters() if v.requires_grad}
    trained = {n: table for n, table in f.model.tables.items() if n not in f.clients.training.fixed}
    rows = secure_messages.public_rows_in(content, {n: table.count for n, table in trained.items()})
    return SumLayout(dense, {n: rows[n] for n in trained}, {n: t.dim for n, t in trained.items()})


def peers_in(folder: Path) -> dict[str, ec.EllipticCurvePublicKey]:
    """The public keys (`*.pub`) of a folder, by fingerprint."""
    found = {}
    for path in sorted(folder.glob("*.pub")):
        try:
            key = serialization.load_ssh_public_key(path.read_bytes())
        except (OSError, ValueError, UnsupportedAlgorithm):
            raise UserError(f"--node-config {PEERS}: {path}: is no public key") from None
        if not isinstance(key, ec.EllipticCurvePublicKey):
            raise UserError(f"--node-config {PEERS}: {path}: is no ECDSA key")
        found[fingerprint(_openssh(key))] = key
    if not found:
        raise UserError(f"--node-config {PEERS}: {folder}: has no public keys (*.pub)")
    return found


def _openssh(key: ec.EllipticCurvePublicKey) -> bytes:
    return key.public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
