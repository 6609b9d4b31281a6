"""References beside a run's score: in its summary, on the terminal, in comparisons and on the page."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import spreadout as so
from spreadout.data.columns import Dense
from spreadout.data.dataset import FederatedDataset
from spreadout.evaluation.config import EvalConfig
from spreadout.evaluation.references import (
    ReferenceSet,
    references_of,
    remembered,
    remembered_references,
)
from spreadout.report.page import page
from spreadout.report.terminal import print_comparison, print_summary
from spreadout.runs.arms import best_central_of, shared_references, unlike_data
from toys import label_sets, label_sets_config, shop, shop_config

SHORT: dict[str, Any] = {"rounds": 1, "clients": {"local_steps": 1}, "chosen": []}


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How often references were computed, with nothing remembered from before."""
    calls: list[int] = []

    def counting(*args: object, **options: object) -> dict[str, so.Reference]:
        calls.append(1)
        return references_of(*args, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(remembered, "references_of", counting)
    monkeypatch.setattr(remembered, "_known", {})
    return calls


def test_a_run_keeps_its_references(tmp_path: Path) -> None:
    data = label_sets(n=120)
    result = so.run(
        label_sets_config({"name": "fedavg"}, rounds=1, data={"targets": "each"}),
        data=one_label(data),
        out=tmp_path / "run",
    )
    expected = references_of(one_label(data), ["P@1"])
    assert {name: one.metrics for name, one in result.references.items()} == {
        name: one.metrics for name, one in expected.items()
    }
    written = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert written["references"] == result.summary["references"]
    assert written["references"]["most frequent"]["is_trivial"] is True
    assert written["references_note"] == ""
    assert written["is_centralized"] is False


def one_label(data: so.Splits) -> so.Splits:
    """The same instances, each with its first label only, on one client a quarter."""
    y = data.train.columns["y"].take(torch.arange(data.train.examples))[:, 0]
    held = y >= 0
    x = data.train.columns["x"].take(held.nonzero()[:, 0])
    train = FederatedDataset.from_arrays(x, y[held], torch.arange(int(held.sum())) % 4, classes=20)
    return replace(data, train=train)


def test_they_are_switched_off_by_one_key(counted: list[int]) -> None:
    result = so.run(so.Experiment.of({**SHORT, "eval": {"references": False}}))
    assert result.references == {}
    assert result.summary["references_note"] == "eval.references = false"
    assert counted == []


def test_where_no_training_data_is_there_the_summary_says_so() -> None:
    data = label_sets()
    empty = replace(
        data,
        train=FederatedDataset(
            {"x": Dense(torch.empty(0, 20)), "y": Dense(torch.empty(0).long())}, torch.tensor([0]), 20
        ),
    )
    assert remembered_references(empty, EvalConfig(), torch.device("cpu")) == ReferenceSet()
    from spreadout.evaluation.references import why_none

    assert why_none(empty, ["P@1"], "test") == "not available: the training data is not here"
    assert why_none(data, ["mAP"], "test") == "not available: every metric needs embeddings"
    assert why_none(data, ["P@1"], "validation") == "not available: no labelled example is held out"


def test_variants_with_the_same_instances_share_them(counted: list[int]) -> None:
    """However the instances are spread over clients; another metric or seed is another matter."""
    base = so.Experiment.of({**SHORT, "data": {"split_seed": 3}})
    other = so.Experiment.of(
        {**SHORT, "data": {"split_seed": 3, "partition": {"name": "dirichlet", "clients": 4}}}
    )
    third = so.Experiment.of({**SHORT, "data": {"split_seed": 3}, "method": {"name": "centralized"}})
    found = so.compare({"a": base, "b": other, "c": third}, seeds=[0, 1])
    assert len(counted) == 1
    assert len({json.dumps(s["references"]) for arm in found for s in arm.summaries}) == 1
    so.run(so.Experiment.of({**SHORT, "data": {"split_seed": 4}}))
    assert len(counted) == 2


def test_what_differs_is_computed_anew(counted: list[int]) -> None:
    data, cpu = label_sets(), torch.device("cpu")
    remembered_references(data, EvalConfig(), cpu)
    remembered_references(data, EvalConfig(metrics=["P@1", "P@2"]), cpu)
    x = data.train.columns["x"]
    assert isinstance(x, Dense)
    moved = replace(data.train, columns={**data.train.columns, "x": Dense(x.values + 1)})
    remembered_references(replace(data, train=moved), EvalConfig(), cpu)
    assert len(counted) == 3
    remembered_references(data, EvalConfig(patience=2, every=3), cpu)
    assert len(counted) == 3


def test_the_terminal_shows_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    result = so.run(shop_config(rounds=1), data=shop(users=20), out=tmp_path / "run")
    print_summary(result.summary, tmp_path / "run", as_json=False)
    shown = capsys.readouterr().out
    for name, one in result.references.items():
        assert f"{name}: R@1 {one.metrics['R@1']:.2f}" in shown
    assert shown.count("references") == 1


def test_a_comparison_has_rows_for_them_and_names_the_best_in_one_place(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    central = so.Experiment.of({**SHORT, "method": {"name": "centralized"}})
    found = so.compare({"ours": so.Experiment.of(SHORT), "oracle": central}, out=tmp_path / "out")
    rows = shared_references(found)
    assert list(rows) == ["most frequent", "ridge", "nearest neighbours"]
    # One round of the oracle is worth nothing yet: what is better is named instead.
    assert found["oracle"].metric("P@1")[0] < rows["nearest neighbours"]["P@1"]["mean"]
    assert best_central_of(found) == "nearest neighbours"
    table = json.loads((tmp_path / "out" / "comparison.json").read_text())
    assert table["best_central"] == "nearest neighbours"
    assert table["variants"][0]["references"] == rows
    print_comparison(found, tmp_path, tmp_path / "report.html")
    shown = capsys.readouterr().out
    assert "ridge" in shown
    assert "best with all data in one place: nearest neighbours" in shown
    drawn = page(found, "title")
    assert drawn.count("<tr class=reference>") == 3
    assert "The best with all data in one place is nearest neighbours." in drawn


def test_arms_on_different_data_have_references_of_their_own() -> None:
    base = {**SHORT, "eval": {"metrics": ["P@1"]}}
    other = {**base, "data": {"split_seed": 9, "test_fraction": 0.5}}
    found = so.compare({"a": so.Experiment.of(base), "b": so.Experiment.of(other)})
    assert list(shared_references(found)) == [
        f"{name} ({arm})" for arm in "ab" for name in ("most frequent", "ridge", "nearest neighbours")
    ]


def test_arms_that_keep_validation_examples_back_share_those_of_all_training_data() -> None:
    """They are scored on the same test examples: the references that learned from more are shown."""
    whole = {**SHORT, "data": {"split_seed": 3}}
    less = {**SHORT, "data": {"split_seed": 3, "validation_fraction": 0.5}}
    found = so.compare({"less": so.Experiment.of(less), "whole": so.Experiment.of(whole)})
    alone = shared_references([found["whole"]])
    assert shared_references([found["less"]])["ridge"] != alone["ridge"]
    assert shared_references(found) == alone


def two_tables(folder: Path) -> dict[str, dict[str, Any]]:
    """Configs of one source that read two files: the second is told with more ease."""
    configs = {}
    for name, noise in (("noisy", 4), ("plain", 1)):
        rows = "".join(
            f"{i % 3 + i * i % 5 * noise},{['ash', 'fir', 'yew'][i % 3]}\n" for i in range(60)
        )
        (folder / f"{name}.csv").write_text("a,kind\n" + rows)
        data = {"source": {"name": "table", "label": "kind"}, "path": str(folder / f"{name}.csv")}
        configs[name] = {"rounds": 1, "data": data}
    return configs


@pytest.mark.parametrize("references", [True, False])
@pytest.mark.parametrize("kept", [True, False])
def test_runs_on_different_data_have_no_winner(
    references: bool, kept: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    eval_ = {"references": references}
    suite = {n: so.Experiment.of({**c, "eval": eval_}) for n, c in two_tables(tmp_path).items()}
    found = so.compare(suite, out=tmp_path / "out" if kept else None)
    assert best_central_of(found) is None
    said = unlike_data(found)
    assert said is not None
    assert said.startswith("These runs are of different data: table noisy.csv, table plain.csv. ")
    print_comparison(found, tmp_path, tmp_path / "report.html")
    shown = capsys.readouterr().out
    assert f"warning: {said}" in shown
    assert "best with all data" not in shown
    if kept:
        assert json.loads((tmp_path / "out" / "comparison.json").read_text())["best_central"] is None
        assert "different data: table noisy.csv, table plain.csv" in page(list(found), "two")


def test_settings_on_the_same_data_may_be_compared(tmp_path: Path) -> None:
    config = two_tables(tmp_path)["plain"]
    slow = {**config, "clients": {"lr": 0.01}}
    for references in (True, False):
        eval_ = {"references": references}
        suite = {n: so.Experiment.of({**c, "eval": eval_}) for n, c in (("a", config), ("b", slow))}
        assert unlike_data(so.compare(suite)) is None
    parts = {
        n: so.Experiment.of({**config, "data": {**config["data"], "split_seed": n}}) for n in (1, 2)
    }
    said = unlike_data(so.compare({f"part-{n}": one for n, one in parts.items()}))
    assert (
        said == "These runs were scored on different held-out examples. Small differences mean nothing."
    )
