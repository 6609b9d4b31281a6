"""Curves of a metric are drawn in its own unit, over the part of its range where its values are."""

import json
import math
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import spreadout as so
from spreadout.core import registry
from spreadout.evaluation.metric import METRICS, Metric, register_metric
from spreadout.evaluation.metrics import described, find_metric
from spreadout.report.page import page
from spreadout.report.terminal import print_comparison, print_summary
from spreadout.runs.arms import Arm, arms_of
from toys import several_classes


@pytest.fixture(autouse=True)
def own_registry(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What a test registers is gone after it."""
    monkeypatch.setattr(METRICS, "_parts", dict(METRICS._parts))
    imported = list(registry.IMPORTED)
    yield
    registry.IMPORTED[:] = imported
    sys.modules.pop("own_axes", None)


def many_classes(metrics: list[str], folder: Path) -> list[Arm]:
    """A short run whose right classes stand far down among a thousand."""
    e = so.Experiment.of(
        {
            "rounds": 4,
            "data": {
                "source": {
                    "name": "synthetic",
                    "classes": 1000,
                    "features": 2000,
                    "examples": 1500,
                    "test_examples": 200,
                },
                "partition": {"name": "iid", "clients": 10},
            },
            "model": {"hidden": [8], "dim": 8},
            "method": {"name": "fedss", "negatives": 20},
            "eval": {"every": 1, "metrics": metrics},
        }
    )
    so.run(e, out=folder, device="cpu")
    return arms_of(folder)


def small(metrics: list[str], folder: Path, **changes: object) -> list[Arm]:
    values = {"rounds": 3, "eval": {"every": 1, "metrics": metrics}, **changes}
    so.run(so.Experiment.of(values), out=folder, data=several_classes(), device="cpu")
    return arms_of(folder)


def runs_of(text: str) -> dict[str, Any]:
    """What the page's script draws from."""
    found = re.search("<script type=application/json id=runs>(.*?)</script>", text, re.S)
    assert found is not None
    return json.loads(found[1])


def quantity(text: str, name: str) -> dict[str, Any]:
    (found,) = [one for one in runs_of(text)["quantities"] if one["name"] == name]
    return found


def test_mean_ranks_are_drawn_as_ranks_inside_their_plot(tmp_path: Path) -> None:
    arms = many_classes(["mean rank", "P@1"], tmp_path / "run")
    values = [record["mean rank"] for record in arms[0].histories[0]]
    assert min(values) > 100  # as percentages they would all lie on the upper edge
    text = page(arms, "ranks")
    told = quantity(text, "mean rank")
    assert told["title"] == "mean rank (lower is better)"
    assert told["lower"]
    low, high = told["axis"]
    assert 1 < low < min(values) < max(values) < high < 1.1 * max(values)
    (arm,) = runs_of(text)["arms"]
    assert arm["seeds"][0]["values"]["mean rank"] == values
    assert arm["seeds"][0]["round"] == [0, 1, 2, 3, 4]
    assert "<th scope=col>mean rank (lower is better)</th><th scope=col>P@1 (%)</th>" in text


def test_percentages_are_drawn_from_nothing_to_all(tmp_path: Path) -> None:
    arms = small(["R@5"], tmp_path / "run")
    assert max(record["R@5"] for record in arms[0].histories[0]) > 50
    told = quantity(page(arms, "recall"), "R@5")
    assert told["title"] == "R@5 (%)"
    assert told["axis"] == [0, 100]


BOUNDS = st.none() | st.floats(-1e6, 1e6)


@given(BOUNDS, BOUNDS, st.lists(st.floats(0, 1), min_size=1), st.floats(-1e6, 1e6), st.floats(0, 1e6))
def test_an_axis_holds_all_values_and_never_leaves_the_range(
    low: float | None, high: float | None, places: list[float], start: float, width: float
) -> None:
    if low is not None and high is not None and low >= high:
        low, high = None, None
    least = start if low is None else low
    most = least + width if high is None else high
    if low is None and high is not None:
        least, most = high - width, high
    values = [min(max(least + place * (most - least), least), most) for place in places]
    bottom, top = Metric("m", len, frozenset(), range=(low, high)).axis([*values, math.nan])
    assert bottom < top
    assert bottom <= min(values) <= max(values) <= top
    assert low is None or bottom >= low
    assert high is None or top <= high + 1e-8


@pytest.mark.parametrize(
    ("name", "values", "expected"),
    [
        ("P@1", [10, 60], (0, 100)),
        ("P@1", [1, 4], (0, 4.2)),  # recalls may be a few percent
        ("P@1", [], (0, 100)),
        ("mean rank", [400, 500], (395, 505)),
        ("mean rank", [2, 21], (1, 21.95)),
        ("mean rank", [1, 1], (1, 1.05)),
        ("unheard of", [-3, -1], (-3.1, -0.9)),
    ],
)
def test_axes_by_hand(name: str, values: list[float], expected: tuple[float, float]) -> None:
    assert described(name).axis(values) == pytest.approx(expected)


def test_values_beyond_the_range_are_drawn_all_the_same() -> None:
    bottom, top = find_metric("P@1").axis([-5, 120])
    assert bottom <= -5
    assert top >= 120


OWN = """
import spreadout as so

@so.register_metric("misses", unit="examples", better="lower", range=(0, None), needs=("rank",))
def misses(inputs):
    return (inputs.rank > 1).sum()
"""


def test_own_metrics_are_drawn_as_they_say_after_their_run_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "own_axes.py").write_text(OWN)
    known = dict(METRICS._parts)
    with monkeypatch.context() as there:
        there.syspath_prepend(tmp_path)
        arms = small(["misses"], tmp_path / "run", imports=["own_axes"])
        assert quantity(page(arms, "own"), "misses")["title"] == "misses (examples, lower is better)"
        # As in another process: the report finds the module by the run's own config.
        METRICS._parts.clear()
        METRICS._parts.update(known)
        del sys.modules["own_axes"]
        assert described("misses").unit == ""
        arms = arms_of(tmp_path / "run")
        assert quantity(page(arms, "own"), "misses")["title"] == "misses (examples, lower is better)"
    METRICS._parts.clear()
    METRICS._parts.update(known)
    sys.modules.pop("own_axes", None)
    told = quantity(page(arms_of(tmp_path / "run"), "bare"), "misses")  # and without the module
    assert told["title"] == "misses"
    values = [record["misses"] for record in arms[0].histories[0]]
    assert told["axis"][0] <= min(values) <= max(values) <= told["axis"][1]


