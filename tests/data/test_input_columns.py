"""Named columns stay what they are called: in held-out data, in questions, and in a trained model."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import spreadout as so
from command import invoke
from spreadout.data.input_columns import InputColumn, InputColumns

QUICK = {"rounds": 30, "eval": {"references": False}, "method": {"name": "fedaws"}}


def trees(count: int = 60) -> dict[str, list[Any]]:
    """Two kinds, told apart by which of two numbers is large."""
    drawn = np.random.default_rng(0)
    kind = np.arange(count) % 2
    big, small = 5 + drawn.random(count), drawn.random(count)
    return {
        "height": np.where(kind, big, small).round(3).tolist(),
        "girth": np.where(kind, small, big).round(3).tolist(),
        "kind": ["fir" if one else "ash" for one in kind],
        "wood": [f"w{i % 4}" for i in range(count)],
    }


@pytest.fixture(scope="module")
def asked() -> so.Result:
    table = trees()
    train = so.FederatedDataset.from_frame(table, label="kind", client="wood")
    test = so.Examples.from_frame(
        {n: table[n] for n in ("girth", "kind", "height")}, label="kind", like=train
    )
    return so.run(QUICK, data=so.Splits("trees", train, test))


def ask(monkeypatch: pytest.MonkeyPatch, folder: Path, path: Path, *more: str) -> int:
    return invoke(monkeypatch, "predict", str(folder), "--input", str(path), *more)


def best(guesses: list[list[Any]]) -> list[str]:
    return [one[0].id for one in guesses]


def test_held_out_columns_in_another_order_are_put_into_that_of_the_training_data(
    asked: so.Result,
) -> None:
    assert asked.metrics["P@1"] == 100.0


def test_a_question_goes_by_the_names_of_its_columns_also_after_saving(
    asked: so.Result, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pandas = pytest.importorskip("pandas", reason="pandas is not installed")
    kinds, folder = trees()["kind"], asked.save(tmp_path / "run")
    frame = pandas.DataFrame(trees())
    for model in (asked, so.load(folder)):
        for order in (["height", "girth"], ["girth", "height"], ["wood", "girth", "kind", "height"]):
            assert best(model.predict(frame[order])) == kinds
            assert best(model.predict({name: frame[name].tolist() for name in order})) == kinds
        assert (
            best(model.predict(frame[["height", "girth"]].to_numpy())) == kinds
        )  # an array has no names
        with pytest.raises(so.UserError, match=r"no column 'girth', which this .* on; it has height"):
            model.predict(frame[["height"]])
        said = r"'girth', which this .* on; did you mean 'girht'\? It has height, girht, kind$"
        with pytest.raises(so.UserError, match=said):
            model.predict(frame.rename(columns={"girth": "girht"})[["height", "girht", "kind"]])
        with pytest.raises(so.UserError, match=r"which this model was trained on; it has height, kind$"):
            model.predict(frame[["height", "kind"]])
        with pytest.warns(UserWarning, match="colour: was not in the training data and is left out"):
            assert best(model.predict(frame.assign(colour=1))) == kinds
    frame[["girth", "height"]].to_csv(tmp_path / "x.csv", index=False)
    capsys.readouterr()
    assert ask(monkeypatch, folder, tmp_path / "x.csv", "--top", "1", "--json") == 0
    assert [one[0]["id"] for one in json.loads(capsys.readouterr().out)] == kinds
    (tmp_path / "x.csv").write_text("girth,hight\n1,2\n")
    assert ask(monkeypatch, folder, tmp_path / "x.csv") == 2
    said = " ".join(capsys.readouterr().err.split())
    assert "no column 'height', which this model was trained on" in said


def test_held_out_data_with_other_columns_is_refused() -> None:
    table = trees()
    train = so.FederatedDataset.from_frame(table, label="kind", client="wood")
    with pytest.raises(so.UserError, match="no column 'girth'"):
        so.Examples.from_frame({n: table[n] for n in ("height", "kind")}, label="kind", like=train)
    with pytest.raises(so.UserError, match="column 'age' was not in the training data"):
        so.Examples.from_frame({**table, "age": table["girth"]}, label="kind", like=train)
    with pytest.raises(so.UserError, match="features: 'girth' is in this table's or in the training"):
        so.Examples.from_frame(table, label="kind", features=["height"], like=train)
    other = so.Examples.from_frame(table, label="kind", features=["girth", "height"])
    same_classes = so.Examples(other.inputs, other.labels, other.class_names, other.column_names)
    with pytest.raises(so.UserError, match="test: its columns are girth, height, those of the training"):
        so.Splits("trees", train, same_classes)


def test_tables_of_clients_with_columns_in_another_order_are_one_federation() -> None:
    table = trees(8)
    a = {n: table[n][:4] for n in ("height", "girth", "kind")}
    b = {n: table[n][4:] for n in ("girth", "kind", "height")}
    found = so.FederatedDataset.from_partitions({"a": a, "b": b}, label="kind")
    x = found.columns["x"].take(torch.arange(8))
    torch.testing.assert_close(x, torch.tensor([table["height"], table["girth"]]).T)


SOIL = "soil,height,kind\n" + "".join(
    f"{soil},{height},{kind}\n"
    for i in range(20)
    for soil, height, kind in [
        ("wet", i % 7, "ash"),
        ("dry", "" if i == 3 else i % 5, "fir"),
        ("bog", 2, "yew"),
    ]
)


@pytest.fixture(scope="module")
def soil(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    home = tmp_path_factory.mktemp("soil")
    (home / "t.csv").write_text(SOIL)
    source = {"name": "table", "label": "kind"}
    data = {"source": source, "path": home / "t.csv", "test_fraction": 0.2}
    so.run({**QUICK, "data": data}, out=home / "run")
    return home / "run", home / "t.csv"


def test_a_run_on_a_table_is_asked_with_that_very_table(
    soil: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pandas = pytest.importorskip("pandas", reason="pandas is not installed")
    folder, path = soil
    kinds = [line.split(",")[2] for line in SOIL.split()[1:]]
    assert best(so.load(folder).predict(path)) == kinds
    assert best(so.load(folder).predict(pandas.read_csv(path))) == kinds
    capsys.readouterr()
    assert ask(monkeypatch, folder, path, "--top", "1", "--json") == 0
    assert [one[0]["id"] for one in json.loads(capsys.readouterr().out)] == kinds


def test_cells_become_what_they_became_in_training(soil: tuple[Path, Path]) -> None:
    model = so.load(soil[0])
    assert model.columns is not None
    assert model.columns.names == ("soil", "height")
    assert model.columns.columns[0].values == ("bog", "dry", "wet")
    mean = model.columns.columns[1].mean
    assert mean is not None
    x, notes = model.columns.encode({"height": ["", 2.5, "4"], "soil": ["dry", "bog", "wet"]})
    np.testing.assert_allclose(x, [[1, 0, mean], [0, 0, 2.5], [0, 1, 4]])
    assert notes == ()
    with pytest.warns(UserWarning, match="soil: 'sand' was not in the training data; all indicators"):
        model.predict({"height": [1.0], "soil": ["sand"]})
    with pytest.raises(so.UserError, match="row 1: height is 'tall', which is no number"):
        model.predict({"height": ["tall"], "soil": ["dry"]})


def test_a_value_of_no_training_row_is_said_once_on_the_command_line(
    soil: tuple[Path, Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "x.csv").write_text("height,soil\n1,sand\n2,sand\n3,clay\n")
    assert ask(monkeypatch, soil[0], tmp_path / "x.csv") == 0
    assert capsys.readouterr().err.count("was not in the training data") == 1


def test_empty_cells_become_the_mean_of_the_training_rows_alone(tmp_path: Path) -> None:
    rows = "".join(f"{'' if i < 4 else i * i},{'ab'[i % 2]}\n" for i in range(40))
    (tmp_path / "t.csv").write_text("a,label\n" + rows)
    config = so.DataConfig(source="table", path=tmp_path / "t.csv", test_fraction=0.4)
    data = so.load_data(config)
    assert data.train.input_columns is not None
    (column,) = data.train.input_columns.columns
    every = data.train.columns["x"].take(torch.arange(data.train.examples))[:, 0]
    squares = {float(i * i) for i in range(4, 40)}
    known = torch.tensor([v for v in every.tolist() if v in squares])
    assert column.mean == pytest.approx(float(known.mean()))
    whole = sum(squares) / len(squares)
    assert abs(column.mean - whole) > 1  # what the mean over all rows would be
    held = data.test.inputs["x"].take(torch.arange(len(data.test)))[:, 0]
    filled = [v for v in (*every.tolist(), *held.tolist()) if v not in squares]
    assert filled == pytest.approx([column.mean] * 4)


def test_a_value_of_text_that_only_held_out_rows_have_is_no_indicator() -> None:
    columns = InputColumns((InputColumn("soil", 2, ("bog", "dry", "wet")),))
    fitted = columns.fitted(torch.tensor([[1.0, 0.0], [0.0, 0.0]]))
    assert fitted.columns[0].values == ("bog", "dry", None)
    assert fitted.filled(torch.tensor([[0.0, 1.0]])).tolist() == [[0.0, 0.0]]
    x, notes = fitted.encode({"soil": ["wet", "dry"]})
    assert x.tolist() == [[0.0, 0.0], [1.0, 0.0]]
    assert "'wet' was not in the training data" in notes[0]
    assert InputColumns.from_json(json.loads(json.dumps(fitted.as_json()))) == fitted


def test_the_card_of_an_exported_model_says_how_cells_become_numbers(
    soil: tuple[Path, Path], tmp_path: Path
) -> None:
    folder = so.export(soil[0], to="safetensors", out=tmp_path / "model")
    page = (folder / "README.md").read_text()
    assert (
        "1. soil: 1 for its own value, else 0: 'dry', 'wet' ('bog': all 0)\n2. height: a number (empty:"
        in page
    )
    assert json.loads((folder / "model.json").read_text())["columns"]["beside"] == ["kind"]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"n": 1, "w": ["a"]}, "x: column 'n' is '1', no list; give a cell for every row"),
        ({"n": [1], "w": "a"}, "x: column 'w' is 'a', no list"),
        ({"n": None, "w": ["a"]}, "x: column 'n' is 'None', no list"),
        ({"n": np.float64(3), "w": ["a"]}, r"x: column 'n' is '3\.0', no list"),
        ({"n": torch.tensor(3.0), "w": ["a"]}, r"x: column 'n' is 'tensor\(3\.\)', no list"),
        ({"n": (i for i in range(2)), "w": ["a", "b"]}, "x: column 'n' is '<generator"),
        ({"n": [1, 2], "w": ["a"]}, "x: column 'w' has 1 rows, 'n' has 2; they must agree"),
    ],
)
def test_columns_are_lists_of_one_length(given: dict[str, Any], said: str) -> None:
    columns = InputColumns((InputColumn("n", mean=0.0), InputColumn("w", 1, ("a", "b"))))
    with pytest.raises(so.UserError, match=said):
        columns.encode(given)
    named = {"n": given["n"], "w": given["w"], "y": [0, 1]}
    with pytest.raises(so.UserError, match=said.replace("x: ", "data: ", 1)):
        so.FederatedDataset.from_frame(named, label="y")


def test_one_text_is_no_list_of_letters() -> None:
    for said in ("lost card", b"lost card"):
        with pytest.raises(so.UserError, match=r"data: column 't' is .*lost card.*, no list"):
            so.FederatedDataset.from_frame({"t": said, "y": [0, 1]}, label="y")
        with pytest.raises(so.UserError, match=r"partitions: column 't' is .*lost card.*, no list"):
            so.FederatedDataset.from_partitions([{"t": said, "y": [0, 1]}], label="y")
