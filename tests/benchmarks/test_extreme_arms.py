"""The tables at extreme shapes: arms that run, equally many points, and a choice by validation alone."""

from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.common.record import read
from benchmarks.papers import extreme
from benchmarks.papers.extreme_arms import ARMS, SETS, Made, experiment, neighbour_arms, rows_arms
from spreadout.config.effect import idle_keys
from spreadout.runs.misfits import _refuse_other_weights

EVERY = {**ARMS, **rows_arms()}


@pytest.mark.parametrize("shape", SETS)
def test_every_arm_is_a_config_with_four_points(shape: str) -> None:
    for name, arm in EVERY.items():
        assert len(arm.points) == 4
        for point in arm.every:
            made = experiment(shape, SETS[shape], name, point)
            assert idle_keys(made) == {}, (name, point)
            _refuse_other_weights(made, made.method)
            assert made.eval.split == "validation"
            assert made.data.validation_fraction > 0


def test_every_k_has_as_many_strengths_and_an_optimizer_that_reads_them() -> None:
    for name, arm in neighbour_arms().items():
        assert len(arm.points) == 6
        for point in arm.points:
            made = experiment("amazoncat-13k", SETS["amazoncat-13k"], name, point)
            assert idle_keys(made) == {}, (name, point)
            assert made.name == f"amazoncat-13k-{name}"
            assert f"{made.method.strength:g}" == point  # type: ignore[attr-defined]


def test_all_arms_have_as_many_further_points_and_none_is_one_of_the_first() -> None:
    for arm in ARMS.values():
        assert len(arm.further) == 4
        tried = [repr(changes) for changes in arm.every.values()]
        assert len(set(tried)) == 8, arm.label


def _made(**validation: float) -> Made:
    """A run whose test scores say the opposite of its validation scores."""
    scores = {way: {"P@1": value} for way, value in validation.items()}
    return {"validation": scores, "test": {way: {"P@1": -value} for way, value in validation.items()}}


def test_points_are_chosen_by_validation_with_the_prior_and_without() -> None:
    kept = {
        "runs": {
            "fedaws a 0": _made(prior=3, without=1),
            "fedaws b 0": _made(prior=2, without=2),
            "fedaws c 0": {"failed": "diverged"},
            "fedaws b 1": _made(prior=9, without=9),  # another seed chooses nothing
            "ten a 0": _made(prior=9, without=9),
        }
    }
    assert extreme.chosen(kept, "fedaws", "prior") == "a"
    assert extreme.chosen(kept, "fedaws", "without") == "b"
    assert extreme.chosen(kept, "softmax", "prior") is None


def test_further_points_count_where_all_arms_have_theirs() -> None:
    further = {
        f"{name} {point} 0": _made(prior=9) for name, one in ARMS.items() for point in one.further
    }
    runs = {"fedaws a 0": _made(prior=3), **further}
    best = extreme.chosen({"runs": runs}, "fedaws", "prior")
    assert best in ARMS["fedaws"].further
    last = list(further)[-1]
    some = {key: one for key, one in runs.items() if key != last}
    assert extreme.chosen({"runs": some}, "fedaws", "prior") == "a"


def test_other_seeds_wait_for_all_points_of_their_arm() -> None:
    points = list(ARMS["fedaws"].points)
    job = extreme.Job("amazoncat-13k", SETS["amazoncat-13k"], "fedaws", points[0])
    kept: Made = {"runs": {f"fedaws {p} 0": _made(prior=i, without=i) for i, p in enumerate(points[:3])}}
    assert extreme.again(job, kept, ARMS, 3) == []
    kept["runs"][f"fedaws {points[3]} 0"] = _made(prior=7, without=0.5)
    later = extreme.again(job, kept, ARMS, 3)
    assert [(one.point, one.seed) for one in later] == [
        (points[3], 1), (points[3], 2), (points[2], 1), (points[2], 2),
    ]  # fmt: skip
    assert extreme.again(later[0], kept, ARMS, 3) == []


def test_a_run_is_written_down_when_it_ends_and_a_failed_one_too(tmp_path: Path) -> None:
    of = SETS["wikilshtc-325k"].resized(0.001, 2)
    first = extreme.Job("wikilshtc-325k", of, "fedaws", next(iter(ARMS["fedaws"].points)))
    done: Future[Made] = Future()
    changes = ["run.precision=float32", "model.dim=8", "model.width=8"]
    done.set_result(extreme.trained(first, "cpu", changes))
    kept: Made = {"runs": {}}
    path = tmp_path / "arms.json"
    extreme.keep(first, done, kept, path)
    found = read(path)
    scores = found["runs"][first.key]
    assert set(found["constant"]) == {"P@1", "P@3", "P@5"}
    assert set(scores["test"]["prior"]) == set(extreme.SCORED)
    assert scores["validation"]["prior"]["P@1"] > scores["validation"]["without"]["P@1"] - 1e-9
    failed: Future[Made] = Future()
    failed.set_exception(RuntimeError("out of memory\nand more"))
    extreme.keep(replace(first, seed=1), failed, kept, path)
    assert read(path)["runs"][f"fedaws {first.point} 1"] == {"failed": "out of memory"}
    assert len(read(path)["runs"]) == 2


def test_runs_of_the_other_table_are_not_made_again() -> None:
    points = list(ARMS["fedaws"].points)
    made: Made = {"runs": {f"fedaws {point} 0": _made(prior=1, without=1) for point in points}}
    made["runs"] |= {"ten elsewhere 0": _made(prior=2, without=2), "baseline-1 x 0": {}}
    some = {
        name: replace(arm, points=dict(list(arm.points.items())[:2]))
        for name, arm in rows_arms().items()
    }
    kept: Made = {"runs": {}}
    extreme.take_over(kept, made, some)
    assert set(kept["runs"]) == {f"0 {point} 0" for point in points[:2]}
