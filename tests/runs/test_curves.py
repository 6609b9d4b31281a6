"""Curves of a run: the numbers it recorded, in a notebook and by matplotlib."""

import re
import sys
import xml.etree.ElementTree as ET

import pytest

import spreadout as so
from spreadout.runs.curves import drawings, series

HISTORY = [
    {"round": 0, "P@1": 10.0, "loss": None, "<b>": 1.0},
    {"round": 5, "P@1": 60.0, "loss": 2.0, "<b>": float("nan")},
    {"round": 10, "P@1": 35.0, "loss": 1.0, "<b>": 3.0},
]


@pytest.fixture(scope="module")
def result() -> so.Result:
    return so.run({"rounds": 4, "eval": {"every": 2}, "data": {"source": "digits"}, "name": "mine"})


def test_a_number_that_was_not_known_is_left_out() -> None:
    assert series(HISTORY, "loss") == ([5, 10], [2.0, 1.0])
    assert series(HISTORY, "<b>") == ([0, 10], [1.0, 3.0])
    assert series(HISTORY, "nothing") == ([], [])


def test_a_drawing_goes_through_its_values_at_scale() -> None:
    drawn = ET.fromstring(drawings(HISTORY, ["P@1", "nothing", "<b>"]))
    first, second = drawn.findall("svg")  # what was never recorded has none
    points = [tuple(map(float, p.split(","))) for p in first.find("polyline").attrib["points"].split()]  # type: ignore[union-attr]
    (x0, y0), (x1, y1), (x2, y2) = points
    assert x1 - x0 == pytest.approx(x2 - x1)  # rounds 0, 5, 10
    assert (y0 - y2) / (y0 - y1) == pytest.approx((35 - 10) / (60 - 10), abs=0.01)  # upwards is better
    assert [text.text for text in first.findall("text")] == ["P@1 (%): 35", "10 – 60, 10 rounds"]
    assert second.attrib["aria-label"] == "<b>"  # a name is text


def test_a_result_displayed_has_a_table_and_its_curves(result: so.Result) -> None:
    shown = result._repr_html_()
    assert shown.startswith("<table>")
    assert re.findall(r'aria-label="([^"]+)"', shown) == ["P@1 (%)", "loss"]
    assert len(repr(result).splitlines()) == 2


def test_a_plot_has_the_numbers_of_the_history(result: so.Result) -> None:
    pytest.importorskip("matplotlib").use("Agg")
    axes = result.plot()
    (line,) = axes.get_lines()
    assert list(line.get_xdata()) == [0, 2, 4]
    assert list(line.get_ydata()) == [one["P@1"] for one in result.history]
    assert (line.get_label(), axes.get_ylabel(), axes.get_xlabel()) == ("mine", "P@1 (%)", "round")
    assert result.plot("bytes_up", axes=axes) is axes
    assert list(axes.get_lines()[1].get_ydata()) == [one["bytes_up"] for one in result.history]
    with pytest.raises(so.UserError, match=r"plot: 'P@5' was not recorded; there are P@1, "):
        result.plot("P@5")


def test_without_matplotlib_there_is_one_line_that_says_what_to_install(
    result: so.Result, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    with pytest.raises(
        so.UserError, match=r"matplotlib is not installed; pip install 'spreadout\[plot\]'"
    ):
        result.plot()
