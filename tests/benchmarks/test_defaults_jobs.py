"""Runs of the table of defaults: what is drawn is valid, what is run is kept, what is known is not run."""

import json
import time
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

import spreadout as so
from benchmarks.defaults.__main__ import main
from benchmarks.defaults.jobs import ONLY, PICTURES, SETS, Job
from benchmarks.defaults.merge import main as merge_all
from benchmarks.defaults.mirror import measured
from benchmarks.defaults.points import points
from benchmarks.defaults.run_file import add, runs_in
from benchmarks.defaults.trials import GROUPS, MIRRORED, of_own_images
from benchmarks.defaults.trials import main as try_all
from benchmarks.defaults.tuning import METHODS
from benchmarks.defaults.tuning import main as tune
from spreadout.config.sound import prepared
from spreadout.data.load import DataConfig

PAIRS = [(name, method) for name in SETS for method in ONLY.get(name, METHODS)]


@pytest.mark.parametrize(("name", "method"), PAIRS)
def test_points_differ_begin_with_the_default_and_are_valid(name: str, method: str) -> None:
    tried = points(name, method)
    assert tried[0] == ()
    assert len(set(tried)) == len(tried)
    others = [points(name, other) for other in ONLY.get(name, METHODS)]
    assert {len(tried)} == {len(other) for other in others}, "as many for every method"
    for changes in tried:
        data = {"source": "digits"} if name in ("delicious", "cifar-10") else {}
        job = Job(name, method, 0, changes, "validation", data=data)
        assert job.experiment().eval.split == "validation"


