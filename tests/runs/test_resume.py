"""Checkpoints are atomic, and a run killed at any moment ends bit-identical to one that was not."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

import spreadout as so
from spreadout.core.client_state import PerClient
from spreadout.core.state import ServerState
from spreadout.runs import checkpoint

SETTINGS = [
    "rounds=12", "clients.local_steps=20", "eval.every=4", "run.checkpoint_every=3", "clients.per_round=6", "server.optimizer=adam",
    "server.lr=0.02", "method.merge=mean", "method.weighted=true",
]  # fmt: skip


def experiment(*overrides: str) -> so.Experiment:
    return so.Experiment.load("digits-fedaws", [*SETTINGS, *overrides])


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return load_file(folder / "model" / "weights.safetensors")


def assert_same_run(a: Path, b: Path) -> None:
    ours, theirs = weights(a), weights(b)
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)
    timeless = [
        [
            {k: v for k, v in json.loads(line).items() if k != "seconds"}
            for line in (run / "metrics.jsonl").read_text().splitlines()
        ]
        for run in (a, b)
    ]
    assert timeless[0] == timeless[1]
    summaries = [json.loads((run / "summary.json").read_text()) for run in (a, b)]
    for key in ("metrics", "best", "bytes", "refused_updates", "privacy", "rounds"):
        assert summaries[0][key] == summaries[1][key]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("whole") / "run"
    so.run(experiment(), out=folder)
    return folder


@pytest.mark.parametrize("stop_after", [1, 4, 5, 11])
def test_an_interrupted_and_resumed_run_equals_an_uninterrupted_one(
    whole: Path, tmp_path: Path, stop_after: int
) -> None:
    rounds = iter(range(1, 100))
    with pytest.raises(so.Interrupted) as stopped:
        so.run(experiment(), out=tmp_path / "run", stop=lambda: next(rounds) == stop_after)
    assert stopped.value.round == stop_after
    assert not (tmp_path / "run" / "summary.json").exists()
    so.resume(tmp_path / "run")
    assert_same_run(tmp_path / "run", whole)


def test_a_crash_between_checkpoints_loses_only_what_came_after(whole: Path, tmp_path: Path) -> None:
    """Dies in round 9 (an exception, as a kill would), after evaluating round 8: back to round 6."""

    class Dies(so.Observer):
        def round_done(self, report) -> None:  # type: ignore[no-untyped-def]
            if report.round == 9:
                raise RuntimeError("power cut")

    with pytest.raises(RuntimeError):
        so.run(experiment(), out=tmp_path / "run", observer=Dies())
    with open(tmp_path / "run" / "metrics.jsonl", "a") as file:
        file.write('{"round": 9, "P@')  # a line cut short
    so.resume(tmp_path / "run")
    assert_same_run(tmp_path / "run", whole)


def start(folder: Path, *overrides: str) -> subprocess.Popen[str]:
    """A run in a process of its own, with one thread as the runs it is compared with."""
    command = [
        sys.executable,
        "-m",
        "spreadout",
        "run",
        "digits-fedaws",
        *overrides,
        "--out",
        str(folder),
    ]
    one = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=one)


def test_a_killed_process_resumes_to_the_same_end(whole: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    process = start(folder, *SETTINGS)
    pointer, killed = folder / "checkpoint" / "state.json", False
    while process.poll() is None and not killed:
        if pointer.exists() and json.loads(pointer.read_bytes())["round"] > 0:
            process.send_signal(signal.SIGKILL)
            killed = True
        time.sleep(0.002)
    process.communicate()
    if not killed:
        pytest.fail("the run ended before it could be killed")
    done = subprocess.run(
        [sys.executable, "-m", "spreadout", "resume", str(folder), "--json"],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert json.loads(done.stdout)["rounds"] == 12
    assert_same_run(folder, whole)


def test_ctrl_c_saves_and_says_how_to_go_on(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    process = start(folder, "rounds=100000")
    while not (folder / "checkpoint" / "state.json").exists():
        assert process.poll() is None
        time.sleep(0.01)
    with pytest.raises(so.UserError, match=f"{folder}: is in use by process {process.pid} on "):
        so.resume(folder)  # while it runs
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=30)
    assert process.returncode == 130
    assert f"resume with: spreadout resume {folder}" in err
    assert "Traceback" not in err
    state, _ = checkpoint.load(folder / "checkpoint", torch.device("cpu"))
    assert f"interrupted after round {state.round}," in err


def test_resuming_a_finished_run_changes_nothing(whole: Path) -> None:
    before = weights(whole)
    so.resume(whole)
    after = weights(whole)
    assert all(torch.equal(before[name], after[name]) for name in before)


def test_a_run_that_died_before_its_first_checkpoint_starts_again(whole: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "config.toml").write_text((whole / "config.toml").read_text())
    so.resume(folder)
    assert_same_run(folder, whole)


def test_a_run_is_not_resumed_on_other_data_or_without_its_own_parts(
    tmp_path: Path, toy: so.Splits
) -> None:
    settings = ["rounds=4", "eval.every=1"]
    rounds = iter(range(1, 100))
    with pytest.raises(so.Interrupted):
        so.run(
            so.Experiment.load("digits-fedaws", settings),
            data=toy,
            out=tmp_path / "run",
            stop=lambda: next(rounds) == 2,
        )
    with pytest.raises(
        so.UserError, match=r"the data of this run \(toy\) were given in Python; give them again"
    ):
        so.resume(tmp_path / "run")
    x = toy.test.inputs["x"].take(torch.arange(len(toy.test))).numpy()
    other = so.Splits(
        "other",
        so.FederatedDataset.from_arrays(
            x + 1, toy.test.labels.values.numpy(), toy.test.labels.values.numpy()
        ),
        toy.test,
    )
    with pytest.raises(so.UserError, match="was trained on other data"):
        so.resume(tmp_path / "run", data=other)
    assert so.resume(tmp_path / "run", data=toy).summary["rounds"] == 4


def state(round: int = 3) -> ServerState:
    made = ServerState(
        round, {"b": torch.randn(2), "a": torch.randn(3, 2)}, {"classes": torch.randn(4, 2)}
    )
    made.slots = {
        "tables/classes": {"first": torch.randn(4, 2), "steps": torch.ones(4, 1)},
        "dense/a": {},
    }
    made.stored = {"popularity": torch.rand(4)}
    made.records.released_(torch.arange(7), 7)
    made.control = {"a": torch.randn(3, 2)}
    made.clients = {"a": PerClient(torch.tensor([2, 5]), torch.randn(2, 3, 2))}
    made.refused["not finite"] = 5
    return made


def test_a_checkpoint_brings_everything_back(tmp_path: Path) -> None:
    saved = state()
    checkpoint.save(tmp_path, saved, {"seconds": 1.5})
    loaded, extra = checkpoint.load(tmp_path, torch.device("cpu"))
    assert extra == {"seconds": 1.5}
    assert list(loaded.dense) == ["b", "a"]  # order too: noise is drawn in it
    for part in ("dense", "tables", "stored", "control"):
        torch.testing.assert_close(getattr(loaded, part), getattr(saved, part), rtol=0, atol=0)
    torch.testing.assert_close(loaded.records.releases, saved.records.releases)
    assert loaded.records.has_fixed_rows is None
    assert torch.equal(loaded.clients["a"].clients, saved.clients["a"].clients)
    assert torch.equal(loaded.clients["a"].values, saved.clients["a"].values)
    torch.testing.assert_close(
        loaded.slots["tables/classes"], saved.slots["tables/classes"], rtol=0, atol=0
    )
    assert (loaded.round, loaded.traffic, loaded.refused) == (3, saved.traffic, saved.refused)


@pytest.mark.parametrize("moment", range(4))
def test_dying_while_saving_leaves_the_old_state_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: int
) -> None:
    checkpoint.save(tmp_path, state(round=3), {})
    calls = 0

    def dies(*args: object) -> None:
        nonlocal calls
        if calls == moment:
            raise KeyboardInterrupt
        calls += 1
        real[args[0]](*args[1:])  # type: ignore[index]

    real = {"fsync": os.fsync, "replace": os.replace}
    monkeypatch.setattr(os, "fsync", lambda *a: dies("fsync", *a))
    monkeypatch.setattr(os, "replace", lambda *a: dies("replace", *a))
    with pytest.raises(KeyboardInterrupt):
        checkpoint.save(tmp_path, state(round=4), {})
    monkeypatch.undo()
    loaded, _ = checkpoint.load(tmp_path, torch.device("cpu"))
    assert loaded.round == 3
    checkpoint.save(tmp_path, state(round=5), {})  # and the next save cleans up
    assert sorted(file.name for file in tmp_path.iterdir()) == [
        "state-00000005.safetensors",
        "state.json",
    ]


def _cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-10])


@pytest.mark.parametrize(
    ("damage", "complaint"),
    [
        (lambda f: (f / "state.json").unlink(), "state.json is missing"),
        (lambda f: (f / "state-00000003.safetensors").unlink(), "state-00000003.safetensors is missing"),
        (lambda f: _cut(f / "state-00000003.safetensors"), "is damaged"),
        (lambda f: _cut(f / "state.json"), "state.json: is damaged"),
        (lambda f: (f / "state.json").write_text("{}"), "state.json: is damaged"),
        (lambda f: (f / "state.json").write_text((f / "state.json").read_text().replace('"format": 3', '"format": 9')), "format 9"),
    ],
)  # fmt: skip
def test_a_damaged_checkpoint_is_named_not_used(tmp_path: Path, damage, complaint: str) -> None:  # type: ignore[no-untyped-def]
    checkpoint.save(tmp_path, state(), {})
    damage(tmp_path)
    with pytest.raises(so.UserError, match=complaint):
        checkpoint.load(tmp_path, torch.device("cpu"))
