"""A table of one's own: text becomes indicators, empty cells the mean, and what cannot be read is named."""

from pathlib import Path

import pytest
import torch

import spreadout as so


def read(tmp_path: Path, text: str, **options: object) -> so.Splits:
    (tmp_path / "t.csv").write_text(text)
    source = {"name": "table", **options}
    return so.load_data(so.DataConfig(source=source, path=tmp_path / "t.csv", test_fraction=0.5))


def test_columns_become_numbers_indicators_labels_and_clients(tmp_path: Path) -> None:
    text = "a,soil,kind,site\n1,wet,ash,n\n,dry,fir,s\n3,wet,ash,s\n5,dry,fir,n\n"
    (tmp_path / "t.csv").write_text(text)
    source = so.DataConfig(
        source={"name": "table", "label": "kind", "client": "site"}, path=tmp_path / "t.csv"
    )
    found = source.source.read(source.path)
    x = found.train.columns["x"].take(torch.arange(4)).tolist()
    assert x[1] == [pytest.approx(float("nan"), nan_ok=True), 0.0]  # filled once rows are held out
    assert [x[0], *x[2:]] == [[1.0, 1.0], [3.0, 1.0], [5.0, 0.0]]  # soil = wet
    assert found.class_names == ("ash", "fir")
    assert found.client_names == ("n", "s")
    assert found.notes == (
        "a: 1 empty cells became the mean of the training rows",
        "soil: is text and became 1 indicator",
    )


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "is empty; a table has a header and rows"),
        ("a,label\n", "has a header and no rows"),
        ("a,kind\n1,x\n", "no column 'label'; .*set data.source.label"),
        ("a,label\n1\n", "t.csv:2: 1 fields instead of 2"),
        ("a,a,label\n1,2,x\n", "t.csv:1: two columns are called 'a' \\(1 and 2\\); rename one"),
        ("a,,\n1,2,x\n", "t.csv:1: two columns have no name \\(2 and 3\\)"),
        ("label\nx\n", "has no column beside 'label'"),
        ("5.1,3.5,setosa\n4.9,3.0,setosa\n5.1,3,virginica\n", "t.csv:1: is a row of data \\(5.1, 3.5, set"),
        ("63,1,yes\n50,0,no\n63,1,yes\n", "t.csv:1: is a row of data .*put a line with the names of its"),
        ("a,label\n1,x\n2,\n", "t.csv:3: label is empty; fill it in or drop the row"),
        ("a,label\ninf,x\n", "t.csv:2: a is inf, not finite"),
        ("a,label\n\n1,x\n\n2,\n", "t.csv:5: label is empty"),
        ("a,label\n1,x\n2,\n3,\n", "t.csv:3: label is empty in 2 of 3 rows; fill it in or drop them"),
        ("a,label\n1,x\n-1e39,y\n", "t.csv:3: a is -1e39, more than a 32-bit number holds"),
        ("a,label\n\n\ninf,x\n", "t.csv:4: a is inf"),
        ('a,label,b\n1,"x\ny",1\n2,x,inf\n', "t.csv:4: b is inf"),
        ("a,label\n\n1,x\n1\n", "t.csv:4: 1 fields instead of 2"),
        ("a,label\n" + "".join(f"t{i},x\n" for i in range(70)), "has 70 different texts"),
        (
            "a,label\n" + "".join(f"{i},x\n" for i in range(70)) + "7o,x\n",
            r"has 71 different texts .*, and is text because of '7o' in line 72: correct that, or name",
        ),
        ('a,label\n"3,5",x\n4,y\n', "t.csv:2: a is '3,5': write numbers with a point, and without commas"),
        ("a,label\nNA,x\n?,y\n", "column 'a' is empty"),
    ],
)  # fmt: skip
def test_what_cannot_be_read_is_named(text: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(so.UserError, match=said):
        read(tmp_path, text)


def test_free_text_and_empty_columns_are_left_out_unless_they_are_named(tmp_path: Path) -> None:
    rows = "".join(f"{i},note {i} on it,,{'xy'[i % 2]}\n" for i in range(70))
    found = read(tmp_path, "a,note,gap,label\n" + rows)
    assert found.train.columns["x"].take(torch.arange(3)).shape == (3, 1)
    left = "note: has 70 different texts and is left out; data.source = texts learns from one column of text"
    assert left in found.notes
    assert "gap: is empty and is left out" in found.notes
    asked = {"path": tmp_path / "t.csv", "source": {"name": "table", "features": ["a", "note"]}}
    with pytest.raises(so.UserError, match="column 'note' has 70 different texts"):
        so.load_data(so.DataConfig.model_validate(asked))


def test_numbers_as_labels_are_in_the_order_of_numbers(tmp_path: Path) -> None:
    rows = "".join(f"{i},{label}\n" for i, label in enumerate([10, 9, 10, 9]))
    assert read(tmp_path, "a,label\n" + rows).class_names == ("9", "10")


@pytest.mark.parametrize(("mark", "said"), [(";", '";"'), ("\t", r'"\\t"')])
def test_another_delimiter_than_the_files_is_named(tmp_path: Path, mark: str, said: str) -> None:
    path = tmp_path / "trees.csv"
    path.write_text("\n".join(mark.join(row) for row in (("height", "kind"), ("3.5", "ash"))))
    source = {"name": "table", "label": "kind"}
    with pytest.raises(so.UserError, match=f"is one column.*set data.source.delimiter = {said}"):
        so.load_data(so.DataConfig.model_validate({"path": path, "source": source}))


def test_a_key_of_the_source_that_stands_in_its_section_is_named() -> None:
    with pytest.raises(so.UserError, match=r"data.label: unknown key; .*: data.source.label, or"):
        so.Experiment.of({"data": {"source": "table", "path": "a.csv", "label": "kind"}})


@pytest.mark.parametrize("odd", ["--1", "²", "-0", "07", "-", "9" * 30, "9" * 5000])
def test_what_only_looks_like_a_number_is_text(odd: str, tmp_path: Path) -> None:
    rows = "".join(f"{i},{label}\n" for i, label in enumerate(["10", odd] * 2))
    assert read(tmp_path, "a,label\n" + rows).class_names == tuple(sorted(["10", odd]))


def test_words_for_what_is_missing_are_empty_cells_of_numbers_and_classes_of_labels(
    tmp_path: Path,
) -> None:
    text = "a,soil,label\n1,none,x\nNA,wet,NA\n nan,none,x\n3,wet,NA\n"
    found = so.DataConfig(source="table", path=tmp_path / "t.csv")
    (tmp_path / "t.csv").write_text(text)
    raw = found.source.read(found.path)
    assert raw.notes == (
        "a: 2 empty cells (also 'NA', 'nan') became the mean of the training rows",
        "soil: is text and became 1 indicator",
        "label: 'NA' is a class of its own (2 rows); drop them if it is none",
    )
    assert raw.class_names == ("NA", "x")
    x = raw.train.columns["x"].take(torch.arange(4))
    assert x.isnan().tolist() == [[False, False], [True, False], [True, False], [False, False]]


def test_columns_may_be_called_by_numbers(tmp_path: Path) -> None:
    text = "label,2019,2020,0\n" + "x,3,2019,1\ny,4,5,0\n" * 9  # years, and one has a 0 in it
    assert read(tmp_path, text).train.columns["x"].take(torch.arange(2)).shape == (2, 3)


def test_columns_that_are_left_out_are_told_of_by_what_they_hold(tmp_path: Path) -> None:
    rows = "".join(f'{i},"${i * 1.07:,.2f}",{i}%,{i}:30,,{"xy"[i % 2]},\n' for i in range(70))
    notes = read(tmp_path, "a,price,share,time,none,label,\n" + rows).notes
    unit = "; these are numbers with a sign or a unit: write the numbers alone to learn from them"
    assert f"price: has 70 different texts and is left out{unit}" in notes
    assert f"share: has 70 different texts and is left out{unit}" in notes
    assert "time: has 70 different texts and is left out" in notes
    assert "the column without a name: is empty and is left out" in notes


@pytest.mark.parametrize("kind", ["a quantity", "few numbers", "many rows", "no numbers"])
def test_whole_numbers_with_few_rows_each_may_be_a_quantity(kind: str, tmp_path: Path) -> None:
    kinds = 50 if kind == "few numbers" else 60
    count = 5 * kinds if kind == "many rows" else 4 * kinds
    mark = "u" if kind == "no numbers" else ""
    rows = "".join(f"{i % 7},{mark}{i % kinds * 3}\n" for i in range(count))
    said = (
        "label: 60 different numbers in 240 rows are a class each; if they are a quantity, cut it into "
        "ranges"
    )
    assert (said in read(tmp_path, "a,label\n" + rows).notes) is (kind == "a quantity")


def test_one_cell_that_makes_text_of_numbers_is_named(tmp_path: Path) -> None:
    text = "a,label\n" + "".join(f"{i % 3},x\n" for i in range(9)) + "l,x\n"
    assert read(tmp_path, text).notes == (
        "a: is text because of 'l' in line 11 and became 3 indicators",
    )


def test_a_column_that_counts_the_rows_is_named(tmp_path: Path) -> None:
    text = "Id,a,label\n" + "".join(f"{i + 1},{i % 7},{i // 15}\n" for i in range(30))
    (note,) = read(tmp_path, text).notes
    assert note.startswith("Id: counts the rows and is learned from all the same; leave it out with")
    assert read(tmp_path, text, features=("a",)).notes == ()


@pytest.mark.parametrize(
    "raw", ["a,label\n1,Málaga\n2,Mölaga\n".encode("latin-1"), b"a,label\n1,x\xff\n"]
)
def test_text_that_is_no_utf_8_is_not_guessed_at(raw: bytes, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_bytes(raw)
    with pytest.raises(so.UserError, match=r"t.csv:[12]: is no text in UTF-8; save it as UTF-8"):
        so.load_data(so.DataConfig(source="table", path=tmp_path / "t.csv"))
