"""Real processes on loopback: a SuperLink, SuperNodes and a server that are killed, stopped and attacked.

They wait for what happens, never for seconds. One scenario is part of `make test`; the others take some
minutes and run in `make test-deploy`.
"""

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
import torch

pytest.importorskip("flwr")

import memory_grid
import spreadout as so
from deployment import (
    METHODS,
    NODES,
    Heard,
    config,
    federation,
    kill_servers,
    open_to_others,
    processes_of,
    refusals,
    spreadout,
    wait_for,
)
from spreadout.config.experiment import Experiment
from spreadout.data.load import load_data
from spreadout.flower import keys
from spreadout.flower.grid import NOT_SELECTED
from spreadout.flower.local import ENVIRONMENT, start_link, start_node, write_connection
from spreadout.flower.messages import TRAIN
from spreadout.flower.processes import Processes
from spreadout.flower.project import write_project
from spreadout.flower.rpc import NO_ANSWER, NOT_CONNECTED
from spreadout.runs import checkpoint

HOSTILE = '''
"""As every node's app, but a node that is told to adds an update in client 0's name."""

from pathlib import Path

from deployed.data import node_data
from spreadout.flower import messages
from spreadout.flower.client_app import client_app

app = client_app(Path(__file__).with_name("experiment.toml"), node_data)
honest = app._registered_funcs["train.default"]


def train(message, context):
    reply = honest(message, context)
    if context.node_config.get("hostile"):
        own = messages.tensors_in(reply.content, "updates")
        forged = {"0/" + name.partition("/")[2]: 1e6 * value for name, value in own.items()}
        reply.content["updates"] = messages.packed({**own, **forged})
    return reply


app._registered_funcs["train.default"] = train
'''


@contextmanager
def umask(mode: int) -> Iterator[None]:
    before = os.umask(mode)
    try:
        yield
    finally:
        os.umask(before)


def reaches(run: subprocess.Popen[str], heard: Heard, round: int) -> None:
    """Wait until a command has done a round."""
    wait_for(lambda: heard.round >= round or run.poll() is not None)
    assert run.poll() is None, run.communicate()


def assert_ends_as_simulated(out: Path, experiment: Experiment) -> checkpoint.ServerState:
    state, _ = checkpoint.load(out / "checkpoint", torch.device("cpu"))
    simulated = so.run(experiment, device="cpu").state
    assert state.round == experiment.rounds
    torch.testing.assert_close(state.dense, simulated.dense, rtol=1e-4, atol=2e-6)
    torch.testing.assert_close(state.tables, simulated.tables, rtol=1e-4, atol=2e-6)
    assert state.traffic == simulated.traffic  # a client a node: byte for byte the simulated ledger
    return state


def test_server_and_node_are_killed_and_one_node_forges_yet_the_model_is_the_simulated_one(
    tmp_path: Path,
) -> None:
    """The scenario of `make test`: one start of everything shows all of it."""
    experiment = config(
        federation(tmp_path / "data.npz"),
        METHODS["fedss"],
        "deploy.takeover=true",
        "run.checkpoint_every=1",
    )
    project, out, home = tmp_path / "project", tmp_path / "run", tmp_path / "home"
    write_project(project, experiment)
    (project / "deployed" / "client.py").write_text(HOSTILE)
    run = ["flwr", "run", str(project), "here", "--stream", "--run-config"]
    with umask(0), Processes(tmp_path / "logs", {**ENVIRONMENT, "FLWR_HOME": str(home)}) as started:
        port = start_link(started, None)
        write_connection(home, port, None)

        def node(i: int) -> None:
            told = {"partition-id": i, "num-partitions": NODES, "hostile": int(i == 2)}
            start_node(started, f"node{i}", port, told)

        for i in range(NODES):
            node(i)
        heard = Heard(out)
        started.start("run", *run, f'out="{out}"')
        honest = ("superlink", "node0", "node2")
        wait_for(lambda: heard.round >= 1, started, "node1", *honest)
        kill_servers(tmp_path)
        started.kill("node1")
        node(1)  # a new identity, to which the old one's client falls once Flower has missed it
        started.start("again", *run, f'out="{out}" resume=true')
        wait_for(lambda: heard.ended == "done", started, "node1", *honest)
    assert started.survivors() == []  # it ended all that it started, and all that those started
    state = assert_ends_as_simulated(out, experiment)
    assert state.refused == {NOT_SELECTED: experiment.rounds}
    assert {(r["client"], r["reason"]) for r in refusals(out) if r["reason"] == NOT_SELECTED} == {
        (0, NOT_SELECTED)
    }
    for folder in (out, tmp_path / "logs"):
        assert list(open_to_others(folder)) == []


