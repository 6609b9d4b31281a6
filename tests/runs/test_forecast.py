"""What is foretold of a run is what it then costs."""

from collections.abc import Callable
from pathlib import Path

import pytest

import spreadout as so
from disk import watched
from spreadout.methods import FedALCFixed
from spreadout.runs.forecast import forecast

METHODS = {
    "fedaws": ["method.name=fedaws"],
    "all rows": ["method.name=fedavg"],
    "sampled": ["method.name=fedss", "method.negatives=3"],
    "rows sent once": ["method.name=baseline-2"],
    "told before the first round": ["method.name=fedss", "method.negatives=3", "method.draw=popular"],
    "in one place": ["method.name=centralized"],
}


@pytest.mark.parametrize("arm", METHODS.values(), ids=METHODS.keys())
def test_bytes_and_sizes_come_out_as_foretold(arm: list[str]) -> None:
    settings = [*arm, "rounds=4", "eval.every=2"]
    if arm != METHODS["in one place"]:  # which has no cohort
        settings.append("clients.per_round=6")
    experiment = so.Experiment.of({"model": {"hidden": [8], "dim": 4}}, overrides=settings)
    told = forecast(experiment, "cpu")
    made = so.run(experiment, device="cpu").summary
    assert (told.clients, told.classes, told.rounds) == (made["clients"], made["classes"], 4)
    assert told.model_bytes == made["model_bytes"]
    moved = made["bytes"]
    visits = max(moved["participations"], 1)
    assert told.once_bytes == moved["once_down"] + moved["once_up"]
    down, up = moved["down"] - moved["once_down"], moved["up"] - moved["once_up"]
    assert told.down_per_client == pytest.approx(down / visits)
    assert told.up_per_client == pytest.approx(up / visits)


DISK = {
    "fedaws": {},
    "adam": {"server": {"optimizer": "adam", "lr": 0.01}},
    "requests": {"run": {"log_requests": True}, "clients": {"per_round": 7}},
    "sampled": {"method": {"name": "fedss", "negatives": 3}, "run": {"log_requests": True}},
    "few checkpoints": {"run": {"checkpoint_every": 8}, "eval": {"every": 3}},
    "states of clients": {"clients": {"drift": {"name": "scaffold"}, "per_round": 4}},
    "no table": {"method": {"name": "fedmlh", "hash_tables": 2, "buckets": 4}},
}


@pytest.mark.parametrize("arm", DISK.values(), ids=DISK.keys())
def test_the_run_folder_is_as_large_as_foretold(arm: dict[str, object], tmp_path: Path) -> None:
    """Within 5 % or 1 kB, at the end and at most."""
    values = {"rounds": 8, "eval": {"every": 1}, "model": {"hidden": [8], "dim": 16}}
    experiment = so.Experiment.of({**values, **arm})
    told, most = forecast(experiment, "cpu"), 0

    def measure(what: str, file: Path) -> None:
        nonlocal most
        most = max(most, size_of(tmp_path))

    with watched(tmp_path, measure):
        so.run(experiment, out=tmp_path / "run", device="cpu")
    assert told.disk_bytes == pytest.approx(size_of(tmp_path), rel=0.05, abs=1000)
    assert told.peak_disk_bytes == pytest.approx(max(most, size_of(tmp_path)), rel=0.05, abs=1000)


def size_of(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def test_time_is_that_of_the_rounds_and_evaluations_rehearsed() -> None:
    experiment = so.Experiment.of({}, overrides=["rounds=40", "eval.every=20"])
    told = forecast(experiment, "cpu")
    told_of = 40 * told.seconds_per_round + told.seconds_before
    told_of += 3 * (told.seconds_per_evaluation + told.seconds_per_checkpoint)
    assert told.seconds == pytest.approx(told_of)
    assert told.peak_memory_bytes > 10 << 20


def test_a_table_that_is_trained_first_is_rehearsed_in_part_and_counted_whole(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With a clock that counts the table's steps, the forecast is how many there are."""
    taken = 0
    objective = FedALCFixed.objective

    def counted(self, state, weights):  # type: ignore[no-untyped-def]
        nonlocal taken
        taken += 1
        return objective(self, state, weights)

    def clock(device: object, work: Callable[[], object]) -> float:
        before = taken
        work()
        return float(taken - before)

    monkeypatch.setattr(FedALCFixed, "objective", counted)
    monkeypatch.setattr("spreadout.runs.forecast._seconds", clock)
    for steps, rehearsed in ((30, 30), (100_000, 70)):
        taken = 0
        method = {"name": "fedalc-fixed", "table_steps": steps}
        told = forecast(so.Experiment.of({"method": method}, overrides=["rounds=1"]), "cpu")
        assert told.seconds_before == pytest.approx(steps)
        assert taken == rehearsed


def test_a_rehearsal_on_a_cpu_keeps_memory_as_the_run_will(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[str] = []
    monkeypatch.setattr("spreadout.runs.forecast.keep_memory", lambda: told.append("forecast"))
    monkeypatch.setattr("spreadout.runs.session.keep_memory", lambda: told.append("run"))
    experiment = so.Experiment.of({}, overrides=["rounds=1"])
    forecast(experiment, "cpu")
    so.run(experiment, device="cpu")
    assert told == ["forecast", "run"]
