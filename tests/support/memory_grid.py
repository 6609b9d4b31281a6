"""A Flower grid in this process: real messages, serialised and read back, and nodes that misbehave."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from flwr.app import Context, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.common.constant import SUPERLINK_NODE_ID
from flwr.proto.node_pb2 import NodeInfo
from flwr.serverapp import Grid
from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects
from flwr.supercore.inflatable.inflatable_utils import inflate_object_from_contents
from flwr.supercore.task_identity import TaskIdentity

from spreadout.config.experiment import Experiment
from spreadout.data.dataset import FederatedDataset
from spreadout.data.splits import Splits
from spreadout.flower.client_app import client_app
from spreadout.flower.data import NodeConfig
from spreadout.flower.server_app import serve
from spreadout.runs.result import Result

Change = Callable[[Message, Message], Iterable[Message]]  # question, honest reply → what is sent


def honest(question: Message, reply: Message) -> Iterable[Message]:
    return [reply]


def over_the_wire(message: Message) -> Message:
    """What the other side reads of a message."""
    contents = {key: part.deflate() for key, part in get_all_nested_objects(message).items()}
    read = inflate_object_from_contents(message.object_id, contents)
    assert isinstance(read, Message)
    read.metadata.__dict__["_message_id"] = message.object_id
    return read


@dataclass
class Node:
    """A SuperNode: an app, what it is told, and how it behaves."""

    number: int
    app: ClientApp
    config: dict[str, Any]
    key: bytes = b""
    change: Change = honest
    alive: bool = True
    heard: list[Message] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.restart()

    def restart(self) -> None:
        """Everything it kept is gone."""
        self.context = Context(1, self.number, self.config, RecordDict(), {})

    def answers(self, question: Message) -> Iterable[Message]:
        self.heard.append(question)
        if not self.alive:
            return []
        TaskIdentity.node_id = self.number
        try:
            reply = self.app(question, self.context)
            return list(self.change(question, reply))
        finally:
            TaskIdentity.node_id = SUPERLINK_NODE_ID


class MemoryGrid(Grid):
    """Delivers at once; nodes that are not alive are still listed, as after a crash."""

    def __init__(self, nodes: Iterable[Node]) -> None:
        TaskIdentity.run_id, TaskIdentity.task_id, TaskIdentity.node_id = 1, 1, SUPERLINK_NODE_ID
        self.nodes = {node.number: node for node in nodes}
        self.replies: dict[str, list[Message]] = {}

    def set_run(self, run: Any) -> None: ...

    @property
    def run(self) -> Any:
        return None

    def create_message(self, *args: Any, **more: Any) -> Message:
        raise NotImplementedError

    def send_and_receive(self, messages: Any, *, timeout: Any = None) -> Any:
        raise NotImplementedError

    def get_node_ids(self) -> Iterable[int]:
        return list(self.nodes)

    def get_nodes(self) -> Iterable[NodeInfo]:
        return [NodeInfo(node_id=node.number, public_key=node.key) for node in self.nodes.values()]

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        sent = []
        for message in messages:
            message.metadata.__dict__["_message_id"] = message.object_id
            question = over_the_wire(message)
            node = self.nodes[question.metadata.dst_node_id]
            replies = [over_the_wire(reply) for reply in node.answers(question)]
            self.replies[message.object_id] = replies
            sent.append(message.object_id)
        return sent

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        return [reply for number in message_ids for reply in self.replies.pop(number, [])]


def part(data: Splits, first: int, step: int) -> FederatedDataset:
    return data.train.part(torch.arange(first, data.train.clients, step))


def deployed(data: Splits, experiment: Experiment, folder: Path, nodes: int = 2) -> MemoryGrid:
    """A grid whose nodes hold the data's clients in turn; the config as nodes read it."""
    folder.mkdir(parents=True, exist_ok=True)
    config = folder / "experiment.toml"
    config.write_text(experiment.to_toml())
    (folder / "label.key").touch(0o600)
    (folder / "label.key").write_bytes(b"nobody at the server knows this.")

    def node_data(experiment: Experiment, node: NodeConfig) -> FederatedDataset:
        return part(data, int(node["partition-id"]), nodes)

    app = client_app(config, node_data)
    told = {"label-key-file": str(folder / "label.key"), "device": "cpu"}
    return MemoryGrid(Node(100 + i, app, {"partition-id": i, **told}) for i in range(nodes))


def form_of(data: Splits) -> Splits:
    """What the server has of the data: the test part, and nobody's examples."""
    return replace(data, train=data.train.part(torch.arange(0)))


def served(grid: MemoryGrid, data: Splits, experiment: Experiment, out: Path, **more: Any) -> Result:
    return serve(grid, experiment, out, server_data=lambda e: form_of(data), device="cpu", **more)
