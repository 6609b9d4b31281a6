"""Deployments that are killed, interrupted and attacked: real processes, some minutes. `make test-deploy`."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

pytest.importorskip("flwr")

import spreadout as so
from deployment import METHODS, config, federation
from spreadout.config.experiment import Experiment
from spreadout.flower import keys
from spreadout.flower.events import Reader
from spreadout.flower.local import ENVIRONMENT, start_link, start_node, write_connection
from spreadout.flower.processes import Processes
from spreadout.flower.project import write_project
from spreadout.runs import checkpoint

pytestmark = pytest.mark.deploy


def wait_for(what: Callable[[], object], seconds: float = 120) -> None:
    until = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < until, "waited in vain"
        time.sleep(0.1)


def processes_of(folder: Path) -> dict[int, str]:
    """Every living process that has this folder in its environment or its command, and what it is."""
    found = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            told = (entry / "environ").read_bytes() + (entry / "cmdline").read_bytes()
            dead = (entry / "stat").read_text().rpartition(")")[2].split()[0] in "ZX"
            if str(folder).encode() in told and not dead:
                found[int(entry.name)] = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()
        except OSError:
            continue
    return found


class Rounds:
    """How many rounds a run has told of since this was made."""

    def __init__(self, out: Path) -> None:
        self.reader, self.done = Reader(out / "deployment" / "events.jsonl"), 0
        list(self.reader.new())

    def __call__(self) -> int:
        if not self.reader.path.exists():  # a resumed run begins a file of its own
            self.reader = Reader(self.reader.path)
        for event in self.reader.new():
            self.done = event["round"] if event["event"] == "round" else self.done
        return self.done


def spreadout(*args: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "spreadout", *args],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_a_run_that_is_killed_three_ways_comes_to_the_simulated_end(tmp_path: Path) -> None:
    experiment = config(federation(tmp_path / "data.npz"), METHODS["fedaws"])
    experiment = Experiment.of(
        {**experiment.model_dump(mode="json", exclude_none=True), "rounds": 5},
        overrides=["run.checkpoint_every=1"],
    )
    (tmp_path / "toy.toml").write_text(experiment.to_toml())
    out = tmp_path / "run"
    again = ["deploy", "resume", str(out)]

    # The server's process is killed: one line says so, and how to go on.
    run = spreadout("deploy", "local", str(tmp_path / "toy.toml"), "--nodes", "3", "--out", str(out))
    rounds = Rounds(out)
    wait_for(lambda: rounds() >= 1)
    servers = [pid for pid, command in processes_of(out).items() if "flwr-serverapp" in command]
    for pid in servers:
        os.kill(pid, signal.SIGKILL)
    _, said = run.communicate(timeout=180)
    assert run.returncode == 2
    assert f"spreadout deploy resume {out}" in said
    assert processes_of(out) == {}

    # Ctrl-C: the round is finished, the state saved.
    run = spreadout(*again)
    rounds = Rounds(out)
    wait_for(lambda: rounds() >= 2)
    run.send_signal(signal.SIGINT)
    _, said = run.communicate(timeout=120)
    assert run.returncode == 130
    assert "state saved; resume with: spreadout deploy resume" in said
    assert processes_of(out) == {}

    # The whole command is killed outright: nothing of it stays behind.
    run = spreadout(*again)
    rounds = Rounds(out)
    wait_for(lambda: rounds() >= 4)
    run.kill()
    run.communicate()
    wait_for(lambda: not processes_of(out), 30)

    run = spreadout(*again, "--json")
    told, said = run.communicate(timeout=180)
    assert run.returncode == 0, said
    assert processes_of(out) == {}
    summary = json.loads(told)
    assert (summary["rounds"], summary["refused_updates"]) == (5, {})
    state, _ = checkpoint.load(out / "checkpoint", torch.device("cpu"))
    simulated = so.run(experiment, device="cpu").state
    torch.testing.assert_close(state.dense, simulated.dense, rtol=1e-4, atol=2e-6)
    torch.testing.assert_close(state.tables, simulated.tables, rtol=1e-4, atol=2e-6)

    run = spreadout(*again)
    assert "is finished" in run.communicate()[1]
    assert run.returncode == 2


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
    experiment = Experiment.of(
        config(federation(tmp_path / "data.npz"), METHODS["fedaws"]).model_dump(
            mode="json", exclude_none=True
        ),
        overrides=["rounds=9", "deploy.timeout=20", f"deploy.roster={tmp_path / 'roster.toml'}"],
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
        rounds = Rounds(out)
        wait_for(lambda: rounds() >= 1)
        started.kill("node1")  # in mid-round
        wait_for(lambda: rounds() >= 2)

        def finished() -> bool:  # Flower lets it in again once it has noticed that it was gone
            if "node1" not in started.running or started.ended("node1"):
                node(1)
            return (out / "summary.json").exists()

        wait_for(finished, 300)
    strangers = ("unregistered", "wrong-ca", "plaintext")
    logs = {
        name: (tmp_path / "logs" / f"{name}.log").read_text("utf-8", "replace") for name in strangers
    }
    for name, log in logs.items():
        assert "Receiving" not in log, f"{name} was sent something"
        assert "SuperNode ID" not in log, f"{name} was let in"
    summary = json.loads((out / "summary.json").read_text())
    assert summary["clients"] == 3
    refused = [json.loads(line) for line in (out / "refusals.jsonl").read_text().splitlines()]
    assert {record["client"] for record in refused} == {1}
    assert {record["reason"] for record in refused} <= {"no answer in time", "not connected"}
    # Some rounds without it, and then it trains again.
    assert [record["round"] for record in refused] == list(range(2, 2 + len(refused)))
    assert 1 <= len(refused) <= 7
