"""A node's own CSV becomes the very numbers that the federation's table has, or is refused by name."""

import csv
from pathlib import Path

import numpy as np
import pytest
import torch

pytest.importorskip("flwr")

from memory_grid import MemoryGrid, Node
from spreadout.config.experiment import Experiment
from spreadout.config.sound import data_of
from spreadout.core.errors import UserError
from spreadout.data.columns import Sparse
from spreadout.flower.client_app import client_app
from spreadout.flower.data import held_out
from spreadout.flower.node_tables import AGREED, AgreedColumns, own_examples, own_table
from spreadout.flower.project import write_project
from spreadout.flower.server_app import serve

KINDS = ("ash", "elm", "yew")
HEADER = ["height", "leaf", "width", "kind", "who"]


def rows(seed: int = 0, each: int = 20) -> list[list[str]]:
    """Trees of three kinds, 0, 1 and 2 being who measured them; some widths are missing."""
    rng = np.random.default_rng(seed)
    found = []
    for k, kind in enumerate(KINDS):
        for i in range(each):
            width = "" if i % 7 == 3 else f"{rng.normal(2 * k):.3f}"
            leaf = ("round", "long", "broad")[int(rng.integers(3))]
            found.append([f"{rng.normal(5 - k):.3f}", leaf, width, kind, str(k)])
    return found


def written(path: Path, body: list[list[str]], order: str = "01234", mark: str = ",") -> Path:
    with path.open("w", newline="") as stream:
        out = csv.writer(stream, delimiter=mark)
        out.writerows([line[int(i)] for i in order] for line in [HEADER, *body])
    return path


def config(path: Path, **changes: object) -> Experiment:
    source = {"name": "table", "label": "kind", "client": "who"}
    return Experiment.of(
        {
            "rounds": 2,
            "data": {"source": source, "path": str(path)},
            "model": {"hidden": [], "dim": 3},
            "clients": {"local_steps": 1},
            "eval": {"metrics": ["P@1"]},
            "deploy": {"nodes": 3},
            **changes,
        }
    )


@pytest.fixture
def table(tmp_path: Path) -> Path:
    return written(tmp_path / "all.csv", rows())


@pytest.fixture
def project(tmp_path: Path, table: Path) -> Path:
    write_project(tmp_path / "project", config(table))
    return tmp_path / "project" / "deployed"


@pytest.mark.parametrize(("order", "mark"), [("01234", ","), ("43210", ";"), ("20413", "\t")])
def test_a_nodes_rows_are_the_numbers_of_the_federation(
    project: Path, tmp_path: Path, order: str, mark: str
) -> None:
    e = Experiment.load(project / "experiment.toml")
    agreed = AgreedColumns.read(project / AGREED)
    # The whole table as if it were a node's: every training row of the federation is among its rows.
    mine = own_table(written(tmp_path / "mine.csv", rows(), order, mark), agreed, e)
    theirs = data_of(e).train
    assert mine.numbers is not None
    known = {
        (*x, int(y))
        for x, y in zip(
            mine.columns["x"].take(torch.arange(60)).tolist(),
            mine.columns["y"].take(torch.arange(60)).tolist(),
            strict=True,
        )
    }
    some = torch.arange(theirs.examples)
    for x, y in zip(
        theirs.columns["x"].take(some).tolist(), theirs.columns["y"].take(some).tolist(), strict=True
    ):
        assert (*x, int(y)) in known
    assert mine.numbers.tolist() == [0, 1, 2]
    assert mine.classes == theirs.classes == 3


def test_one_row_alone_has_the_indicators_and_the_means_of_all(project: Path, tmp_path: Path) -> None:
    e, agreed = Experiment.load(project / "experiment.toml"), AgreedColumns.read(project / AGREED)
    path = written(tmp_path / "mine.csv", [["5.5", "long", "", "yew", "2"]])
    one = own_table(path, agreed, e, client=7)
    (width,) = (column for column in agreed.columns.columns if column.name == "width")
    x = one.columns["x"].take(torch.arange(1))[0].tolist()
    assert x == pytest.approx([5.5, 1.0, 0.0, width.mean])  # broad has none; long; round
    assert one.columns["y"].take(torch.arange(1)).tolist() == [2]
    assert one.numbers is not None
    assert one.numbers.tolist() == [7]


def test_a_federation_trains_on_a_csv_on_every_node(project: Path, tmp_path: Path) -> None:
    app = client_app(
        project / "experiment.toml", lambda e, node: own_examples(e, node, project / AGREED)
    )
    nodes = []
    for k in range(3):
        path = written(tmp_path / f"node{k}.csv", [row for row in rows(1) if row[4] == str(k)])
        nodes.append(Node(k, app, {"examples": str(path), "client": k, "device": "cpu"}))
    e = Experiment.load(project / "experiment.toml")
    result = serve(MemoryGrid(nodes), e, tmp_path / "run", server_data=held_out, device="cpu")
    assert result.state.refused == {}
    assert result.summary["clients"] == 3
    assert result.state.traffic.participations == 6


