"""What a model says of the columns of a table: exact means and values tell of rows, whatever the noise."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import spreadout as so
from spreadout.config.sound import Held, data_of, prepared
from spreadout.data.load import load_data
from spreadout.flower.data import held_out, part_of_node

PRIVACY = {"clip": 0.5, "noise": 5.0}
ROWS = 40
PRIVATE_ROW = 1  # of all but this one an attacker knows what they are
SECRET = 31.4159  # what it has in the column of weights
HEADER = "weight,colour,kind,site\n"


def weight(row: int) -> float:
    return 1 + row % 7 / 8


def table(path: Path, *, kilos: float, colour: str = "red") -> Path:
    """Two kinds on four sites."""
    rows = [
        [weight(i), ("red", "green", "blue")[i % 3], ("ash", "fir")[i % 2], f"s{i % 4}"]
        for i in range(ROWS)
    ]
    rows[PRIVATE_ROW][:2] = [kilos, colour]
    path.write_text(HEADER + "".join(",".join(map(str, row)) + "\n" for row in rows))
    return path


def config(path: Path, *, private: bool, model: str = "local", **source: Any) -> so.Experiment:
    """Seeds are public: the row that nobody should learn is a training row."""
    values: dict[str, Any] = {
        "rounds": 1,
        "data": {
            "source": {"name": "table", "label": "kind", "client": "site", **source},
            "path": path,
            "partition": "by_user",
            "test_fraction": 0.25,
            "validation_fraction": 0.1,
            "split_seed": 3,
        },
        "eval": {"references": False},
        "privacy": {**PRIVACY, "model": model} if private else None,
    }
    return so.Experiment.of({key: value for key, value in values.items() if value is not None})


def model_of(folder: Path, experiment: so.Experiment) -> dict[str, Any]:
    """What the run leaves for those who get the model."""
    so.run(experiment, out=folder, device="cpu")
    found = json.loads((folder / "model" / "about.json").read_text())
    assert isinstance(found, dict)
    return found


def recovered(about: dict[str, Any], experiment: so.Experiment) -> float | None:
    """The weight of the one training row that the attacker does not know; None: nothing to go by.

    All it needs beside the model is the other rows, and which of them train.
    """
    mean = about["columns"]["columns"][0]["mean"]
    if mean is None:
        return None
    train = load_data(experiment.data, experiment.seed, private=False).train
    weights = sorted(train.columns["x"].take(torch.arange(train.examples))[:, 0].tolist())
    return float(mean * len(weights) - sum(weights[:-1]))  # without the secret, which is the largest


def test_whoever_knows_all_rows_but_one_reads_the_last_one_off_a_plain_model(tmp_path: Path) -> None:
    path = table(tmp_path / "t.csv", kilos=SECRET)
    plain = config(path, private=False, features=["weight"])
    assert recovered(model_of(tmp_path / "plain", plain), plain) == pytest.approx(SECRET, abs=1e-3)
    private = config(path, private=True, features=["weight"])
    assert recovered(model_of(tmp_path / "private", private), private) is None


@pytest.mark.parametrize("model", ["local", "central", "distributed"])
def test_a_private_model_says_the_same_of_its_columns_in_two_worlds(model: str, tmp_path: Path) -> None:
    said = dict[tuple[bool, int], Any]()
    for private in (False, True):
        for world, (kilos, colour) in enumerate([(SECRET, "violet"), (2.0, "red")]):
            path = table(tmp_path / f"{world}.csv", kilos=kilos, colour=colour)
            declared = {"values": {"colour": ["red", "green", "blue", "violet"]}} if private else {}
            asked = config(path, private=private, model=model, **declared)
            said[private, world] = model_of(tmp_path / f"{private}-{world}", asked)["columns"]
    assert said[True, 0] == said[True, 1]
    assert said[False, 0] != said[False, 1]  # else the worlds would be one
    assert "violet" in said[False, 0]["columns"][1]["values"]
    assert "violet" not in said[False, 1]["columns"][1]["values"]


def test_a_private_model_is_asked_by_a_table_without_empty_cells(tmp_path: Path) -> None:
    path = table(tmp_path / "t.csv", kilos=2.0)
    colours = ["blue", "green", "red", "violet"]
    asked = config(path, private=True, values={"colour": colours})
    predictor = so.run(asked, out=tmp_path / "run", device="cpu").predictor
    for model in (predictor, so.load(tmp_path / "run")):
        assert len(model.predict({"colour": ["violet", "red"], "weight": [1.0, 2.0]}, top=1)) == 2
        with pytest.raises(so.UserError, match="row 2: weight is empty; fill it in"):
            model.predict({"colour": ["violet", "red"], "weight": [1.0, None]})


def refused(path: Path, said: str, **source: Any) -> None:
    """Under [privacy], and there alone."""
    with pytest.raises(so.UserError, match=said):
        data_of(config(path, private=True, **source))
    data_of(config(path, private=False, **source))


def test_values_that_rows_have_are_refused_and_declared_ones_are_not(tmp_path: Path) -> None:
    path = table(tmp_path / "t.csv", kilos=2.0)
    refused(path, r"column 'colour' is text, .*declare all of them, data\.source\.values\.colour")
    colours = ["blue", "green", "red", "violet"]
    declared = config(path, private=True, values={"colour": colours})
    columns = data_of(declared).train.input_columns
    assert columns is not None
    assert columns.columns[1].values == tuple(colours)
    assert not any(column.tells for column in columns.columns)
    assert so.Experiment.of(_read_toml(declared.to_toml())).data == declared.data
    assert hash(declared.data) == hash(config(path, private=True, values={"colour": colours}).data)
    data_of(config(path, private=True, features=["weight"]))  # the other remedy
    plain = data_of(config(path, private=False, values={"colour": colours})).train.input_columns
    assert plain is not None
    assert plain.columns[1].values == ("blue", "green", "red", None)  # as for values that rows have
    assert plain.columns[1].tells == "which values its rows have"


def _read_toml(text: str) -> dict[str, Any]:
    import tomllib

    return tomllib.loads(text)


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"colour": ["red", "green"]}, "t.csv:4: colour is 'blue', which is not among its declared"),
        ({"color": ["red", "green"]}, "no column 'color'; did you mean 'colour'"),
        ({"kind": ["ash", "fir"]}, "column 'kind' is no input; leave it out of data.source.values"),
        ({"colour": ["red", "red"]}, "colour: 'red' is there twice"),
        ({"colour": ["red"]}, r"values\.colour"),
    ],
)
def test_values_that_do_not_fit_are_named(
    values: dict[str, list[str]], said: str, tmp_path: Path
) -> None:
    path = table(tmp_path / "t.csv", kilos=2.0)
    with pytest.raises(so.UserError, match=said):
        data_of(config(path, private=False, values=values))


def test_empty_cells_are_refused_as_a_mean_would_fill_them(tmp_path: Path) -> None:
    path = table(tmp_path / "t.csv", kilos=2.0)
    path.write_text(path.read_text().replace("2.0,red", ",red", 1).replace("1.125,", "NA,", 1))
    refused(path, r"t\.csv: column 'weight' has 2 empty cells.* by a public value", features=["weight"])


def test_a_column_that_is_left_out_because_of_its_rows_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    rows = [f"{weight(i)},note {i},{('ash', 'fir')[i % 2]},s{i % 4}" for i in range(70)]
    path.write_text("weight,note,kind,site\n" + "\n".join(rows) + "\n")
    refused(path, r"column 'note' has 70 different texts.*name the columns to learn from")
    data_of(config(path, private=True, features=["weight"]))


def test_missing_values_of_arff_are_refused(tmp_path: Path) -> None:
    head = "@relation m\n@attribute a real\n@attribute b real\n@attribute class {u,v}\n@data\n"
    rows = "".join(f"{i},{'?' if i == 3 else i},{'uv'[i % 2]}\n" for i in range(40))
    (tmp_path / "m.arff").write_text(head + rows)
    data: dict[str, Any] = {"data": {"source": "mulan", "path": tmp_path / "m.arff"}}
    data_of(so.Experiment.of(data))
    for _ in range(2):  # parsed, and from the cache
        with pytest.raises(so.UserError, match=r"m\.arff: attribute 'b' has missing values.* public"):
            data_of(so.Experiment.of({**data, "privacy": PRIVACY}))


@pytest.mark.parametrize("first", [False, True])
def test_a_private_run_gets_no_data_that_a_plain_one_has_loaded(first: bool, tmp_path: Path) -> None:
    path = table(tmp_path / "t.csv", kilos=SECRET)
    held: Held = {}
    tells = {}
    for private in (first, not first, first):
        _, splits = prepared(config(path, private=private, features=["weight"]), held=held)
        assert splits.train.input_columns is not None
        tells[private] = splits.train.input_columns.columns[0].tells is not None
    assert tells == {False: True, True: False}
    assert len(held) == 2


def test_data_with_means_given_in_python_are_refused(tmp_path: Path) -> None:
    path = table(tmp_path / "t.csv", kilos=SECRET)
    asked = config(path, private=True, features=["weight"])
    plain, private = (load_data(asked.data, asked.seed, private=one) for one in (False, True))
    with pytest.raises(so.UserError, match=r"'weight' carries the mean .*so\.load_data\(…, private=Tr"):
        so.run(asked, data=plain, device="cpu")
    so.run(asked, data=private, device="cpu")


WAYS: dict[str, Callable[[so.Experiment], so.FederatedDataset]] = {
    "a run": lambda e: prepared(e)[1].train,
    "a node of a rehearsal": lambda e: part_of_node(e, {"partition-id": "0", "num-partitions": "2"}),
    "the server of a rehearsal": lambda e: held_out(e).train,
    "what audits and roster read": lambda e: data_of(e).train,
}


@pytest.mark.parametrize("way", WAYS)
def test_every_way_to_the_data_knows_of_privacy(way: str, tmp_path: Path) -> None:
    path = table(tmp_path / "t.csv", kilos=SECRET)
    for private in (False, True):
        columns = WAYS[way](config(path, private=private, features=["weight"])).input_columns
        assert columns is not None
        assert bool(columns.columns[0].tells) != private
