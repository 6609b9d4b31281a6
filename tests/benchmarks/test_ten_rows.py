"""Ten rows at small shapes: which points are tried, and what is written down of them."""

from pathlib import Path
from statistics import fmean

import pytest

from benchmarks.common.paths import RESULTS
from benchmarks.common.record import read
from benchmarks.papers import ten_rows
from benchmarks.papers.extreme_arms import ARMS, SETS, Made


@pytest.mark.parametrize("arm", ["softmax", "fedaws", "ten", "fedaws-ten"])
def test_an_arms_points_are_those_that_validation_liked_best_at_large_shapes(arm: str) -> None:
    runs = [read(RESULTS / "extreme" / f"arms-{shape}.json")["runs"] for shape in SETS]
    liked = {
        point: fmean(some[f"{arm} {point} 0"]["validation"]["prior"]["P@1"] for some in runs)
        for point in ARMS[arm].points
    }
    assert ten_rows.POINTS[arm] == tuple(sorted(liked, key=lambda point: -liked[point]))[:3]


def test_the_arm_that_was_not_tried_there_has_fedaws_points() -> None:
    assert ten_rows.POINTS["fedaws-sees-ten"] == ten_rows.POINTS["fedaws"]
    seeing, plain = (ARMS[name].every for name in ("fedaws-sees-ten", "fedaws"))
    for point in ten_rows.SPREAD:
        assert seeing[point] == plain[point]
    method = ARMS["fedaws-sees-ten"].changes["method"]
    assert method == {**ARMS["fedaws"].changes["method"], "negatives": 10}


def test_every_arm_has_as_many_runs_at_every_shape() -> None:
    made = ten_rows.jobs()
    assert len({(job.shape, job.key) for job in made}) == len(made) == 3 * 5 * 3
    first = made[: 3 * 5]  # of which each arm has one at each shape
    assert len({(job.shape, job.arm) for job in first}) == 15
    for job in made:
        changed = job.experiment(ten_rows.ON_CPU)
        assert changed.eval.split == "validation"
        assert changed.run.precision == "float32"


def test_runs_are_written_down_one_by_one_and_not_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[str] = []

    def trained(job: object, device: str, changes: object) -> Made:
        made.append(job.key)  # type: ignore[attr-defined]
        if len(made) == 3:
            raise RuntimeError("diverged\nin round 3")
        scores = {way: {"P@1": float(len(made))} for way in ("prior", "without")}
        return {"validation": scores, "test": scores, "seconds": 1.0, "constant": {"P@1": 0.5}}

    monkeypatch.setattr(ten_rows, "trained", trained)
    path = tmp_path / "ten.json"
    monkeypatch.setattr("sys.argv", ["ten_rows", "--out", str(path)])
    ten_rows.main()
    assert len(made) == 45
    found = read(path)
    assert [len(one["runs"]) for one in found["sets"].values()] == [15, 15, 15]
    runs = found["sets"]["amazon-670k"]["runs"]
    assert runs[made[2]] == {"failed": "diverged"}
    assert runs[made[0]]["test"]["prior"]["P@1"] == 1.0
    assert found["sets"]["amazon-670k"]["constant"] == {"P@1": 0.5}
    ten_rows.main()
    assert len(made) == 45