@pytest.mark.parametrize(
    ("row", "header", "node", "said"),
    [
        (
            ["1", "long", "2", "oak", "0"],
            HEADER,
            {},
            r"mine\.csv:2: kind is 'oak', no class .*ash, elm,",
        ),
        (["1", "long", "2", "ash", "Anna"], HEADER, {}, r"mine\.csv:2: who is 'Anna': clients of a dep"),
        (["1", "long", "x", "ash", "0"], HEADER, {}, r"mine\.csv:2: width is 'x', which is no number$"),
        (
            ["1", "long", '"2,5"', "ash", "0"],
            HEADER,
            {},
            r"2: width is '2,5', which is no number: write it with a decimal point, as 3\.14",
        ),
        (
            ["1", "long", "2", "ash", "0"],
            HEADER,
            {"examples": "gone.csv"},
            r"gone\.csv: no such file on this node",
        ),
        (
            ["1", "long", "2", "ash", "0"],
            HEADER,
            {"examples": "gone.npz", "classes": "three"},
            r"--node-config classes: 'three': must be a whole number",
        ),
        (["1", "long", "2", "ash", "0"], [*HEADER[:2], "wide", *HEADER[3:]], {}, r"no column 'width', "),
        (["1", "long", "2", "ash", "0"], [*HEADER[:3], "king", "who"], {}, r"no column 'kind'; did you"),
        (
            ["1", "long", "2", "ash", "0"],
            HEADER,
            {"client": "first"},
            r"client: 'first': must be a whole",
        ),
    ],
)
def test_what_does_not_fit_is_one_line(
    project: Path, tmp_path: Path, row: list[str], header: list[str], node: dict[str, str], said: str
) -> None:
    (tmp_path / "mine.csv").write_text("\n".join(",".join(line) for line in (header, row)))
    e, given = Experiment.load(project / "experiment.toml"), {"examples": str(tmp_path / "mine.csv")}
    with pytest.raises(UserError, match=said) as told:
        own_examples(e, {**given, **node}, project / AGREED)
    assert "\n" not in str(told.value)


def test_rows_of_nobody_and_files_that_nothing_says_how_to_read(tmp_path: Path, table: Path) -> None:
    e = config(table, data={"source": {"name": "table", "label": "kind"}, "path": str(table)})
    write_project(tmp_path / "project", e)
    agreed = tmp_path / "project" / "deployed" / AGREED
    with pytest.raises(UserError, match=r"nothing says whose the rows are: put client=N into --node"):
        own_examples(e, {"examples": str(table)}, agreed)
    for name in ("mine.arff", "pictures"):
        with pytest.raises(UserError, match=r"reads \.npz, \.csv and \.tsv; make an .*np\.savez\('mine"):
            own_examples(e, {"examples": str(tmp_path / name)}, agreed)
    digits = Experiment.of({"data": {"source": "digits"}})
    write_project(tmp_path / "other", digits)
    assert not (tmp_path / "other" / "deployed" / AGREED).exists()
    with pytest.raises(UserError, match=r"has no table to learn it from\. Make an \.npz of it: python"):
        own_examples(digits, {"examples": str(table)}, tmp_path / "other" / "deployed" / AGREED)
    agreed.write_text("columns = 3")
    with pytest.raises(UserError, match="write the project again"):
        own_examples(e, {"examples": str(table), "client": 0}, agreed)


def test_the_file_goes_to_every_node_with_the_app(project: Path) -> None:
    from flwr.cli.build import build_fab_from_disk

    assert f"deployed/{AGREED}".encode() in build_fab_from_disk(project.parent)


def test_a_project_whose_data_cannot_be_read_says_that_nothing_is_chosen(
    tmp_path: Path, table: Path
) -> None:
    said: list[str] = []
    write_project(tmp_path / "good", config(table), said.append)
    assert said == []
    write_project(tmp_path / "gone", config(tmp_path / "gone.csv"), said.append)
    (one,) = said
    assert one.startswith("nothing is chosen from the config's data, which cannot be read here: ")
    assert "gone.csv is not there" in one
    assert not (tmp_path / "gone" / "deployed" / AGREED).exists()


def test_texts_are_hashed_as_everywhere(tmp_path: Path) -> None:
    words = ["my card is lost", "no cash here", "where is my card", "cash and card"]
    lines = [f"{text} {i},{('card', 'cash')[i % 2]}" for i in range(5) for text in words]
    path = tmp_path / "mine.csv"
    path.write_text("\n".join(["text,label", *lines]))
    e = config(path, data={"source": "texts", "path": str(path)}, method={"name": "fedss"})
    splits = data_of(e)
    agreed = AgreedColumns.of(e, splits)
    assert agreed is not None
    mine = own_table(path, agreed, e, client=0).columns["x"]
    assert isinstance(mine, Sparse)
    known = {tuple(row) for row in mine.take(torch.arange(len(mine))).tolist()}
    theirs = splits.train.columns["x"].take(torch.arange(splits.train.examples))
    assert all(tuple(row) in known for row in theirs.tolist())


def test_with_privacy_nothing_that_was_found_in_rows_is_written(tmp_path: Path) -> None:
    full = [[*row[:2], row[2] or "0", *row[3:]] for row in rows()]
    path = written(tmp_path / "all.csv", full)
    source = {"name": "table", "label": "kind", "client": "who"}
    source |= {"values": {"leaf": ["round", "long", "broad", "none"]}}  # type: ignore[dict-item]
    data = {"source": source, "path": str(path)}
    e = config(path, data=data, privacy={"clip": 1.0, "noise": 1.0})
    write_project(tmp_path / "project", e)
    found = AgreedColumns.read(tmp_path / "project" / "deployed" / AGREED)
    assert [column.tells for column in found.columns.columns] == [None] * 3
