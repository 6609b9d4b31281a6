"""The ClientApp: how a node replies when the server greets it, fetches requests, or sends a model.

A process lives for one message. What must last, rows that never change and what the server sends to all,
is kept in the node's Flower state, and is gone when the SuperNode is started anew.
"""

from __future__ import annotations

import hmac
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import wraps
from logging import WARNING
from pathlib import Path

import torch
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.supercore import log
from torch import nn

from spreadout.config.experiment import Experiment
from spreadout.config.sound import settled
from spreadout.core.client_state import ClientStates, PerClient
from spreadout.core.errors import UserError, one_line
from spreadout.core.rows import Rows, SubModel
from spreadout.data.dataset import FederatedDataset, Splits
from spreadout.federated.federation import Federation
from spreadout.federated.setup import client_setup
from spreadout.flower import client_host, messages
from spreadout.flower.agreed import config_digest
from spreadout.flower.client_host import MissingRows
from spreadout.flower.data import NOTHING_HELD_OUT, NodeConfig, NodeData, part_of_node
from spreadout.flower.messages import Malformed
from spreadout.flower.node_settings import (
    LABEL_KEY,
    LEDGER,
    SECRET,
    has_budget,
    node_ledger,
    node_seed,
    read_secret,
)
from spreadout.flower.questions import public_in, sub_model_in, task_in
from spreadout.flower.secure_node import SecureNode
from spreadout.methods.base import Method
from spreadout.privacy.ledger import NodeLedger, Refusal, Release
from spreadout.runs.build import build_federation, pick_device
from spreadout.runs.unprotected import TELLS_SIZES

FEW = 64  # with up to so many clients, a node sends their requests with its hello
STATES, CLIENTS, VALUES = "states", "|clients", "|values"  # of what stays with clients
FAILED = "it failed; its own log says why"
RESTARTED = "restarted"  # a node that has lost what it kept, and says so

Answer = Callable[["NodeClients", RecordDict], RecordDict]


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
    def draws_anew(self) -> bool:
        """Whether every round's request tells more of what a client holds."""
        f = self.federation
        return f.clients.requests_seen or (f.method.row_access == "sample" and not f.method.draws.fixed)

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
        if self.ledger is not None and self.draws_anew:
            numbers = self.ledger.look(run, round, numbers)
        requests = client_host.requests(self.federation, numbers, round)
        for table, rows in self.kept().items():
            requests[table] = client_host.without(requests[table], rows.ids)
        return messages.put_requests(numbers, requests)


def client_app(
    experiment: str | Path,
    node_data: NodeData = part_of_node,
    *,
    encoder: nn.Module | None = None,
    method: Method | None = None,
) -> ClientApp:
    """The app of every node: the config, and where a node's clients have their examples."""
    app = ClientApp()

    def answering(answer: Answer) -> Callable[[Message, Context], Message]:
        @wraps(answer)
        def handle(message: Message, context: Context) -> Message:
            try:
                clients_here = host(experiment, node_data, context, message.content, encoder, method)
                content = answer(clients_here, message.content)
            except MissingRows:
                content = _problem(RESTARTED)
            except Exception as error:
                reason = _told(error, experiment, context.node_config)
                if reason is None:
                    raise  # Flower tells the server all of it
                content = _problem(reason)
            return Message(content, reply_to=message)

        return handle

    app.query("hello")(answering(hello))
    app.query("requests")(answering(send_requests))
    app.query("keys")(answering(announce_keys))
    app.query("shares")(answering(send_shares))
    app.query("confirm")(answering(confirm_list))
    app.query("reveal")(answering(reveal_shares))
    app.train()(answering(train))
    return app