def test_a_metric_without_a_value_leaves_a_gap_and_a_dash(tmp_path: Path) -> None:
    told = iter([math.nan, 3.0, 4.0, math.nan])
    register_metric("fitful", needs=("ranking",))(lambda inputs: next(told))
    text = page(small(["fitful"], tmp_path / "run"), "gaps")
    assert "<b>–</b>" in text
    (arm,) = runs_of(text)["arms"]
    assert arm["seeds"][0]["values"]["fitful"] == [None, 3, 4, None]
    register_metric("never", needs=("ranking",))(lambda inputs: math.nan)
    none = page(small(["never"], tmp_path / "other"), "none")
    assert "never" not in [one["name"] for one in runs_of(none)["quantities"]]
    assert "data-kind=traffic" not in none  # nothing to draw


def test_the_terminal_says_which_way_is_better(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arms = small(["mean rank", "R@1"], tmp_path / "run")
    print_summary(arms[0].summaries[0], tmp_path, as_json=False)
    rank, recall = capsys.readouterr().out.splitlines()[1:3]
    assert rank.startswith("mean rank")
    assert rank.endswith("(lower is better)")
    assert "lower" not in recall
    print_comparison(arms, tmp_path, tmp_path / "report.html")
    shown = capsys.readouterr().out
    assert "(lower is better)" in shown
    assert "(%)" in shown
