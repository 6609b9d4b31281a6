"""The soaks themselves take minutes; what they judge by is tested here."""

import itertools
import json
import mmap
from pathlib import Path

import pytest

from benchmarks.soak import comparison, rounds, scale
from benchmarks.soak.memory import Course, open_files, resident, slope
from spreadout.config.experiment import Experiment
from spreadout.runs.compare import Suite


def course(held: list[int]) -> Course:
    made = Course()
    for number, bytes_held in enumerate(held):
        made.add(50 * number, bytes_held)
    return made


def test_growth_is_seen_and_a_late_jump_or_a_cache_that_fills_is_none() -> None:
    steady = [400_000_000] * 100
    leaking = [held + 5_000 * i for i, held in enumerate(steady)]  # 100 bytes a round
    jumping = [held + 3_000_000 * (i > 90) for i, held in enumerate(steady)]
    filling = [held - 2_000_000 * max(0, 15 - i) for i, held in enumerate(steady)]
    assert course(leaking).growth() == pytest.approx(100)
    for held in (steady, jumping, filling):
        assert course(held).growth() == 0
    assert course(leaking).growth() >= rounds.MOST_GROWTH


def test_the_slope_is_that_of_a_line_and_single_points_do_not_move_it() -> None:
    x = list(range(20))
    y = [3.0 * value + 1 for value in x]
    assert slope(x, y) == pytest.approx(3)
    assert slope(x, [*y[:-1], 1e9]) == pytest.approx(3)


def test_a_process_has_memory_and_open_files(tmp_path: Path) -> None:
    before = resident(), open_files()
    kept = mmap.mmap(-1, 64 << 20)  # pages of its own: freed memory of other tests may be used again
    kept.write(b"x" * len(kept))
    with open(tmp_path / "one", "w"):
        assert open_files() == before[1] + 1
    assert resident() - before[0] > 60 << 20
    kept.close()


def test_a_course_in_a_result_file_is_short() -> None:
    told = course(list(range(1000, 1317))).about()
    assert isinstance(told["mb"], list)
    assert isinstance(told["rounds"], list)
    assert len(told["mb"]) == len(told["rounds"]) <= 40


def test_what_the_soaks_run_can_be_read(tmp_path: Path) -> None:
    for values in (rounds.config(10, 0), scale.config(2, 100, 0)):
        Experiment.of(values)
    (tmp_path / "suite.toml").write_text(comparison.suite(3))
    suite = Suite.load([str(tmp_path / "suite.toml")], list(range(10)), [])
    assert len(list(itertools.product(suite.variants, suite.seeds))) == 40


def test_runs_are_compared_by_weights_and_by_all_that_is_told_but_times(tmp_path: Path) -> None:
    def run(name: str, seconds: float, score: float, weights: bytes) -> dict[str, str]:
        folder = tmp_path / name / "one"
        (folder / "model").mkdir(parents=True)
        (folder / "model" / "weights.safetensors").write_bytes(weights)
        told = {"score": score, "seconds": seconds, "references": {"ridge": {"seconds": seconds}}}
        for file in ("metrics.jsonl", "summary.json"):
            (folder / file).write_text(json.dumps({**told, "crc": str(seconds)}))
        return comparison.contents(tmp_path / name)

    whole = run("whole", 1.0, 50.0, b"weights")
    assert whole == run("slower", 2.0, 50.0, b"weights")
    assert whole != run("other score", 1.0, 50.1, b"weights")
    assert whole != run("other weights", 1.0, 50.0, b"Weights")
