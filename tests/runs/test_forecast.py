"""What is foretold of a run is what it then costs."""

from collections.abc import Callable

import pytest

import spreadout as so
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
    settings = [*arm, "rounds=4", "eval.every=2", "clients.per_round=6"]
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
