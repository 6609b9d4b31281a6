"""Trials on tables of numbers: runs are put together that differ in their seed alone."""

from typing import Any

import pytest

from benchmarks.quote import columns
from benchmarks.quote import tables as quoted
from spreadout.core.errors import UserError

POINTS = {"dropped": ("clients.input_dropout=0.2",), "none": ("clients.input_dropout=0",)}
PART = "data.validation_fraction=0.3"


def run(name: str, score: float, *changes: str, method: str = "fedaws", **more: Any) -> dict[str, Any]:
    return {"set": name, "method": method, "changes": list(changes), "metrics": {"P@1": score}, **more}


def every_point(name: str, scores: tuple[float, ...], *more: str) -> list[dict[str, Any]]:
    """One seed for each score: ten less with dropout, and one less with FedSS."""
    return [
        run(name, score - 10 * (point == "dropped") - (method == "fedss"), *more, *change, method=method)
        for score in scores
        for method in columns.METHODS
        for point, change in POINTS.items()
    ]


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> dict[str, list[dict[str, Any]]]:
    """Result files by name."""
    files: dict[str, list[dict[str, Any]]] = {}
    about = {"commit": "c", "hardware": "h", "versions": {"torch": "2"}}
    for module in (columns, quoted):
        monkeypatch.setattr(module, "read", lambda path: {**about, "runs": files[path]})
    return files


def rows_of(said: str) -> dict[str, list[str]]:
    lines = [line[1:-1].split("|") for line in said.splitlines() if line.startswith("| ")]
    return {line[0].strip(): [cell.strip() for cell in line[1:]] for line in lines}


def test_means_are_over_seeds_of_sets_on_which_all_was_tried(held: dict[str, Any]) -> None:
    held["f"] = [
        *every_point("judged apart", (80.0, 90.0), PART),
        *every_point("judged as usual", (50.0, 60.0)),
        *every_point("one seed", (50.0,)),
        run("some", 1.0, *POINTS["none"]),
    ]
    found = rows_of(columns.tried("f", POINTS, seeds=2))
    assert found["judged apart"] == ["75.0", "85.0", "74.0", "84.0"]
    assert found["judged as usual"] == ["45.0", "55.0", "44.0", "54.0"]
    assert found["mean"] == ["60.0", "70.0", "59.0", "69.0"]
    assert not {"one seed", "some"} & found.keys()


def test_runs_on_other_parts_of_a_set_are_no_further_seeds(held: dict[str, Any]) -> None:
    held["f"] = [*every_point("mixed", (80.0,), PART), *every_point("mixed", (40.0,))]
    held["f"] += every_point("plain", (50.0, 60.0))
    assert "mixed" not in rows_of(columns.tried("f", POINTS, seeds=2))
    usual, apart = columns.tried("f", POINTS, seeds=1), dict[str, tuple[str, ...]]()
    apart = {name: (PART, *change) for name, change in POINTS.items()}
    assert rows_of(usual)["mixed"] == ["30.0", "40.0", "29.0", "39.0"]
    assert rows_of(columns.tried("f", apart, seeds=1))["mixed"] == ["70.0", "80.0", "69.0", "79.0"]


def test_before_and_now_are_beside_the_better_reference(held: dict[str, Any]) -> None:
    beside = {"ridge": {"P@1": 70.0}, "nearest neighbours": {"P@1": 60.0}}
    for path, score in (("before", 50.0), ("now", 80.0)):
        held[path] = [
            run("a", score + i - 5 * (method == "fedss"), PART, method=method, references=beside)
            for i in (0, 2)
            for method in columns.METHODS
        ]
    assert rows_of(columns.before_and_now("now", "before")) == {
        "": ["best reference", "its P@1", "FedAwS, before", "FedAwS", "FedSS, before", "FedSS"],
        "a": ["ridge", "70.0", "51.0", "81.0", "46.0", "76.0"],
        "mean": ["", "70.0", "51.0", "81.0", "46.0", "76.0"],
    }


def test_defaults_on_several_parts_of_a_set_are_not_put_together(held: dict[str, Any]) -> None:
    beside = {"ridge": {"P@1": 70.0}, "nearest neighbours": {"P@1": 60.0}}
    for path in ("before", "now"):
        held[path] = [
            run("a", 50.0, *part, method=method, references=beside)
            for part in ((), (PART,))
            for method in columns.METHODS
        ]
    held["before"] = [one for one in held["before"] if not one["changes"]]
    found = rows_of(columns.before_and_now("now", "before"))
    assert found["a"] == ["ridge", "70.0", "50.0", "50.0", "50.0", "50.0"]
    held["now"] = [{**one, "changes": [PART, "rounds=3"]} for one in held["now"]]
    with pytest.raises(UserError, match="now: no run of a with fedaws and the defaults"):
        columns.before_and_now("now", "before")
