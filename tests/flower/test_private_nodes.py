"""Servers that try to see through a node's noise: each attack worked once, and none does now."""

import hashlib
from pathlib import Path

import pytest
import torch

pytest.importorskip("flwr")

from flwr.app import Message, RecordDict

from deployment import TOY
from memory_grid import MemoryGrid, Node, deployed, served
from spreadout.config.experiment import Experiment
from spreadout.core import randomness
from spreadout.data.dataset import Splits
from spreadout.flower import keys, messages
from spreadout.flower.messages import TRAIN
from spreadout.privacy.mechanism import GaussianMechanism
from spreadout.privacy.release import Grid
from spreadout.runs.train import Result
from toys import several_classes, tagged

CLIP, NOISE = 0.5, 5.0
PRIVATE = [f"privacy.clip={CLIP}", f"privacy.noise={NOISE}", "method.prior=0"]
QUICK = {**TOY, "deploy": {"timeout": 0.2, "wait": 1}, "eval": {"every": 1, "metrics": ["P@1"]}}


def experiment(*overrides: str) -> Experiment:
    return Experiment.of(QUICK, overrides=["method.name=fedaws", *PRIVATE, *overrides])


def private_nodes(folder: Path, e: Experiment, nodes: int = 2) -> MemoryGrid:
    """Nodes with a secret of their own, as an operator gives it to them."""
    grid = deployed(several_classes(), e, folder / "project", nodes)
    for node in grid.nodes.values():
        secret = folder / f"secret{node.number}"
        if not secret.exists():
            keys.make_secret(secret)
        node.config["secret-file"] = str(secret)
        node.restart()
    return grid


def run(folder: Path, e: Experiment, grid: MemoryGrid, name: str = "run") -> Result:
    return served(grid, several_classes(), e, folder / name)


def answered(node: Node, question: Message, client: int) -> torch.Tensor:
    """All that a client's update has, of a message the server sends once more."""
    reply = node.app(Message(RecordDict(dict(question.content)), node.number, TRAIN), node.context)
    return flat(reply, client)


def flat(reply: Message, client: int) -> torch.Tensor:
    update = messages.update_of(messages.updates_in(reply.content)[client])
    values = (*update.dense.values(), *(rows.values for rows in update.tables.values()))
    return torch.cat([value.flatten() for value in values]).double()


def first_training(node: Node) -> Message:
    return next(m for m in node.heard if m.metadata.message_type == TRAIN)


def heard_updates(node: Node) -> list[Message]:
    """Collects what a node sends in answer to training."""
    found: list[Message] = []

    def change(question: Message, reply: Message) -> list[Message]:
        if question.metadata.message_type == TRAIN:
            found.append(reply)
        return [reply]

    node.change = change
    return found


def test_noise_cannot_be_guessed_from_the_bits_that_a_seed_keeps(tmp_path: Path) -> None:
    """An attacker tried all 2³² seeds of the generator; here the one that was used is tried."""
    e = experiment("rounds=1")
    grid = private_nodes(tmp_path, e)
    node = grid.nodes[100]
    sent = heard_updates(node)
    run(tmp_path, e, grid)
    question, update = first_training(node), messages.update_of(messages.updates_in(sent[0].content)[0])
    digest = hashlib.blake2b(Path(str(node.config["secret-file"])).read_bytes(), digest_size=16)
    for name in ("dense", "rows"):
        digest.update(question.content[name]["all"].data)  # type: ignore[index, union-attr]
    secret = int.from_bytes(digest.digest(), "big")
    guess = torch.Generator().manual_seed((randomness.key(secret, "noise", 0, 0) >> 1) & 0xFFFFFFFF)
    left = [
        value - NOISE * CLIP * torch.randn(value.shape, generator=guess)
        for value in (*update.dense.values(), *(rows.values for rows in update.tables.values()))
    ]
    length = float(torch.cat([value.flatten() for value in left]).norm())
    assert length > 10 * CLIP  # what is left is noise, not a clipped update