@pytest.mark.deploy
def test_a_run_that_is_killed_three_ways_comes_to_the_simulated_end(tmp_path: Path) -> None:
    data = federation(tmp_path / "data.npz")
    experiment = config(data, METHODS["fedaws"], "rounds=6", "run.checkpoint_every=1")
    (tmp_path / "toy.toml").write_text(experiment.to_toml())
    out = tmp_path / "run"
    out.mkdir(mode=0o777)
    again = ["deploy", "resume", str(out)]

    # The server's process is killed: one line says so, and how to go on.
    start = ["deploy", "local", str(tmp_path / "toy.toml"), "--nodes", "3", "--out", str(out)]
    run = spreadout(*start, umask=0)
    heard = Heard(out)
    reaches(run, heard, 1)
    kill_servers(out)
    _, said = run.communicate()
    assert run.returncode == 2
    assert f"spreadout deploy resume {out}" in said
    assert processes_of(out) == {}
    assert list(open_to_others(out)) == []

    # Ctrl-C: the round is finished, the state saved.
    run = spreadout(*again)
    heard = Heard(out)
    reaches(run, heard, 2)
    run.send_signal(signal.SIGINT)
    _, said = run.communicate()
    assert run.returncode == 130
    assert "state saved; resume with: spreadout deploy resume" in said
    assert processes_of(out) == {}

    # The whole command is killed outright: nothing of it stays behind.
    run = spreadout(*again)
    heard = Heard(out)
    reaches(run, heard, 4)
    run.kill()
    run.communicate()
    wait_for(lambda: not processes_of(out))

    (out / "deployment" / "logs" / "run.log").chmod(0o644)  # somebody shows it to a colleague
    run = spreadout(*again, "--json", umask=0)
    told, said = run.communicate()
    assert run.returncode == 0, said
    assert processes_of(out) == {}
    summary = json.loads(told)
    assert (summary["rounds"], summary["refused_updates"]) == (6, {})
    assert_ends_as_simulated(out, experiment)
    assert list(open_to_others(out)) == []

    run = spreadout(*again)
    assert "is finished" in run.communicate()[1]
    assert run.returncode == 2


@pytest.mark.deploy
def test_over_tls_strangers_get_nothing_and_a_killed_node_comes_back(tmp_path: Path) -> None:
    made = tmp_path / "keys"
    made.mkdir()
    keys.make_authority(made)
    keys.make_certificate(made, ["127.0.0.1"])
    other = tmp_path / "other"
    other.mkdir()
    keys.make_authority(other, "another CA")
    for name in ("node0", "node1", "node2", "stranger"):
        keys.make_node_key(made / name)
    roster = "".join(f'[clients.{c}]\nkey = "keys/node{c}.pub"\n' for c in range(3))
    (tmp_path / "roster.toml").write_text(roster)
    experiment = config(
        federation(tmp_path / "data.npz"),
        METHODS["fedaws"],
        "rounds=1000",  # more than it takes; it is stopped when all has been seen
        f"deploy.roster={tmp_path / 'roster.toml'}",
    )
    write_project(tmp_path / "project", experiment)
    out = tmp_path / "run"
    authority = made / "ca.crt"
    with Processes(tmp_path / "logs", {**ENVIRONMENT, "FLWR_HOME": str(tmp_path / "home")}) as started:
        port = start_link(started, tmp_path)
        write_connection(tmp_path / "home", port, authority)

        def node(i: int) -> None:
            told = {"partition-id": i, "num-partitions": 3}
            start_node(started, f"node{i}", port, told, authority, made / f"node{i}")

        for i in range(3):
            public = str(made / f"node{i}.pub")
            started.call(f"register{i}", "flwr", "supernode", "register", public, "here")
            node(i)
        greedy = {"partition-id": 0, "num-partitions": 3}
        start_node(started, "unregistered", port, greedy, authority, made / "stranger")
        start_node(started, "wrong-ca", port, greedy, other / "ca.crt", made / "node0")
        start_node(started, "plaintext", port, greedy)
        run = ["flwr", "run", str(tmp_path / "project"), "here", "--stream"]
        started.start("run", *run, "--run-config", f'out="{out}"')
        heard = Heard(out)
        honest = ("superlink", "node0", "node2")
        wait_for(lambda: heard.round >= 1, started, "node1", *honest)
        started.kill("node1")  # in mid-round, which ends when Flower has missed it
        wait_for(lambda: heard.round >= 3, started, *honest)  # and a round without it

        def back() -> bool:  # Flower lets it in again once it has noticed that it was gone
            if "node1" not in started.running or started.ended("node1"):
                node(1)
            return heard.round > 3 and heard.rounds[-1]["accepted"] == 3

        wait_for(back, started, *honest)
        (out / "deployment" / "stop").touch()
        wait_for(lambda: heard.ended == "interrupted")
    strangers = ("unregistered", "wrong-ca", "plaintext")
    logs = {
        name: (tmp_path / "logs" / f"{name}.log").read_text("utf-8", "replace") for name in strangers
    }
    for name, log in logs.items():
        assert "Receiving" not in log, f"{name} was sent something"
        assert "SuperNode ID" not in log, f"{name} was let in"
    refused = refusals(out)
    assert {record["client"] for record in refused} == {1}
    assert {record["reason"] for record in refused} <= {NO_ANSWER, NOT_CONNECTED}
    # Some rounds without it, and then it trains again.
    assert [record["round"] for record in refused] == list(range(2, 2 + len(refused)))
    assert [event["accepted"] for event in heard.rounds if not event["refused"]][-1] == 3