def _told(error: Exception, experiment: str | Path, node: NodeConfig) -> str | None:
    """What the server is told of an error; None: Flower may say it.

    A node that counts what it gives away does not give away what is wrong with its data, and any error
    of whatever reads the data may quote it.
    """
    foreseen = isinstance(error, UserError | Malformed)
    said = one_line(str(error))
    where = f"{node[LEDGER]}: " if isinstance(error, Refusal) and LEDGER in node else ""
    log(WARNING, "%s%s", where, said, exc_info=None if foreseen else error)
    if isinstance(error, Refusal | Malformed):
        return said
    if LEDGER in node or _is_private(experiment):
        return FAILED
    return said if foreseen else None


def _is_private(experiment: str | Path) -> bool:
    try:
        return Experiment.load(experiment).privacy is not None
    except UserError:  # the config itself is at fault, and no data was read
        return False


def host(
    experiment: str | Path,
    node_data: NodeData,
    context: Context,
    content: RecordDict,
    encoder: nn.Module | None,
    method: Method | None,
) -> NodeClients:
    """The node's clients, from its data and its Flower state."""
    e, node = settled(Experiment.load(experiment)), context.node_config
    seed, ledger = node_seed(node, e), node_ledger(node, e.privacy)  # or no data is read
    if has_budget(ledger) and e.clients.drop_remainder:
        raise Refusal(f"clients.drop_remainder = true: {TELLS_SIZES}; set it to false")
    data = node_data(e, node)
    if data.numbers is None:
        raise UserError("the node's data has no client numbers: make it with own_arrays or own_file")
    if e.privacy is not None or (method or e.method).hides_sizes or has_budget(ledger):
        data = data.part(torch.from_numpy(data.sizes.nonzero()[0]))  # 0 is a size too
    if "public" in content:
        public_in(content, data.classes)  # refused before it is kept
        context.state["public"] = content["public"]
    public = public_in(context.state, data.classes)
    if "popularity" in public:
        data = replace(data, public_popularity=public["popularity"])
    if "counts" in public:
        data = replace(data, public_counts=public["counts"])
    federation = replace(_federation(e, data, node, encoder, method), seed=seed)
    return NodeClients(federation, e, node, context.state, ledger)


def _federation(
    experiment: Experiment,
    data: FederatedDataset,
    node: NodeConfig,
    encoder: nn.Module | None,
    method: Method | None,
) -> Federation:
    # The server chooses who takes part …
    everyone = experiment.clients.model_copy(update={"per_round": "all", "selection": "uniform"})
    # … and evaluates: a node holds nothing out.
    scored = experiment.eval.model_copy(update={"keep": "last"})
    alone = experiment.model_copy(update={"clients": everyone, "eval": scored})
    splits = Splits("node", data, NOTHING_HELD_OUT)
    device = pick_device(str(node.get("device", "auto")))
    return build_federation(alone, splits, device, encoder, method, clients_known=False)


def _label_key(clients_here: NodeClients) -> bytes:
    if LABEL_KEY not in clients_here.node:
        name = clients_here.federation.method.name
        raise UserError(f"--node-config: has no {LABEL_KEY}; {name} needs a secret that all nodes share")
    return read_secret(clients_here.node, LABEL_KEY)


def hello(clients_here: NodeClients, content: RecordDict) -> RecordDict:
    """The node's clients and, unless hidden, their sizes; with `setup`, their setup messages too."""
    f, numbers = clients_here.federation, clients_here.numbers
    task = task_in(content, numbers)
    sizes = torch.as_tensor(f.data.sizes)
    if clients_here.hides_sizes:
        sizes = torch.full_like(sizes, f.clients.schedule.fewest)
    reply = RecordDict(
        {
            "about": ConfigRecord({"classes": f.data.classes}),
            "clients": messages.packed({"numbers": torch.tensor(numbers), "sizes": sizes}),
        }
    )
    if task.setup and f.clients.privacy is None and not has_budget(clients_here.ledger):  # without noise
        key = _label_key(clients_here) if f.method.needs_shared_key else b""
        messages.put_setup(reply, dict(zip(numbers, client_setup(f, key), strict=False)))
    knows = not f.method.needs_public_state or "public" in clients_here.state
    if len(numbers) <= FEW and knows and not clients_here.draws_anew:  # those are asked for one by one
        reply["requests"] = clients_here.requests(numbers, task.run, task.round)
    return reply