def test_two_runs_from_the_same_start_and_secret_share_no_noise(tmp_path: Path) -> None:
    """Their difference was the noise-free difference of what they learned."""
    found = []
    for name, rate in (("one", 0.3), ("other", 0.15)):
        e = experiment("rounds=1", f"clients.lr={rate}")
        grid = private_nodes(tmp_path, e)
        sent = heard_updates(grid.nodes[100])
        run(tmp_path, e, grid, name)
        found.append(flat(sent[0], 0))
    expected = (2 * len(found[0])) ** 0.5 * NOISE * CLIP
    assert float((found[0] - found[1]).norm()) == pytest.approx(expected, rel=0.4)


def test_all_that_is_sent_is_on_the_grid(tmp_path: Path) -> None:
    e = experiment("rounds=2")
    grid = private_nodes(tmp_path, e)
    sent = heard_updates(grid.nodes[101])
    run(tmp_path, e, grid)
    unit = Grid.of(GaussianMechanism(clip=CLIP, noise=NOISE)).unit
    for reply in sent:
        for client in messages.updates_in(reply.content):
            units = flat(reply, client) / unit
            assert torch.equal(units, units.round())
            assert len(torch.unique(units)) > 1


def test_a_node_without_a_secret_refuses_by_name(tmp_path: Path) -> None:
    e = experiment()
    grid = deployed(several_classes(), e, tmp_path / "project", 2)
    with pytest.raises(Exception, match="secret-file"):
        run(tmp_path, e, grid)


def test_neither_hello_nor_an_update_tells_more_than_noised_values(tmp_path: Path) -> None:
    e = experiment("rounds=1")
    grid = private_nodes(tmp_path, e)
    node = grid.nodes[100]
    said: list[Message] = []
    node.change = lambda question, reply: [said.append(reply) or reply]  # type: ignore[func-returns-value]
    run(tmp_path, e, grid)
    greeting, training = said[0].content, said[-1].content
    assert set(messages.tensors_in(greeting, "clients")["sizes"].tolist()) == {1}
    assert "setup" not in greeting
    for client, arrays in messages.updates_in(training).items():
        assert arrays.keys() == {
            "about",
            *(k for k in arrays if k.startswith(("dense.", "ids.", "values."))),
        }
        assert arrays["about"].tolist() == [client, 0, 1]


def test_dummies_cannot_be_told_from_sizes_or_guessed(tmp_path: Path) -> None:
    """hello gave n_k, and n_k less the digests that others have is how many labels stand alone."""
    method = {"name": "fedalc", "dummies": 20}
    e = Experiment.of({**QUICK, "rounds": 1, "method": method, "model": {"hidden": [8], "dim": 5}})
    data = tagged()
    grid = deployed(data, e, tmp_path / "project", 2)
    node = grid.nodes[100]
    said: list[Message] = []
    node.change = lambda question, reply: [said.append(reply) or reply]  # type: ignore[func-returns-value]
    result = served(grid, data, e, tmp_path / "run")
    assert result.state.refused == {}
    assert set(messages.tensors_in(said[0].content, "clients")["sizes"].tolist()) == {1}
    entries = [len(one["instances"]) for one in messages.setup_in(said[0].content).values()]
    assert entries != data.train.sizes[::2].tolist()
    updates = messages.updates_in(said[-1].content)
    assert {arrays["about"].tolist()[2] for arrays in updates.values()} == {1}


def test_clients_without_examples_are_not_named(tmp_path: Path, toy: Splits) -> None:
    """That client 4 of six holds nothing would be a size too."""
    e = experiment("rounds=1")
    grid = deployed(toy, e, tmp_path / "project", 1)
    keys.make_secret(tmp_path / "secret")
    grid.nodes[100].config["secret-file"] = str(tmp_path / "secret")
    grid.nodes[100].restart()
    result = served(grid, toy, e, tmp_path / "run")
    assert result.state.refused == {}
    assert result.summary["clients"] == 5