LEAVING = '''
"""As every node's app, but a node that is told to says that it is about to train, and never does."""

import time
from pathlib import Path

from deployed.data import node_data
from spreadout.flower.client_app import client_app

app = client_app(Path(__file__).with_name("experiment.toml"), node_data)
honest = app._registered_funcs["train.default"]


def train(message, context):
    if "leaves" in context.node_config:
        Path(context.node_config["leaves"]).touch()
        time.sleep(3600)
    return honest(message, context)


app._registered_funcs["train.default"] = train
'''


@pytest.mark.deploy
def test_a_node_is_killed_in_the_middle_of_a_secure_sum_and_the_sum_is_that_of_the_others(
    tmp_path: Path,
) -> None:
    """Four nodes: one has sent its shares and is killed before its numbers; others unmask without it."""
    nodes, y = 4, np.repeat(np.arange(8), 12)
    x = np.random.default_rng(3).normal(size=(96, 5)) + 2 * np.eye(8, 5)[y]
    np.savez(tmp_path / "data.npz", x=x, y=y, client=y // 2, x_test=x[::3], y_test=y[::3])
    secure = ['privacy.model="distributed"', "privacy.clip=0.5", "privacy.noise=0", "method.prior=0"]
    experiment = config(
        tmp_path / "data.npz",
        METHODS["fedaws"],
        *("rounds=2", f"deploy.nodes={nodes}", *secure),
    )
    project, out, home, made = (tmp_path / name for name in ("project", "run", "home", "keys"))
    write_project(project, experiment)
    (project / "deployed" / "client.py").write_text(LEAVING)
    made.mkdir()
    for i in range(nodes):
        keys.make_node_key(made / f"node{i}")
    with Processes(tmp_path / "logs", {**ENVIRONMENT, "FLWR_HOME": str(home)}) as started:
        port = start_link(started, None)
        write_connection(home, port, None)
        for i in range(nodes):
            own = {"partition-id": i, "num-partitions": nodes, "ledger": str(tmp_path / f"ledger{i}")}
            own |= {"node-key": str(made / f"node{i}"), "peers": str(made)}
            own |= {"leaves": str(tmp_path / "left")} if i == 3 else {}
            start_node(started, f"node{i}", port, own)
        heard = Heard(out)
        run = ["flwr", "run", str(project), "here", "--stream", "--run-config", f'out="{out}"']
        started.start("run", *run)
        living = ("superlink", "node0", "node1", "node2")
        wait_for((tmp_path / "left").exists, started, "node3", *living)
        started.kill("node3")
        wait_for(lambda: heard.ended == "done", started, *living)
    state, _ = checkpoint.load(out / "checkpoint", torch.device("cpu"))
    assert {r["client"] for r in refusals(out)} == {3}
    assert sum(state.refused.values()) == 2  # the round it left in, and the one after
    # The same without masks: three clients that send what they have, one that sends nothing.
    told = Experiment.load(project / "deployed" / "experiment.toml")  # with what was chosen for it
    plain = Experiment.of({**told.model_dump(exclude={"privacy"}), "privacy": UNMASKED})
    seen = memory_grid.deployed(load_data(plain.data, plain.seed), plain, tmp_path / "seen", nodes)
    seen.nodes[103].change = lambda question, reply: (
        [] if question.metadata.message_type == TRAIN else [reply]
    )
    quick = plain.model_copy(update={"deploy": plain.deploy.model_copy(update={"timeout": 0.2})})
    wanted = memory_grid.served(seen, load_data(plain.data, plain.seed), quick, tmp_path / "plain")
    torch.testing.assert_close(state.dense, wanted.state.dense, atol=3e-4, rtol=0)
    torch.testing.assert_close(state.tables, wanted.state.tables, atol=3e-4, rtol=0)


UNMASKED = {"clip": 0.5, "noise": 0.0}