@pytest.mark.parametrize("group", GROUPS)
def test_trials_are_valid_configs_judged_on_validation_data(
    group: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPREADOUT_DATA", str(tmp_path))  # configs are made, no data is read
    for name, method, changes in GROUPS[group]:
        data = None if name in SETS else {"source": "mulan", "path": name}
        asked = Job(name, method, 0, changes, "validation", data=data or {}).experiment()
        assert asked.eval.split == "validation"
        assert asked.method.name == method


def images(path: Path, side: int) -> Path:
    """Coarse noise of four classes: pictures that have no side."""
    rng = np.random.default_rng(0)
    x = rng.integers(0, 255, (400, 1, side // 4, side // 4), dtype=np.uint8).repeat(4, 2).repeat(4, 3)
    np.savez(path, x=x, y=np.arange(400) % 4)
    return path


@pytest.mark.parametrize("name", PICTURES)
def test_trials_of_augmentation_are_complete_experiments(name: str, tmp_path: Path) -> None:
    """With other images of the same size in the set's place: what a trial says is what is run."""
    data = {"source": "npz", "path": str(images(tmp_path / "x.npz", PICTURES[name]))}
    tried = [(method, changes) for one, method, changes in GROUPS["augmentation"] if one == name]
    assert len(tried) == len(set(tried)) == 2 * 4
    moved = []
    for method, changes in tried:
        complete, _ = prepared(Job(name, method, 0, changes, "validation", data=data).experiment())
        assert (complete.model.encoder, complete.eval.patience) == ("convnet", 10)
        moved.append((complete.clients.image_shift, complete.clients.image_flip, complete.rounds))
    eighth, mirrored = PICTURES[name] // 8, name in MIRRORED
    short = [(0, False, 2000), (eighth, False, 2000), (eighth, True, 2000)]
    assert moved == 2 * [*short, (eighth, mirrored, 4000)]


def test_trials_of_ones_own_images(tmp_path: Path) -> None:
    data = {"source": "npz", "path": str(images(tmp_path / "x.npz", 32))}
    moved = []
    for name, method, changes in of_own_images("own", 32):
        complete, _ = prepared(Job(name, method, 0, changes, "validation", data=data).experiment())
        moved.append((complete.clients.image_shift, complete.clients.image_flip, complete.rounds))
    pairs = [pair for rounds in (300, 1000, 2000) for pair in ((0, False, rounds), (4, True, rounds))]
    assert moved == 2 * [*pairs, (2, True, 2000), (4, True, 2000)]


def test_parts_of_the_trials_can_be_chosen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def named(job: Job) -> dict[str, object]:
        where = job.data.get("path", "published")
        return {**job.about, "metrics": {"P@1": 1.0}, "seconds": 0.0, "where": where}

    monkeypatch.setattr(Job, "run", named)
    out = tmp_path / "trials.json"
    asked = ["--groups", "augmentation", "--methods", "fedss", "--out", str(out)]
    mine, other = images(tmp_path / "mine.npz", 16), images(tmp_path / "a.npz", 28)
    named_files = ["--npz", f"mnist={other}", "--npz", f"mine={mine}"]
    try_all([*asked, "--sets", "mnist,cifar-10,mine", *named_files])
    runs = json.loads(out.read_text())["runs"]
    assert {run["method"] for run in runs} == {"fedss"}
    found = Counter((run["set"], run["where"]) for run in runs)
    assert found == {("mnist", str(other)): 4, ("cifar-10", "published"): 4, ("mine", str(mine)): 8}
    assert {run["split"] for run in runs} == {"validation"}


def test_what_is_measured_of_a_set_is_written_down(tmp_path: Path) -> None:
    found = measured("mnist", images(tmp_path / "mnist.npz", 28))
    assert (found["images"], found["classes"], found["mirrored"]) == (400, 4, True)
    assert abs(found["edges"]["share"]) < 3 * found["edges"]["error"]
    assert 0.6 < found["continuity"] < 0.8  # three of four neighbours are the same


def test_a_table_is_gone_on_with(tmp_path: Path) -> None:
    out = tmp_path / "table.json"
    (tmp_path / "x.npz").write_bytes(b"no arrays")
    for _ in range(2):  # a refusal is a result: it is not tried again
        main(
            [
                "--sets",
                "",
                "--npz",
                f"own={tmp_path / 'x.npz'}",
                "--methods",
                "fedaws",
                "--out",
                str(out),
            ]
        )
    (run,) = json.loads(out.read_text())["runs"]
    assert (run["set"], run["method"], run["seed"]) == ("own", "fedaws", 0)
    assert "x.npz" in run["refused"]


def made(score: float, **about: object) -> dict[str, object]:
    run = {"set": "digits", "method": "fedss", "seed": 0, "metrics": {"P@1": score}, **about}
    return {**run, "commit": "new", "seconds": 0.0}


def test_what_is_named_is_run_again_and_takes_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, asked = tmp_path / "table.json", ["--sets", "digits", "--methods", "fedss,fedavg"]
    for score, seeds, again in ((1.0, "0,1", []), (2.0, "0,1", []), (3.0, "1", ["--again"])):
        monkeypatch.setattr(Job, "run", lambda job, score=score: made(score, **job.about))
        main([*asked, "--seeds", seeds, "--out", str(out), *again])
    found = {(run["method"], run["seed"]): run["metrics"]["P@1"] for run in runs_in(out)}
    assert found == {(m, seed): 1.0 + 2 * seed for m in ("fedss", "fedavg") for seed in (0, 1)}


def test_files_of_several_processes_become_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    into, first, second = (tmp_path / f"{name}.json" for name in ("into", "first", "second"))
    old = {"commit": "old", "hardware": "a loom", "versions": {"torch": "1.0"}}
    into.write_text(json.dumps({**old, "runs": [{"set": "digits", "method": "fedss", "seed": 0}]}))
    add(first, made(1.0, seed=1))
    add(second, made(2.0))
    add(second, made(3.0, split="validation", changes=[]))
    add(second, made(4.0, split="test", changes=[]))
    merge_all([str(into), str(first), str(second)])
    assert "first.json: 1 runs added, 0 replaced" in capsys.readouterr().out
    runs = {(run["seed"], run.get("split")): run for run in runs_in(into)}
    scores = {key: run["metrics"]["P@1"] for key, run in runs.items()}
    assert scores == {(0, None): 2.0, (1, None): 1.0, (0, "validation"): 3.0, (0, "test"): 4.0}
    assert {run["commit"] for run in runs.values()} == {"new"}
    assert "a loom" not in {run["hardware"] for run in runs.values()}
    # What was there before keeps the machine that made it, though the file is written by another.
    into.write_text(json.dumps({**old, "runs": [{"set": "digits", "method": "fedss", "seed": 0}]}))
    merge_all([str(into), str(first)])
    kept, new = runs_in(into)
    assert (kept["hardware"], kept["torch"], kept["commit"]) == ("a loom", "1.0", "old")
    assert new["hardware"] != "a loom"
    with pytest.raises(SystemExit):
        merge_all([str(into), str(tmp_path / "none.json")])


@pytest.mark.parametrize("name", ["digits", "synthetic-100"])
def test_no_point_is_another_one_once_all_is_chosen(name: str) -> None:
    """As many points for every method are as many tries only if they are different ones."""
    held: dict[DataConfig, so.Splits] = {}
    for method in METHODS:
        asked = [
            Job(name, method, 0, point, "validation").experiment() for point in points(name, method)
        ]
        chosen = [prepared(one, held=held)[0].model_dump(exclude={"chosen"}) for one in asked]
        assert all(one not in chosen[:place] for place, one in enumerate(chosen))


def test_points_that_are_not_of_the_list_are_not_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Job, "run", lambda job: made(1.0, **job.about))
    out = tmp_path / "tuned.json"
    add(out, made(99.0, split="validation", changes=["rounds=7"]))
    tune(["--sets", "digits", "--methods", "fedss", "--seeds", "0", "--out", str(out), "--points", "3"])
    (tested,) = [run for run in runs_in(out) if run["split"] == "test"]
    assert tested["changes"] == []


def test_the_best_point_of_validation_data_is_tested(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def scored(job: Job) -> dict[str, object]:
        good = len(job.changes) * (1 if job.split == "validation" else -1)
        return {**job.about, "metrics": {"P@1": good}, "seconds": 0.0}

    monkeypatch.setattr(Job, "run", scored)
    out = tmp_path / "tuned.json"
    for _ in range(2):
        tune(
            [
                "--sets",
                "digits",
                "--methods",
                "fedss",
                "--seeds",
                "0,1",
                "--out",
                str(out),
            ]
        )
    runs = json.loads(out.read_text())["runs"]
    tried = [run for run in runs if run["split"] == "validation"]
    tested = [run for run in runs if run["split"] == "test"]
    assert (len(tried), len(tested)) == (len(points("digits", "fedss")), 2)
    assert {tuple(run["changes"]) for run in tested} == {
        tuple(max(tried, key=lambda run: run["metrics"]["P@1"])["changes"])
    }


def test_a_run_that_is_cut_short_goes_on_to_the_same_end(tmp_path: Path) -> None:
    job = Job("digits", "fedaws", 0, ("rounds=12", "eval.every=5"), references=False)
    assert job.run(tmp_path, end=time.time() - 1) is None
    saved = job.place(tmp_path)
    assert (saved / "config.toml").is_file()
    found, whole = job.run(tmp_path), job.run()
    assert found is not None
    assert whole is not None
    assert not saved.exists()
    apart = {"seconds"}
    assert {k: v for k, v in found.items() if k not in apart} == {
        k: v for k, v in whole.items() if k not in apart
    }
    assert job.run(tmp_path, end=time.time() - 1) is None
    other = Job("digits", "fedaws", 0, ("rounds=3",), references=False)
    saved.rename(other.place(tmp_path))  # of another question: it is begun anew
    begun_anew = other.run(tmp_path)
    assert begun_anew is not None
    assert begun_anew["rounds"] == 3


def test_what_a_time_limit_cuts_off_is_made_by_the_same_command_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, runs = tmp_path / "found.json", tmp_path / "runs"
    monkeypatch.setitem(SETS, "digits", {"source": "digits"})
    whole = Job.experiment
    monkeypatch.setattr(Job, "experiment", lambda job: whole(job).model_copy(update={"rounds": 40}))
    asked = ["--sets", "digits", "--methods", "fedaws", "--out", str(out), "--runs", str(runs)]
    main([*asked, "--seconds", "0.01"])
    assert not out.exists()
    assert [place.name for place in runs.iterdir()] == ["digits-fedaws-0-test"]
    main(asked)
    assert [run["rounds"] for run in runs_in(out)] == [40]
    assert not list(runs.iterdir())
