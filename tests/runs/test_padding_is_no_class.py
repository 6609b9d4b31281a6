"""Rows of padding are no class in whatever people read; ids of classes stay as they are."""

import json
from pathlib import Path

import pytest
import torch

import spreadout as so
from spreadout.data.describe import describe
from spreadout.evaluation.by_class import ByClass, by_frequency
from spreadout.report.data_view import counted
from spreadout.report.page import page
from spreadout.report.terminal import print_summary
from spreadout.runs.arms import arms_of
from toys import shop, shop_config

ITEMS = 12


def test_a_run_on_histories_counts_its_items(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data, folder = shop(items=ITEMS), tmp_path / "run"
    assert data.train.classes == ITEMS + 1  # rows of the table
    assert f", {ITEMS} classes, " in repr(data)
    result = so.run(shop_config(), data=data, out=folder)
    assert result.summary["classes"] == ITEMS
    print_summary(result.summary, folder, as_json=False)
    assert f", {ITEMS} classes" in capsys.readouterr().out
    (arm,) = arms_of(folder)
    text = page([arm], "items")
    assert f", {ITEMS} classes, " in text
    assert f"{ITEMS + 1} classes" not in text
    details = json.loads((folder / "details.json").read_text())
    assert sum(one["classes"] for one in details["by_frequency"]) == ITEMS
    drawn = json.loads((folder / "projection.json").read_text())
    assert drawn["ids"] == list(range(1, ITEMS + 1))  # the numbers that they always had
    assert len(drawn["classes"]) == ITEMS


def test_a_description_of_histories_counts_its_items() -> None:
    found = describe(shop(items=ITEMS))
    assert found.classes == ITEMS
    assert dict(counted(found))["classes"].split()[0] == str(ITEMS)
    assert found.classes_held <= found.classes


def test_no_more_places_are_looked_at_than_there_are_items() -> None:
    with pytest.raises(so.UserError, match=rf"R@{ITEMS + 1} needs more classes than the {ITEMS} there"):
        so.run(shop_config(eval={"metrics": [f"R@{ITEMS + 1}"]}), data=shop(items=ITEMS))


def test_padding_is_no_rare_class() -> None:
    trained = torch.tensor([0, 0, 5])
    of = ByClass(2, 1, torch.tensor([0, 1, 1]), torch.tensor([0, 0, 1]), None)
    assert [(one["low"], one["classes"]) for one in by_frequency(trained, of)] == [(0, 2), (4, 1)]
    assert [(one["low"], one["classes"]) for one in by_frequency(trained, of, 1)] == [(0, 1), (4, 1)]
