"""The page: what it says of runs that cannot simply be compared, and that any text can stand in it."""

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import spreadout as so
from spreadout.report.document import as_script, swatch
from spreadout.report.histories import collapse_of, quantities
from spreadout.report.page import page
from spreadout.runs.arms import Arm, arms_of
from tiny import tiny, tiny_data

HOSTILE = "</script><script>alert(1)</script>\"' & <!-- \u202eright to left\u2028" + "x" * 500


@pytest.fixture(scope="module")
def arm(tmp_path_factory: pytest.TempPathFactory) -> Arm:
    folder = tmp_path_factory.mktemp("runs") / "run"
    so.run(tiny(), data=tiny_data(), out=folder, device="cpu")
    return arms_of(folder)[0]


def test_hostile_names_are_texts_everywhere(arm: Arm) -> None:
    summary = {**arm.summaries[0], "dataset": HOSTILE, "method": HOSTILE, "name": HOSTILE}
    text = page([replace(arm, label=HOSTILE, summaries=[summary])], HOSTILE)
    assert "<script>alert" not in text
    assert text.count("</script>") == text.count("<script")
    assert "<!--" not in text
    (own,) = re.findall("<script type=application/json id=runs>(.*?)</script>", text, re.S)
    assert json.loads(own)["arms"][0]["label"] == HOSTILE


def test_json_in_a_script_is_the_same_value() -> None:
    value = {"</script>": [1.5, None, "\u2028<!--"]}
    assert json.loads(as_script(value)) == value
    assert json.loads(as_script([float("nan"), float("inf")])) == [None, None]


def test_runs_of_different_data_are_not_set_side_by_side_without_a_word(arm: Arm) -> None:
    other = replace(arm, label="b", summaries=[{**arm.summaries[0], "dataset": "elsewhere"}])
    assert "different data: tiny, elsewhere" in page([arm, other], "two")
    assert "different data" not in page([arm, replace(arm, label="b")], "two")


def test_a_run_is_called_by_its_method_where_its_name_does_not_say_it(tmp_path: Path) -> None:
    central = {"method": {"name": "centralized"}, "name": "digits-fedaws"}
    so.run(tiny(**central), data=tiny_data(), out=tmp_path / "w_cen", device="cpu")
    assert arms_of(tmp_path / "w_cen")[0].label == "centralized (digits-fedaws)"


def test_no_promise_that_helps_nobody_stands_under_a_score(arm: Arm) -> None:
    assert arm.geometry("error_bound") is not None
    assert "error bound</th>" not in page([arm], "one")


def test_cosines_below_zero_lie_inside_their_axis(arm: Arm) -> None:
    history = [{**record, "max_cosine": -0.5, "mean_cosine": -0.9} for record in arm.histories[0]]
    told = {one["name"]: one["axis"] for one in quantities([replace(arm, histories=[history])])}
    for name, least in (("max_cosine", -0.5), ("mean_cosine", -0.9)):
        assert told[name][0] <= least
        assert told[name][1] == 1


def test_thirty_two_arms_look_different() -> None:
    assert len({swatch(i) for i in range(32)}) == 32


@pytest.mark.parametrize(
    ("collapsing", "expected"),
    [
        ([True, False, False], None),  # before training classes may be anywhere
        ([False, True, True], 1),
        ([False, True, False], None),  # it came apart again
        ([True, False, True], 2),
        ([True], None),
    ],
)
def test_the_moment_of_collapse(collapsing: list[bool], expected: int | None) -> None:
    history: list[Any] = [{"round": i, "collapsing": one} for i, one in enumerate(collapsing)]
    assert collapse_of(history) == expected


def test_a_run_that_was_cut_short_is_reported_as_far_as_it_went(tmp_path: Path) -> None:
    rounds = iter(range(100))
    with pytest.raises(so.Interrupted):
        so.run(
            tiny(rounds=9),
            data=tiny_data(),
            out=tmp_path / "cut",
            stop=lambda: next(rounds) == 3,
            device="cpu",
        )
    (arm,) = arms_of(tmp_path / "cut")
    assert [record["round"] for record in arm.histories[0]] == [0, 1, 2, 3, 4]
    assert arm.summaries[0]["bytes"]["participations"] == 12
    text = page([arm], "cut")
    assert "is not finished. Shown is round 4 of 9" in text
    assert (
        "<p class=about>data given in Python, 4 rounds, 1 seed</p>" in text
    )  # no word of what is not known
    whole = so.run(tiny(rounds=4), data=tiny_data(), device="cpu")
    assert arm.summaries[0]["metrics"] == whole.metrics
    shutil.rmtree(tmp_path / "cut" / "checkpoint")
    with pytest.raises(so.UserError, match="has no evaluation yet"):
        arms_of(tmp_path / "cut")


def test_a_comparison_that_was_cut_short_is_reported_too(tmp_path: Path) -> None:
    variants = {"a": tiny(), "b": tiny(rounds=5)}
    calls = iter(range(100))
    with pytest.raises(so.Interrupted):  # in the second round of the second variant
        so.compare(
            variants, data=tiny_data(), out=tmp_path / "cut", stop=lambda: next(calls) == 3, device="cpu"
        )
    arms = arms_of(tmp_path / "cut")
    assert [(arm.name, arm.summaries[0]["rounds"]) for arm in arms] == [("a", 2), ("b", 2)]
    assert "b, seed 0: is not finished" in page(arms, "cut")
    assert "a, seed 0: is not finished" not in page(arms, "cut")


def _with_notes(arm: Arm, notes: list[str], label: str) -> Arm:
    return replace(arm, label=label, summaries=[{**one, "data_notes": notes} for one in arm.summaries])


def test_notes_on_the_data_stand_once_and_say_whose_they_are(arm: Arm) -> None:
    a, b = _with_notes(arm, ["shared", "<b>own"], "a"), _with_notes(arm, ["shared"], "b")
    text = page([a, b], "two")
    (told,) = re.findall("<h3>Notes on the data</h3><ul class=note>(.*?)</ul>", text)
    assert told == "<li>shared</li><li>a: &lt;b&gt;own</li>"
    assert "Notes on the data" not in page([replace(arm, label="c")], "none")
    many = page([_with_notes(arm, [f"column {i}" for i in range(50)], "a")], "many")
    assert many.count("<li>column") == 20
    assert "<li>and 30 more (data_notes of summary.json)</li>" in many
