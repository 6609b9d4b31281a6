"""Runs of the table of defaults: what is drawn is valid, what is run is kept, what is known is not run."""

import json
from pathlib import Path

import pytest

from benchmarks.defaults.__main__ import main
from benchmarks.defaults.jobs import ONLY, SETS, Job
from benchmarks.defaults.points import points
from benchmarks.defaults.trials import GROUPS
from benchmarks.defaults.tuning import METHODS
from benchmarks.defaults.tuning import main as tune

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
