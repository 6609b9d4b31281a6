"""The extreme tables in documents: test scores of the points that validation chose."""

from collections.abc import Callable
from typing import Any

import pytest

from benchmarks.papers.extreme_arms import ARMS
from benchmarks.papers.ten_rows import POINTS
from benchmarks.quote import extreme


def _run(validation: float, test: float) -> dict[str, Any]:
    def scores(value: float) -> dict[str, dict[str, float]]:
        names = ("P@1", "P@3", "P@5", "PSP@5")
        return {"without": dict.fromkeys(names, value), "prior": dict.fromkeys(names, value + 1)}

    return {"validation": scores(validation), "test": scores(test), "bytes": {"down": 2048, "up": 1024}}


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> Callable[[dict[str, Any]], None]:
    def use(runs: dict[str, Any]) -> None:
        file = {
            "runs": runs,
            "constant": {"P@1": 5.0, "P@3": 4.0, "P@5": 3.0},
            "hardware": "none",
            "versions": {"torch": "0"},
        }
        monkeypatch.setattr(extreme, "read", lambda path: file)
        monkeypatch.setattr(extreme, "table", lambda head, rows, *paths, note="": list(rows))

    return use


def test_the_test_score_of_the_chosen_point_over_its_seeds(made: Any) -> None:
    good, bad, *_ = ARMS["fedaws"].points
    made(
        {
            f"fedaws {good} 0": _run(50, 40),
            f"fedaws {good} 1": _run(0, 42),
            f"fedaws {bad} 0": _run(49, 90),  # better on the test part, which does not count
            f"softmax {good} 0": {"failed": "memory"},
        }
    )
    rows: Any = extreme.arms("wikilshtc-325k")
    assert rows[0] == ["wikilshtc-325k, 0.25 of it", "FedAwS", *["41.0 ± 1.4"] * 4, "2", "2"]
    assert rows[1][1:3] == ["FedAwS + prior", "42.0 ± 1.4"]
    assert rows[2][1:5] == ["Always the most frequent labels", "5.0", "4.0", "3.0"]
    assert len(rows) == 3
    points: Any = extreme.points("wikilshtc-325k")
    fedaws = next(row for row in points if row[1] == "FedAwS")
    assert fedaws[2] == f"{good}: **50.0** → **51.0**"
    assert fedaws[3] == f"{bad}: 49.0 → 50.0"


def test_ten_rows_at_small_shapes_are_scored_where_validation_chose(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    good, bad, other = POINTS["fedaws-sees-ten"]
    runs = {
        f"fedaws-sees-ten {good} 0": _run(50, 40),
        f"fedaws-sees-ten {bad} 0": _run(49, 90),  # better on the test part, which does not count
        f"fedaws-sees-ten {other} 0": {"failed": "memory"},
        f"softmax {POINTS['softmax'][0]} 0": _run(60, 61),
    }
    constant = {"P@1": 5.0, "P@3": 4.0, "P@5": 3.0}
    file = {"sets": {"amazon-670k": {"scale": 0.01, "runs": runs, "constant": constant}}}
    monkeypatch.setattr(extreme, "read", lambda path: file)
    monkeypatch.setattr(extreme, "table", lambda head, rows, *paths, note="": list(rows))
    rows: Any = extreme.ten_rows("a file")
    name = "amazon-670k, 0.01 of it"
    assert rows == [
        [name, ARMS["softmax"].label, "61.0", *["61.0 → 62.0"] * 4, "–"],
        [name, ARMS["fedaws-sees-ten"].label, "51.0", *["40.0 → 41.0"] * 4, "2.0 / 1.0 KiB"],
        [name, "Always the most frequent labels", "–", "5.0", "4.0", "3.0", "–", "–"],
    ]
    points: Any = extreme.ten_rows_points("a file")
    seeing = next(row for row in points if row[1] == ARMS["fedaws-sees-ten"].label)
    assert seeing[2:] == [f"{good}: **50.0** → **51.0**", f"{bad}: 49.0 → 50.0", f"{other}: –"]


def test_rows_beside_ones_own_have_their_bytes(made: Any) -> None:
    point = next(iter(ARMS["ten"].points))
    made({f"10 {point} 0": _run(50, 40)})
    rows: Any = extreme.rows_seen("wikilshtc-325k")
    assert rows == [["wikilshtc-325k", "10", *["40.0 → 41.0"] * 4, "2.0 / 1.0 KiB", "1"]]
