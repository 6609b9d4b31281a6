"""The comparison by frequency: every arm is a config that runs, and has as many points as any other."""

import pytest

from benchmarks.papers.by_frequency import HELD_OUT, SHAPES, arms_of
from benchmarks.papers.two_stage import experiment_of
from spreadout.config.effect import idle_keys
from spreadout.runs.misfits import _refuse_other_weights


@pytest.mark.parametrize("shape", SHAPES)
def test_all_arms_are_configs_with_equally_many_points(shape: str) -> None:
    arms = arms_of(SHAPES[shape])
    assert {len(arm.points()) for arm in arms.values()} == {3}
    held = {"data": {"validation_fraction": HELD_OUT}, "eval": {"split": "validation"}}
    for name, arm in arms.items():
        for point, changes in arm.points():
            made = experiment_of(SHAPES[shape].base, name, changes, held)
            assert idle_keys(made) == {}, (name, point)
            _refuse_other_weights(made, made.method)
            assert "P@1 infrequent" in made.eval.metrics
