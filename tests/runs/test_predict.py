"""Asking finished runs: histories of ids or titles, and arrays."""

import io
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

import spreadout as so
from spreadout.cli.main import main
from spreadout.data.unlabelled.histories import parse_histories
from spreadout.runs.predict import Predictor

TITLES = ["Apple (1990)", "Bread (1991)", "Cheese, Old (1992)", "Dates (1993)", "Eggs (1994)"]


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run on people who go through five things in order, again and again."""
    base = tmp_path_factory.mktemp("shop")
    data = base / "ml"
    data.mkdir()
    lines = [f"{u}::{10 * ((u + t) % 5 + 1)}::5::{t}" for u in range(1, 31) for t in range(12)]
    (data / "ratings.dat").write_text("\n".join(lines))
    (data / "movies.dat").write_text("\n".join(f"{10 * (i + 1)}::{t}::X" for i, t in enumerate(TITLES)))
    experiment = so.Experiment.of(
        {
            "rounds": 60,
            "data": {"source": "movielens", "path": str(data)},
            "model": {"encoder": "attention", "dim": 8, "init": 0.5},
            "method": {"name": "dual_encoder", "loss_form": "global_softmax", "scale": 10.0},
            "clients": {"lr": 0.3, "batch": 4, "local_epochs": 1},
            "server": {"optimizer": "adam", "lr": 0.03, "lr_decay": "none"},
            "eval": {"metrics": ["R@1"], "every": 60},
        }
    )
    so.run(experiment, out=base / "run")
    shutil.rmtree(data)  # a finished run needs its data no longer
    return base / "run"


def ask(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.setattr("sys.argv", ["spreadout", "predict", *arguments])
    with pytest.raises(SystemExit) as stopped:
        main()
    return stopped.value.code if isinstance(stopped.value.code, int) else 0


def test_what_comes_next_is_named_by_id_and_title(shop: Path) -> None:
    predictor = Predictor.load(shop)
    for history in (["10", "20"], ["Apple (1990)", "Bread (1991)"], ["apple", "BREAD"]):
        (guesses,) = predictor.predict([history], top=2)
        assert (guesses[0].id, guesses[0].name) == ("30", "Cheese, Old (1992)")
        assert guesses[0].score > guesses[1].score
    (guesses,) = predictor.predict([["30", "40", "50", "10", "20"]], top=5, unseen=True)
    assert guesses == []
    (guesses,) = predictor.predict([["10", "20", "30"]], top=5, unseen=True)
    assert {guess.id for guess in guesses} == {"40", "50"}


def test_the_command_reads_histories_in_every_form(
    shop: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "h.txt"
    file.write_text('10, 20\n\n["Bread (1991)", 30]\nBread (1991)\tCheese, Old (1992)\nDates (1993)\n')
    assert ask(monkeypatch, str(shop), "--input", str(file), "--top", "1", "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert [guesses[0]["id"] for guesses in found] == ["30", "40", "40", "50"]
    monkeypatch.setattr("sys.stdin", io.StringIO("10 20\n"))
    assert ask(monkeypatch, str(shop), "--input", "-", "--top", "1") == 0
    assert capsys.readouterr().out.split(maxsplit=1)[1].strip() == "30  Cheese, Old (1992)"


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("99", "item '99': no such id or title"),
        (
            "(199",
            "item '(199': may be 'Apple (1990)' (id 10), 'Bread (1991)' (id 20)",
        ),
        ("1", "item '1': no such id or title"),
        ("[1, ]", "h.txt:1: not a JSON list"),
        ("[null]", "h.txt:1: not a JSON list of items"),
        ("[true]", "h.txt:1: not a JSON list of items"),
        ("[]", "a history is empty"),
        ("", "h.txt: has no histories; write one a line"),
    ],
)
def test_a_history_that_cannot_be_read_is_one_line(
    shop: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    text: str,
    complaint: str,
) -> None:
    (tmp_path / "h.txt").write_text(text)
    assert ask(monkeypatch, str(shop), "--input", str(tmp_path / "h.txt")) == 2
    said = capsys.readouterr().err
    assert complaint in said
    assert said.count("\n") == 1


def test_a_run_on_arrays_is_asked_with_arrays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    experiment = so.Experiment.load("digits-fedaws", ["rounds=20"])
    result = so.run(experiment, out=tmp_path / "run")
    test = so.load_data(experiment.data, 0).test
    x = test.inputs["x"].take(torch.arange(100)).numpy()
    np.save(tmp_path / "x.npy", x)
    assert (
        ask(
            monkeypatch,
            str(tmp_path / "run"),
            "--input",
            str(tmp_path / "x.npy"),
            "--top",
            "1",
            "--json",
        )
        == 0
    )
    best = [int(guesses[0]["name"]) for guesses in json.loads(capsys.readouterr().out)]
    right = np.mean(np.array(best) == test.labels.values[:100].numpy())
    assert abs(100 * right - result.metrics["P@1"]) < 10
    for array, complaint in (
        (np.zeros((2, 5)), "this run takes 64 numbers an example"),
        (np.array([["a"]]), "this run takes 64 numbers"),
        (np.full((2, 64), np.nan), "not finite in example 0"),
    ):
        np.save(tmp_path / "bad.npy", array)
        assert ask(monkeypatch, str(tmp_path / "run"), "--input", str(tmp_path / "bad.npy")) == 2
        assert complaint in capsys.readouterr().err
    (tmp_path / "h.txt").write_text("1 2\n")
    assert ask(monkeypatch, str(tmp_path / "run"), "--input", str(tmp_path / "h.txt")) == 2
    assert "x has shape (1, 2): this run takes 64 numbers an example" in capsys.readouterr().err


def test_a_folder_without_a_model_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert ask(monkeypatch, str(tmp_path), "--input", "x") == 2
    assert "not a run folder" in capsys.readouterr().err
    (tmp_path / "config.toml").write_text("")
    assert ask(monkeypatch, str(tmp_path), "--input", "x") == 2
    assert "has no model that can be asked; let the run end" in capsys.readouterr().err


def test_histories_are_cut_as_they_are_written() -> None:
    text = '1,2 ;3\nToy Story (1995)\tBabe\n[7, "A, B"]\nLoose, title\n'
    assert list(parse_histories(text, "f")) == [
        ["1", "2", "3"],
        ["Toy Story (1995)", "Babe"],
        ["7", "A, B"],
        ["Loose, title"],
    ]


def test_words_for_ids_may_stand_with_commas(tmp_path: Path) -> None:
    rows = "".join(f"u{u},item-{'abc'[(u + t) % 3]},{t}\n" for u in range(20) for t in range(6))
    (tmp_path / "log.csv").write_text("user,item,time\n" + rows)
    experiment = so.Experiment.of(
        {
            "rounds": 2,
            "data": {"source": "interactions", "path": str(tmp_path / "log.csv")},
            "model": {"encoder": "mean", "dim": 4},
            "method": {"name": "dual_encoder"},
            "eval": {"metrics": ["R@1"], "every": 2},
        }
    )
    so.run(experiment, out=tmp_path / "run")
    predictor = Predictor.load(tmp_path / "run")
    one = predictor.predict([["item-a,item-b"], ["item-a item-b"], ["item-a", "item-b"]], 3)
    assert one[0] == one[1] == one[2]
    with pytest.raises(so.UserError, match="item 'item-z': no such id"):
        predictor.predict([["item-z"]], 3)
