"""Arms that chose at the edge of what was tried for them are named; those that chose inside are not."""

from typing import Any

import pytest

from benchmarks.quote import edges

CONFIG = {"eval": {"best_by": ["a", "b"], "metrics": ["a"]}}


def _point(name: str, a: float, b: float = 0.0, arm: str = "one") -> dict[str, Any]:
    return {"arm": arm, "point": name, "a": a, "b": b}


def _edges(monkeypatch: pytest.MonkeyPatch, *points: dict[str, Any], least: int = 2) -> str:
    monkeypatch.setattr(edges, "read", lambda path: {"points": points})
    arms = list(dict.fromkeys(point["arm"] for point in points))
    variants = [{"name": arm, "label": arm.title()} for arm in (*arms, "untuned")]
    made = {"variants": variants, "configs": dict.fromkeys(arms, CONFIG)}
    return edges.edges(made, "tuning.json", least)


def test_the_smallest_and_the_largest_are_edges_and_the_middle_is_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    low = [_point(f"{value}", value == 1, arm="low") for value in (1, 3, 10)]
    high = [_point(f"{value}", value == 10, arm="high") for value in (1, 3, 10)]
    inside = [_point(f"{value}", value == 3, arm="inside") for value in (1, 3, 10)]
    said = _edges(monkeypatch, *low, *high, *inside)
    which = "Low (1, the smallest of 3); High (10, the largest of 3)"
    assert said == f"Chosen at the edge of what was tried: {which}."


def test_a_point_is_chosen_by_the_mean_of_its_metrics_and_one_that_failed_is_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    points = [_point("1", 9, 0), _point("3", 5, 5), _point("10", 0, 0)]
    assert _edges(monkeypatch, *points) == ""
    failed = {"arm": "one", "point": "30", "failed": "memory"}
    assert _edges(monkeypatch, *points, failed) == ""


def test_of_two_values_each_is_at_an_edge_unless_that_is_left_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    points = [_point("1-uniform-8", 1), _point("1-uniform-9", 2), _point("1-examples-9", 0)]
    assert "One (9, the largest of 2)" in _edges(monkeypatch, *points)
    assert _edges(monkeypatch, *points, least=3) == ""
