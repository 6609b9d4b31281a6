"""The ClientApp: how a node replies when the server greets it, fetches requests, or sends a model.

A process lives for one message. What must last, rows that never change and what the server sends to all,
is kept in the node's Flower state, and is gone when the SuperNode is started anew.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import wraps
from logging import WARNING
from pathlib import Path

import torch
from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.supercore import log
from torch import nn

from spreadout.config.experiment import Experiment
from spreadout.config.sound import settled
from spreadout.core.errors import UserError, one_line
from spreadout.core.rows import SubModel
from spreadout.data.dataset import FederatedDataset
from spreadout.data.splits import Splits
from spreadout.evaluation.config import EvalConfig
from spreadout.federated.federation import Federation
from spreadout.federated.setup import client_setup
from spreadout.flower import client_host, messages
from spreadout.flower.client_host import MissingRows
from spreadout.flower.data import NOTHING_HELD_OUT, NodeConfig, NodeData, part_of_node
from spreadout.flower.messages import Malformed
from spreadout.flower.node_clients import NodeClients
from spreadout.flower.node_settings import (
    LABEL_KEY,
    LEDGER,
    has_budget,
    node_ledger,
    node_seed,
    read_secret,
)
from spreadout.flower.questions import public_in, sub_model_in, task_in
from spreadout.flower.secure_node import SecureNode
from spreadout.methods.base import Method
from spreadout.privacy.ledger import Refusal, Release
from spreadout.runs.build import build_federation, pick_device
from spreadout.runs.unprotected import TELLS_SIZES

FEW = 64  # with up to so many clients, a node sends their requests with its hello
FAILED = "it failed; its own log says why"
RESTARTED = "restarted"  # a node that has lost what it kept, and says so

Answer = Callable[[NodeClients, RecordDict], RecordDict]


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
    alone = experiment.model_copy(update={"clients": everyone, "eval": EvalConfig()})
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
    one_by_one = clients_here.draws_anew or clients_here.counts_looks
    if len(numbers) <= FEW and knows and not one_by_one:
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
    answers: dict[int, str] = {}
    release = Release(task.run, task.round, clients_here.noise, clients_here.data_id)
    if ledger is not None:
        clients = ledger.affordable(release, clients)
        if clients_here.counts_looks:  # that rows are missing tells what was asked for, trained or not
            answers = clients_here.answers(clients, task.round)
            clients = ledger.look(task.run, task.round, answers)
    if secure is not None:  # before anything is spent
        secure.refuse_fewer(content, clients_here.numbers, clients)
    fresh = sub_model_in(content, task.round, f.model)
    fixed, rows = f.clients.training.fixed, dict(fresh.tables)
    for table, kept in clients_here.kept().items():
        rows[table] = client_host.together(kept, rows[table])
    reply = RecordDict()
    states = clients_here.client_states()
    sent = SubModel(task.round, fresh.dense, rows, fresh.control)
    trained = list(client_host.train(f, clients, sent, states, f.server.memory))
    if ledger is not None:  # before it leaves, whatever happens then
        paid = set(ledger.spend(release, clients, answers))
        trained = [one for one in trained if one[0].client in paid]
    if secure is None or party is None:
        messages.put_updates(reply, (update for update, _ in trained))
    else:
        updates = [update for update, _ in trained]
        counted = [update.client for update in updates if update.examples]
        secure.refuse_fewer(content, clients_here.numbers, counted)
        reply = secure.masked(f, party, content, fresh, updates)
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
