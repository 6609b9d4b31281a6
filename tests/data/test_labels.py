"""Labels as people have them: several in a cell, numbers with a point, and columns that hold no classes."""

from pathlib import Path

import numpy as np
import pytest

import spreadout as so
from spreadout.data.sources.label_cells import joint_of


def read(tmp_path: Path, labels: list[str], **options: object) -> so.RawDataset:
    rows = "".join(f'{i % 7},"{label}"\n' for i, label in enumerate(labels))
    (tmp_path / "t.csv").write_text("a,label\n" + rows)
    config = so.DataConfig(source={"name": "table", **options}, path=tmp_path / "t.csv")
    return config.source.read(config.path)


@pytest.mark.parametrize(
    ("cells", "joint"),
    [
        (["a|b", "b|c", "a", "c|a", "b"], "|"),
        (["a|b", "b|c", "a|c"], "|"),  # none has one label
        (["a;b", "a", "b", "c", "c;a"], ";"),
        (["rock & roll; live", "live", "jazz; live", "jazz"], ";"),
        (["drama, comedy", "drama", "comedy", "comedy, war", "war"], ","),
        (["1,3", "2,3,5", "1", "2", "3", "5"], ","),
        (["a, b", "c"], None),
        (["Smith, John", "Smith, Anna", "Doe, John", "Doe, Anna"], None),
        (["Thomas, Dylan", "Smith, Thomas", "Smith, Dylan", "Thomas, Smith"], None),
        (["Washington, DC", "Washington", "Paris", "Paris, TX"], None),
        (["Shirt, blue", "Shirt, red", "Shirt"], None),
        (["Arts, Crafts & Sewing", "Health, Beauty", "Books"], None),
        (["Men|Shoes", "Women|Shoes", "Men|Shirts", "Women|Shirts"], None),  # a tree
        (["Home|Garden", "Home|Kitchen", "Home"], None),
        (["1,5", "2,5", "3,5", "1", "2", "3", "5"], None),  # a decimal comma
        (["ash", "fir"], None),
        ([], None),
    ],
)
def test_what_joins_labels_is_known_from_what_stands_in_names(
    cells: list[str], joint: str | None
) -> None:
    assert joint_of(cells) == joint
    assert joint_of(cells * 20) == joint


def test_a_row_of_a_table_may_have_several_labels_or_none(tmp_path: Path) -> None:
    found = read(tmp_path, ["x; y ;x", "", "y"], separator=";")
    assert [own.tolist() for own in found.train.labels] == [[0, 1], [], [1]]
    assert found.class_names == ("x", "y")


def test_a_table_with_several_labels_a_row_is_learned(tmp_path: Path) -> None:
    cells = ["ash", "fir", "ash|fir", "yew"] * 30
    rows = "".join(
        f"{int('ash' in one)},{int('fir' in one)},{int('yew' in one)},{one}\n" for one in cells
    )
    (tmp_path / "t.csv").write_text("a,b,c,kinds\n" + rows)
    source = {"name": "table", "label": "kinds", "separator": "|"}
    data = {"source": source, "path": tmp_path / "t.csv"}
    result = so.run({"rounds": 40, "data": data, "eval": {"references": False}})
    assert result.summary["classes"] == 3
    assert result.metrics["P@1"] > 95


def test_cells_that_look_like_several_labels_are_said_to_be_one(tmp_path: Path) -> None:
    (note,) = read(tmp_path, ["x", "y", "x|y", "y|x"] * 6).notes
    assert note.startswith(
        "label: 'x|y' is one class, and looks like several; if it is, set data.source.sep"
    )


def test_whole_numbers_with_a_point_are_the_numbers(tmp_path: Path) -> None:
    found = read(tmp_path, ["10.0", "9.0", "9.00"])
    assert found.class_names == ("9", "10")
    assert found.train.labels.values.tolist() == [1, 0, 0]
    assert read(tmp_path, ["1.0", "0.0"]).class_names == ()
    x = [[0.0], [1.0], [2.0]]
    assert so.FederatedDataset.from_arrays(x, [1.0, 3.0, 1.0]).class_names == ("1", "3")
    sets = so.FederatedDataset.from_arrays(x, [[1.0, 0.0], [0], [np.float64(2)]], [0, 1, 1])
    assert sets.columns["y"].ragged()[0].tolist() == [0, 1]
    assert so.Instances.of(x, np.array([1.0, 0.0, 2.0])).labels.values.tolist() == [1, 0, 2]


QUANTITY = [f"{i / 7:.3f}" for i in range(90)]
IDS = [f"u-{i:04d}" for i in range(30)]


@pytest.mark.parametrize(
    ("labels", "said"),
    [
        (
            QUANTITY,
            "label looks like a quantity .90 different numbers with fractions in 90 rows.*ranges",
        ),
        (QUANTITY[:30], "label looks like a quantity"),
        (QUANTITY[:60] * 9, "label looks like a quantity"),
        (
            IDS,
            "label looks like a name of each row .30 different .* another column by data.source.label$",
        ),
        ([*IDS, "u-0000"], "label looks like a name of each row"),
        ([str(i * 37) for i in range(30)], "label looks like a quantity, or a name of each row"),
        (
            [f"{i}|{j}" for i in range(6) for j in range(6) if i < j] + [str(i) for i in range(6)],
            'or part labels by data.source.separator = "\\|"',
        ),
    ],
)
@pytest.mark.parametrize("source", ["table", "texts"])
def test_a_column_that_holds_no_classes_is_refused(
    labels: list[str], said: str, source: str, tmp_path: Path
) -> None:
    options = {} if source == "table" else {"text": "a"}
    with pytest.raises(so.UserError, match=said):
        read(tmp_path, labels, name=source, **options)


@pytest.mark.parametrize(
    "labels",
    [IDS[:19], [*IDS[:15], *IDS[:15]], ["0.5", "1.5", "2.0"] * 10, [str(i) for i in range(25)] * 2],
)
def test_few_or_shared_labels_are_classes(labels: list[str], tmp_path: Path) -> None:
    assert read(tmp_path, labels).classes == len(set(labels))


def test_ids_and_times_are_not_advised_to_be_texts(tmp_path: Path) -> None:
    rows = "".join(
        f"8f{i:04x}aa-11b2-4c3d,2024-05-{i % 28 + 1:02d} 10:{i % 60:02d}:{i // 28:02d},note no {i} on it,"
        f"{i % 9},{'xy'[i % 2]}\n"
        for i in range(80)
    )
    (tmp_path / "t.csv").write_text("uid,when,note,a,label\n" + rows)
    config = so.DataConfig(source="table", path=tmp_path / "t.csv")
    notes = config.source.read(config.path).notes
    assert notes[0] == "uid: has 80 different texts and is left out"
    assert notes[1].startswith("when: has ")
    assert notes[1].endswith(" different texts and is left out")
    assert notes[2].endswith("and is left out; data.source = texts learns from one column of text")
    named = so.DataConfig(source={"name": "table", "features": ["uid"]}, path=tmp_path / "t.csv")
    with pytest.raises(
        so.UserError, match="ids and times say nothing of new rows; name the columns"
    ) as odd:
        named.source.read(named.path)
    assert "texts'" not in str(odd.value)