def send_requests(clients_here: NodeClients, content: RecordDict) -> RecordDict:
    """The requests of some clients in a round."""
    task = task_in(content, clients_here.numbers)
    _refuse_forgetting(clients_here)
    return RecordDict({"requests": clients_here.requests(task.clients, task.run, task.round)})


def announce_keys(clients_here: NodeClients, content: RecordDict) -> RecordDict:
    """A secure sum begins: the node's keys of the round."""
    return _secure(clients_here).keys(task_in(content, clients_here.numbers))


def send_shares(clients_here: NodeClients, content: RecordDict) -> RecordDict:
    """Shares of the node's secrets for all other nodes of the round, each sealed."""
    return _secure(clients_here).shares(task_in(content, clients_here.numbers), content)


def confirm_list(clients_here: NodeClients, content: RecordDict) -> RecordDict:
    """The node's signature under the list of nodes that are in the sum."""
    return _secure(clients_here).confirm(task_in(content, clients_here.numbers), content)


def reveal_shares(clients_here: NodeClients, content: RecordDict) -> RecordDict:
    """What the server needs to unmask the sum, and no single update."""
    return _secure(clients_here).reveal(task_in(content, clients_here.numbers), content)


def _secure(clients_here: NodeClients) -> SecureNode:
    secure = clients_here.secure()
    if secure is None:
        raise Malformed('a step of a secure sum, and the config has no privacy.model = "distributed"')
    return secure


def train(clients_here: NodeClients, content: RecordDict) -> RecordDict:
    """Train some clients for a round; the reply also has the requests of the next round."""
    _refuse_forgetting(clients_here)
    f, task = clients_here.federation, task_in(content, clients_here.numbers)
    clients, ledger = task.clients, clients_here.ledger
    secure = clients_here.secure()
    party = None if secure is None else secure.letters(task, content, clients_here.numbers)
    release = Release(task.run, task.round, clients_here.noise, clients_here.data_id)
    if ledger is not None:
        clients = ledger.affordable(release, clients)
        if clients_here.draws_anew:  # that rows are missing tells what was asked for, trained or not
            clients = ledger.look(task.run, task.round, clients)
    fresh = sub_model_in(content, task.round, f.model)
    fixed, rows = f.clients.training.fixed, dict(fresh.tables)
    for table, kept in clients_here.kept().items():
        rows[table] = client_host.together(kept, rows[table])
    reply = RecordDict()
    memory = int(clients_here.experiment.run.memory_gb * 2**30)
    states = clients_here.client_states()
    sent = SubModel(task.round, fresh.dense, rows, fresh.control)
    trained = list(client_host.train(f, clients, sent, states, memory))
    if ledger is not None:  # before it leaves, whatever happens then
        paid = set(ledger.spend(release, clients))
        trained = [one for one in trained if one[0].client in paid]
    if secure is None or party is None:
        messages.put_updates(reply, (update for update, _ in trained))
    else:
        reply = secure.masked(f, party, content, fresh, [update for update, _ in trained])
    clients_here.keep_states(states, (its for _, its in trained))
    if fixed:
        clients_here.state["kept"] = messages.put_rows({table: rows[table] for table in fixed})
    if task.next:
        try:
            reply["requests"] = clients_here.requests(task.next, task.run, task.round + 1)
        except UserError as error:  # what is trained is sent all the same
            log(WARNING, "%s", one_line(str(error)))
    return reply


def _refuse_forgetting(clients_here: NodeClients) -> None:
    if clients_here.federation.method.needs_public_state and "public" not in clients_here.state:
        raise MissingRows


def _problem(reason: str) -> RecordDict:
    return RecordDict({"problem": ConfigRecord({"reason": reason})})
