"""`spreadout deploy` as a person meets it, and processes that end with what started them."""

import os
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch

pytest.importorskip("flwr")

from command import invoke
from memory_grid import MemoryGrid, Node
from spreadout.config.experiment import Experiment
from spreadout.core.errors import UserError
from spreadout.core.traffic import Traffic
from spreadout.data.held_out import Examples
from spreadout.federated.cohort import Cohort
from spreadout.federated.round import RoundReport
from spreadout.flower.client_app import client_app
from spreadout.flower.data import held_out, judged_on, own_arrays, own_file, part_of_node
from spreadout.flower.events import Events, Reader, forward
from spreadout.flower.local import write_roster
from spreadout.flower.processes import Processes
from spreadout.flower.project import write_project
from spreadout.flower.server_app import serve
from spreadout.runs.observer import Observer


def test_without_flower_one_line_names_the_extra_and_the_core_does_not_mind() -> None:
    code = (
        "import sys; sys.modules['flwr'] = None\n"
        "import spreadout, spreadout.runs.train, spreadout.runs.build\n"
        "sys.argv = ['spreadout', 'deploy', 'local', 'digits-fedaws']\n"
        "from spreadout.cli import main as cli\n"
        "cli.main()\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.splitlines() == [
        "error: deploy: Flower is not installed; pip install 'spreadout[flower]'"
    ]


def test_init_writes_a_project_that_flower_can_build(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "mine"
    args = ["deploy", "init", str(folder), "--config", "digits-fedaws", "rounds=7", "deploy.nodes=2"]
    assert invoke(monkeypatch, *args) == 0
    assert "README.md next" in capsys.readouterr().out
    experiment = Experiment.load(folder / "deployed" / "experiment.toml")
    assert (experiment.rounds, experiment.deploy.nodes) == (7, 2)
    assert "num-partitions=2" in (folder / "README.md").read_text()
    from flwr.cli.build import build_fab_from_disk

    held = build_fab_from_disk(folder)
    for name in (b"deployed/client.py", b"deployed/data.py", b"deployed/experiment.toml"):
        assert name in held
    assert invoke(monkeypatch, *args) == 2  # it is not written over
    assert "is not empty; choose another folder" in capsys.readouterr().err


def test_what_cannot_be_deployed_is_said_in_one_line_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "run"
    call = ["deploy", "local", "digits-fedaws", "method.name=centralized", "--out", str(out)]
    assert invoke(monkeypatch, *call) == 2
    assert capsys.readouterr().err.startswith("error: method.name = 'centralized': pools the data")
    assert not out.exists()
    assert invoke(monkeypatch, "deploy", "resume", str(tmp_path)) == 2
    assert "was not made by `spreadout deploy local`" in capsys.readouterr().err
    assert invoke(monkeypatch, "deploy", "resume", str(tmp_path / "nowhere")) == 2
    assert "no such folder" in capsys.readouterr().err
    (tmp_path / "deployment").mkdir()
    for command in (["resume"], ["deploy", "resume"]):  # one that `flwr run` made
        assert invoke(monkeypatch, *command, str(tmp_path)) == 2
        assert "`flwr run … resume=true`" in capsys.readouterr().err
    (tmp_path / "deployment" / "project").mkdir()
    assert invoke(monkeypatch, "resume", str(tmp_path)) == 2
    assert "resume it with `spreadout deploy resume" in capsys.readouterr().err


def test_a_project_trains_on_files_of_the_nodes_own(tmp_path: Path) -> None:
    """Three nodes with a file each, a server with a test set: nobody has the whole."""
    rng = np.random.default_rng(0)

    def drawn(label: np.ndarray) -> np.ndarray:
        return (rng.normal(size=(len(label), 4)) + 3 * np.eye(6, 4)[label]).astype(np.float32)

    nodes = []
    config = tmp_path / "experiment.toml"
    config.write_text(
        Experiment.of(
            {"rounds": 2, "model": {"hidden": [4], "dim": 3}, "deploy": {"nodes": 3}}
        ).to_toml()
    )
    app = client_app(config, lambda e, node: own_file(node["examples"], classes=6))
    for i in range(3):
        y = np.repeat([2 * i, 2 * i + 1], 10)
        path = tmp_path / f"node{i}.npz"
        np.savez(path, x=drawn(y), y=y, client=10 + y)
        nodes.append(Node(i, app, {"examples": str(path), "device": "cpu"}))
    label = np.arange(6).repeat(5)
    judged = judged_on(Examples.from_arrays(drawn(label), label), classes=6)
    experiment = Experiment.load(config)
    result = serve(
        MemoryGrid(nodes), experiment, tmp_path / "run", server_data=lambda e: judged, device="cpu"
    )
    assert result.summary["clients"] == 6  # numbered 10 to 15
    assert result.state.refused == {}
    assert result.state.traffic.participations == 12


@pytest.mark.parametrize(
    ("arrays", "word"),
    [
        (
            {"x": np.zeros((2, 3)), "y": np.array([0, 9]), "client": np.array([0, 1])},
            "y has the class 9",
        ),
        (
            {"x": np.zeros((2, 3)), "y": np.array([0, 1]), "client": np.array([0])},
            "client has 1 entries",
        ),
        ({"x": np.zeros((2, 3)), "y": np.array([0, 1])}, "must hold the arrays x, y and client"),
    ],
)
def test_a_nodes_wrong_file_is_named(arrays: dict[str, np.ndarray], word: str, tmp_path: Path) -> None:
    np.savez(tmp_path / "mine.npz", **arrays)
    with pytest.raises(UserError, match=word):
        own_file(tmp_path / "mine.npz", classes=3)


def test_a_node_without_its_file_says_so_to_the_server(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"gone\.npz: no such file"):
        own_file(tmp_path / "gone.npz", classes=3)
    with pytest.raises(UserError, match="has no partition-id"):
        part_of_node(Experiment(), {})


def test_own_arrays_keep_the_numbers_of_their_clients() -> None:
    x, y = np.zeros((4, 2)), np.array([0, 1, 2, 0])
    data = own_arrays(x, y, np.array([40, 7, 40, 7]), classes=3)
    assert data.number_of(torch.arange(2)).tolist() == [7, 40]
    assert data.rows_of(torch.arange(2))["classes"].values.tolist() == [0, 1, 0, 2]


def test_a_rehearsals_parts_are_the_whole() -> None:
    experiment = Experiment.load("digits-fedaws")
    parts = [part_of_node(experiment, {"partition-id": i, "num-partitions": 3}) for i in range(3)]
    numbers = sorted(n for part in parts for n in part.number_of(torch.arange(part.clients)).tolist())
    assert numbers == list(range(10))
    server = held_out(experiment)
    assert server.train.examples == 0
    assert len(server.test) > 0


def test_a_secure_rehearsal_names_every_clients_key_and_classes(tmp_path: Path) -> None:
    from spreadout.flower import keys
    from spreadout.flower.access import fingerprint_of, read_roster

    (tmp_path / "keys").mkdir()
    for node in range(2):
        keys.make_node_key(tmp_path / "keys" / f"node{node}")
    path = write_roster(tmp_path / "roster.toml", Experiment.load("digits-fedaws"), 2)
    roster = read_roster(path)
    assert len(roster) == 10
    assert roster[3].node == fingerprint_of(tmp_path / "keys" / "node1.pub")
    assert roster[3].classes == (3,)
    seeing = Experiment.load("digits-fedaws", ["method.negatives=4"])
    assert write_roster(tmp_path / "seeing.toml", seeing, 2).read_text() == path.read_text()


def test_a_run_is_heard_from_another_process_line_by_line(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    events, reader, heard = Events(path), Reader(path), []

    class Listener(Observer):
        def warned(self, text: str) -> None:
            heard.append(text)

    events.warned("one")
    with open(path, "a") as file:
        file.write('{"event": "warned", ')  # half a line
    for event in reader.new():
        forward(event, Listener(), Experiment(), reader.refused)
    with open(path, "a") as file:
        file.write('"text": "two"}\n')
    for event in reader.new():
        forward(event, Listener(), Experiment(), reader.refused)
    lost = Counter({"no answer in time": 2})
    cohort = Cohort(0, torch.arange(0), {})
    for number, refused in enumerate((Counter(), lost, lost, Counter()), 1):
        events.round_done(RoundReport(number, 6, 4, 0.5, refused, Traffic(), cohort))
    for event in reader.new():
        forward(event, Listener(), Experiment(), reader.refused)
    assert heard == ["one", "two", "round 2: refused of 6 updates: 2 no answer in time"]


LEAVER = """
import os, subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "import signal, time; signal.signal(15, signal.SIG_IGN); time.sleep(60)"], start_new_session=True)
open(sys.argv[1], "w").write(str(child.pid))
time.sleep(60)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_processes_that_leave_their_group_and_ignore_sigterm_end_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("spreadout.flower.processes.PATIENCE", 0.5)
    told = tmp_path / "child"
    with Processes(tmp_path / "logs", {}) as processes:
        processes.start("leaver", sys.executable, "-c", LEAVER, str(told))
        until = time.monotonic() + 20
        while not (told.exists() and told.read_text()):
            assert time.monotonic() < until
            time.sleep(0.05)
        time.sleep(0.3)
        assert len(processes.survivors()) == 2
    assert processes.survivors() == []


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_an_exception_ends_them_as_well(tmp_path: Path) -> None:
    processes = Processes(tmp_path / "logs", {})

    def interrupted() -> None:
        with processes:
            processes.start("sleeper", sys.executable, "-c", "import time; time.sleep(60)")
            assert len(processes.survivors()) == 1
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert processes.survivors() == []


def test_a_program_that_fails_is_quoted(tmp_path: Path) -> None:
    with Processes(tmp_path / "logs", {}) as processes:
        with pytest.raises(UserError, match="no luck today"):
            processes.call(
                "unlucky", sys.executable, "-c", "print('no luck today'); raise SystemExit(3)"
            )
        with pytest.raises(UserError, match="no-such-program: not found; pip install"):
            processes.start("nobody", "no-such-program")
    assert os.environ.get("SPREADOUT_DEPLOYMENT") is None  # ours is as it was


def test_every_template_fills_in(tmp_path: Path) -> None:
    for path in write_project(tmp_path / "mine", Experiment.load("digits-fedaws")):
        assert "$name" not in path.read_text()
        if path.suffix == ".py":
            compile(path.read_text(), str(path), "exec")
