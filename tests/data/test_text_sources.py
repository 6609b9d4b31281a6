"""Published text formats, whole and broken: every complaint names file and line."""

import bz2
import gzip
import io
import tarfile
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.datasets import dump_svmlight_file, load_svmlight_file

import spreadout as so
from spreadout.data.columns import Lists, Sparse
from spreadout.data.io import text
from spreadout.data.io.archive import opened
from spreadout.data.load import DataConfig, load_data
from spreadout.data.sources.base import Instances, RawDataset
from spreadout.data.sources.interactions import Interactions
from spreadout.data.sources.libsvm import LibSVM
from spreadout.data.sources.movielens import MovieLens
from spreadout.data.sources.mulan_arff import MulanArff
from spreadout.data.sources.timeline import Windows
from spreadout.data.sources.xc_text import XCText


def dense(part: Instances | None) -> list[list[float]]:
    assert part is not None
    return part.columns["x"].take(torch.arange(len(part))).tolist()


def sets(part: Instances | None) -> list[list[int]]:
    assert part is not None
    return [part.labels[i].tolist() for i in range(len(part))]


# ---------------------------------------------------------------- numbers out of text


@given(
    st.lists(
        st.lists(st.floats(-1e30, 1e30) | st.integers(0, 2**53 - 1), min_size=1, max_size=5),
        min_size=1,
        max_size=30,
    ),
    st.integers(1, 40),
)
def test_numbers_are_pythons_own_however_the_file_is_cut(rows: list[list[float]], size: int) -> None:
    raw = "\n".join(" ".join(map(repr, row)) for row in rows).encode()
    found, lines = [], []
    for block in text.blocks(io.BytesIO(raw), "f", size=size):
        tokens = text.cut(block, b" ")
        found += tokens.numbers().tolist()
        lines += (block.first_line + tokens.line).tolist()
    assert found == [value for row in rows for value in row]
    assert lines == [i for i, row in enumerate(rows, 1) for _ in row]


@pytest.mark.parametrize(
    "token", ["x", "1x", "nan", "inf", "-inf", "1e999", "0x10", "1_0", "--1", "1-2", "+", "."]
)
def test_what_is_no_finite_number_is_named_with_its_line(token: str) -> None:
    (block,) = text.blocks(io.BytesIO(f"1 2\n3 4\n5 {token}\n".encode()), "file.txt", skip_lines=1)
    with pytest.raises(so.UserError, match=r"file.txt:4: .* is not a (finite )?number in '5 "):
        text.cut(block, b" ").numbers()


# ---------------------------------------------------------------- extreme-classification text

XC = "4 6 5\n0,2 0:1.5 5:2\n 1:0.5\n4 \n3,1,1 2:1 3:-2e-1 \n"
XC_DENSE = [[1.5, 0, 0, 0, 0, 2], [0, 0.5, 0, 0, 0, 0], [0] * 6, [0, 0, 1, -0.2, 0, 0]]
XC_SETS = [[0, 2], [], [4], [1, 3]]


def xc(folder: Path, **files: str) -> RawDataset:
    for name, content in files.items():
        (folder / f"{name}.txt").write_text(content)
    return XCText(name="xc-text").parse(folder)


def test_an_xc_pair_is_read_rows_without_labels_or_features_included(tmp_path: Path) -> None:
    found = xc(tmp_path, wiki_train=XC, wiki_test="1 6 5\n2 4:1\n")
    np.testing.assert_allclose(dense(found.train), XC_DENSE)
    assert sets(found.train) == XC_SETS
    assert (dense(found.test), sets(found.test)) == ([[0, 0, 0, 0, 1, 0]], [[2]])
    assert found.classes == 5


def test_xc_split_files_count_rows_from_1_and_splits_by_column(tmp_path: Path) -> None:
    (tmp_path / "Toy_data.txt").write_text(XC)
    (tmp_path / "toy_trSplit.txt").write_text("1 2\n4 1\n3 3\n")
    (tmp_path / "toy_tstSplit.txt").write_text("2 4\n")
    found = XCText(name="xc-text").parse(tmp_path)
    assert (sets(found.train), sets(found.test)) == ([[0, 2], [1, 3], [4]], [[]])
    other = XCText(name="xc-text", split=1).parse(tmp_path)
    assert (sets(other.train), sets(other.test)) == ([[], [0, 2], [4]], [[1, 3]])
    with pytest.raises(so.UserError, match=r"data.source.split = 2: .* has 2 columns"):
        XCText(name="xc-text", split=2).parse(tmp_path)
    (tmp_path / "toy_tstSplit.txt").write_text("1 4\n")
    with pytest.raises(so.UserError, match="row 1 is in the train and in the test split"):
        XCText(name="xc-text").parse(tmp_path)
    (tmp_path / "toy_tstSplit.txt").write_text("2 4\n5 1\n")
    with pytest.raises(so.UserError, match=r"toy_tstSplit.txt:2: row '5' is not one of the 4 rows"):
        XCText(name="xc-text").parse(tmp_path)


def test_xc_matrices_are_read_with_their_two_number_headers(tmp_path: Path) -> None:
    found = xc(
        tmp_path,
        trn_X_Xf="2 3\n0:1 2:2\n\n",
        trn_X_Y="2 4\n3:1 0:1\n1:1\n",
        tst_X_Xf="1 3\n1:5\n",
        tst_X_Y="1 4\n\n",
    )
    assert (dense(found.train), sets(found.train)) == ([[1, 0, 2], [0, 0, 0]], [[0, 3], [1]])
    assert (dense(found.test), sets(found.test), found.classes) == ([[0, 5, 0]], [[]], 4)


def test_xc_comes_zipped_and_with_windows_line_ends_too(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "set.zip", "w") as file:
        file.writestr("Eurlex/eurlex_train.txt", XC.replace("\n", "\r\n"))
        file.writestr("Eurlex/eurlex_test.txt", XC)
    found = XCText(name="eurlex-4k").parse(tmp_path / "set.zip")
    np.testing.assert_allclose(dense(found.train), XC_DENSE)
    assert sets(found.test) == XC_SETS


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        ("4 6 5", "5 6 5", r"train.txt:1: promises 5 rows, but 4 follow; the file may be cut short"),
        ("4 6 5", "3 6 5", r"train.txt:1: promises 3 rows, but 4 follow"),
        (
            "4 6 5",
            "4 6",
            r"train.txt:1: must say how many points, features, labels there are, says '4 6'",
        ),
        ("4 6 5", "0,2 0:1", r"train.txt:1: must say"),
        ("0,2", "0,5", r"train.txt:2: label 5, but there are 5 \(counted from 0\)"),
        ("5:2", "6:2", r"train.txt:2: feature 6, but there are 6 \(counted from 0\)"),
        ("5:2", "5:nan", r"train.txt:2: 'nan' is not a finite number in '0,2 0:1.5 5:nan'"),
        ("5:2", "5:", r"train.txt:2: a number is missing"),
        ("5:2", "-5:2", r"train.txt:2: feature '-5' is not a whole number"),
        ("3,1,1", "3,,1", r"train.txt:5: a number is missing"),
        ("3,1,1", "3.5,1", r"train.txt:5: label '3.5' is not a whole number"),
        (" 1:0.5", " 1:0.5:2", r"train.txt:3: '0.5' is neither a label nor a feature:value pair"),
        (" 1:0.5", " 1:0.5 7", r"train.txt:3: '7' is neither a label nor a feature:value pair"),
    ],
)
def test_broken_xc_text_is_named_with_its_line(
    tmp_path: Path, old: str, new: str, complaint: str
) -> None:
    assert old in XC
    with pytest.raises(so.UserError, match=complaint):
        xc(tmp_path, train=XC.replace(old, new, 1), test=XC)


def test_a_line_is_named_rightly_in_a_later_block(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(text.blocks, "__kwdefaults__", {"skip_lines": 0, "size": 64})
    rows = [f"{i % 5} {i % 6}:1" for i in range(500)]
    good = "\n".join(["500 6 5", *rows])  # no newline at the end either
    found = xc(tmp_path, train=good, test=XC)
    assert sets(found.train) == [[i % 5] for i in range(500)]
    rows[431] = "9 1:1"
    with pytest.raises(so.UserError, match=r"train.txt:433: label 9"):
        xc(tmp_path, train="\n".join(["500 6 5", *rows]), test=XC)


def test_empty_lines_at_the_end_are_no_rows_and_missing_files_are_named(tmp_path: Path) -> None:
    found = xc(tmp_path, train=XC + "\n\n", test=XC)
    assert len(found.train) == 4
    (tmp_path / "other").mkdir()
    with pytest.raises(so.UserError, match=r"found no .txt file"):
        XCText(name="xc-text").parse(tmp_path / "other")
    with pytest.raises(
        so.UserError, match=r"test.txt:1: says 7 features and 5 labels, but train.txt says 6 and 5"
    ):
        xc(tmp_path, train=XC, test=XC.replace("4 6 5", "4 7 5"))


# ---------------------------------------------------------------- libsvm


def test_libsvm_reads_what_scikit_learn_writes(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(30, 8)).round(3) * (rng.random((30, 8)) < 0.4)
    y = [
        sorted(rng.choice([2, 5, 11], size=rng.integers(1, 4), replace=False).tolist())
        for _ in range(30)
    ]
    indicator = np.array([[c in own for c in range(12)] for own in y], dtype=int)
    dump_svmlight_file(
        x, indicator, str(tmp_path / "train"), multilabel=True, zero_based=False, comment="made"
    )
    found = LibSVM().parse(tmp_path / "train")
    again, labels = load_svmlight_file(str(tmp_path / "train"), multilabel=True, n_features=8)
    np.testing.assert_allclose(
        np.array(dense(found.train)), again.toarray()[:, : found.train.columns["x"].width], rtol=1e-6
    )  # type: ignore[attr-defined]
    assert found.class_names == ("2", "5", "11")
    names = [int(name) for name in found.class_names]
    assert [[names[c] for c in own] for own in sets(found.train)] == [
        sorted(map(int, own)) for own in labels
    ]


def test_libsvm_finds_its_test_file_and_names_a_feature_0(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("1,3 1:2 4:1 # a comment\n# nothing but a comment\n7 2:1\n")
    (tmp_path / "data.t").write_text("3 3:1\n")
    found = LibSVM().parse(tmp_path / "data")
    assert (dense(found.train), sets(found.train)) == ([[2, 0, 0, 1], [0, 1, 0, 0]], [[0, 1], [2]])
    assert (dense(found.test), sets(found.test)) == ([[0, 0, 1, 0]], [[1]])
    (tmp_path / "data").write_text("1 1:2\n1 0:2\n")
    with pytest.raises(
        so.UserError, match=r"data:2: feature 0, but data.source.first_feature = 1; set it to 0"
    ):
        LibSVM().parse(tmp_path / "data")
    assert dense(LibSVM(first_feature=0).parse(tmp_path / "data").train) == [[0, 2, 0, 0], [2, 0, 0, 0]]


# ---------------------------------------------------------------- MovieLens

# user, movie, time; user 2 rates out of order and two movies in one second; ids have gaps
RATED = [(2, 50, 30), (1, 7, 5), (2, 9, 10), (2, 3, 10), (1, 50, 6), (5, 9, 1), (2, 7, 40)]
WINDOWS = {1: [([7], 50)], 2: [([9], 3), ([9, 3], 50), ([3, 50], 7)]}


def write_movielens(folder: Path, layout: str) -> Path:
    if layout == "u.data":
        lines, mark = [f"{u}\t{m}\t4\t{t}" for u, m, t in RATED], "|"
        movies, extra = "u.item", "|01-Jan-1995||url|0"
    elif layout == "ratings.dat":
        lines, mark = [f"{u}::{m}::4::{t}" for u, m, t in RATED], "::"
        movies, extra = "movies.dat", "::Drama"
    else:
        lines, mark = (
            ["userId,movieId,rating,timestamp", *(f"{u},{m},4.5,{t}" for u, m, t in RATED)],
            ",",
        )
        movies, extra = "movies.csv", ",Drama"
    head = ["movieId,title,genres"] if mark == "," else []
    titles = [
        f"3{mark}Am\xe9lie (2001){extra}",
        f"7{mark}B{extra}",
        f"9{mark}C{extra}",
        f"50{mark}D{extra}",
    ]
    encoding = "utf-8" if mark == "," else "iso-8859-1"
    (folder / layout).write_text("\n".join(lines) + "\n")
    (folder / movies).write_bytes("\n".join([*head, *titles]).encode(encoding) + b"\n")
    return folder


def timeline(found: RawDataset) -> dict[int, list[tuple[list[str], str]]]:
    """Examples by user, as titles."""
    column = found.train.columns["history"]
    assert isinstance(column, Lists)
    assert found.train.user is not None
    lists, result = column.ragged(), {}
    for i, user in enumerate(found.train.user.tolist()):
        history = [found.class_names[m] for m in lists[i].tolist()]
        result.setdefault(user, []).append((history, found.class_names[found.train.labels[i].item()]))
    return result


@pytest.mark.parametrize("layout", ["u.data", "ratings.dat", "ratings.csv"])
@pytest.mark.parametrize("zipped", [False, True])
def test_every_movielens_layout_gives_the_same_windows(
    tmp_path: Path, layout: str, zipped: bool
) -> None:
    folder = tmp_path / "ml"
    folder.mkdir()
    path = write_movielens(folder, layout)
    if zipped:
        path = tmp_path / "ml.zip"
        with zipfile.ZipFile(path, "w") as file:
            for part in folder.iterdir():
                file.write(part, f"ml-x/{part.name}")
    found = MovieLens(name="movielens", window=2, ties="file").parse(path)
    title = {3: "Amélie (2001)", 7: "B", 9: "C", 50: "D"}
    expected = {
        user: [([title[m] for m in history], title[label]) for history, label in examples]
        for user, examples in WINDOWS.items()
    }
    assert timeline(found) == expected  # ties in file order; user 5 has nothing that comes next
    assert found.class_names == ("", "Amélie (2001)", "B", "C", "D")
    padded = found.train.columns["history"].take(torch.tensor([0]))
    assert padded.tolist() == [[2, 0]]  # padded with 0 on the right; items count from 1


def test_items_of_the_same_time_have_no_order() -> None:
    users, items = np.repeat(np.arange(400), 3), np.tile(np.arange(1, 4), 400)
    time = np.tile(np.array([5, 5, 6]), 400)  # items 1 and 2 at once, in file order 1, 2; then item 3

    def seconds(windows: Windows, turned: bool = False) -> list[int]:
        order = slice(None, None, -1) if turned else slice(None)
        found = windows.examples(users[order], items[order], time[order])
        return found.train.labels.values[::2].tolist()  # each user's second item

    drawn = seconds(Windows())
    assert set(seconds(Windows(ties="file"))) == {2}
    assert 150 < drawn.count(1) < 250  # a fair coin over 400 users
    assert drawn == seconds(Windows(), turned=True)  # the file's order says nothing
    assert drawn != seconds(Windows(tie_seed=1))


def test_movielens_options(tmp_path: Path) -> None:
    path = write_movielens(tmp_path, "ratings.dat")
    published = MovieLens(name="movielens", numbering="published", ties="file").parse(path)
    assert published.classes == 51
    assert published.train.labels.values.tolist() == [50, 3, 50, 7]
    capped = MovieLens(name="movielens", cap=1).parse(path)
    assert capped.train.user is not None
    assert capped.train.user.tolist() == [1, 2]
    with pytest.raises(so.UserError, match=r"data.source.min_rating = 5.0: leaves no rating"):
        MovieLens(name="movielens", min_rating=5).parse(path)


@pytest.mark.parametrize(
    ("file", "old", "new", "complaint"),
    [
        (
            "ratings.dat",
            "1::7::4::5",
            "1::7::4",
            r"ratings.dat:2: not user, movie, rating and time with '::' between them in '1::7::4'",
        ),
        ("ratings.dat", "1::7::4::5", "1::x::4::5", r"ratings.dat:2: 'x' is not a number"),
        ("ratings.dat", "1::7::4::5", "1::-7::4::5", r"ratings.dat:2: movie '-7' is not a whole number"),
        (
            "ratings.dat",
            "1::7::4::5",
            "1::8::4::5",
            r"ratings.dat:2: movie 8 is not in the list of movies",
        ),
        ("movies.dat", "9::C", "7::C", r"movies.dat:3: movie 7 is listed twice"),
        ("movies.dat", "9::C", "nine::C", r"movies.dat:3: cannot read a movie's id and title"),
    ],
)
def test_broken_movielens_is_named_with_its_line(
    tmp_path: Path, file: str, old: str, new: str, complaint: str
) -> None:
    write_movielens(tmp_path, "ratings.dat")
    raw = (tmp_path / file).read_bytes()
    (tmp_path / file).write_bytes(raw.replace(old.encode(), new.encode(), 1))
    with pytest.raises(so.UserError, match=complaint):
        MovieLens(name="movielens").parse(tmp_path)


def test_users_listed_twice_and_empty_or_headless_files_are_refused(tmp_path: Path) -> None:
    write_movielens(tmp_path, "ratings.dat")
    (tmp_path / "users.dat").write_text("1::F::1::10::48067\n2::M::56::16::70072\n1::M::25::15::55117\n")
    with pytest.raises(so.UserError, match=r"users.dat:3: user 1 is listed twice, first in line 1"):
        MovieLens(name="movielens").parse(tmp_path)
    (tmp_path / "users.dat").unlink()
    (tmp_path / "ratings.dat").write_text("")
    with pytest.raises(so.UserError, match="has no ratings"):
        MovieLens(name="movielens").parse(tmp_path)
    (tmp_path / "ratings.dat").unlink()
    with pytest.raises(so.UserError, match="is it MovieLens"):
        MovieLens(name="movielens").parse(tmp_path)
    (tmp_path / "ratings.csv").write_text("1,2,3,4\n")
    with pytest.raises(
        so.UserError, match=r"ratings.csv:1: the header must be 'userId,movieId,rating,timestamp'"
    ):
        MovieLens(name="movielens").parse(tmp_path)


def test_a_users_rows_need_not_stand_together(tmp_path: Path) -> None:
    lines = ["1::1::5::1", "2::1::5::1", "1::2::5::2", "2::2::5::2"]
    (tmp_path / "ratings.dat").write_text("\n".join(lines))
    found = MovieLens(name="movielens").parse(tmp_path)
    assert timeline(found) == {1: [(["1"], "2")], 2: [(["1"], "2")]}


# ---------------------------------------------------------------- interactions

EVENTS = [
    ("ann", "milk", 3),
    ("bob", "tea", 1),
    ("ann", "tea", 1),
    ("ann", "bread", 2),
    ("bob", "milk", 2),
]
SHOPPED = {0: [(["tea"], "bread"), (["tea", "bread"], "milk")], 1: [(["tea"], "milk")]}


def test_interactions_of_words_and_numbers_and_dates(tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    path.write_text("time,who,what\n" + "".join(f"{t},{u},{i}\n" for u, i, t in EVENTS))
    source = Interactions(user="who", item="what")
    assert timeline(source.parse(path)) == SHOPPED
    path.write_text("time,who,what\n" + "".join(f'2024-01-0{t}T10:00,"{u}",{i}\n' for u, i, t in EVENTS))
    assert timeline(source.parse(path)) == SHOPPED
    with gzip.open(tmp_path / "log.csv.gz", "wb") as file:
        file.write(path.read_bytes())
    assert timeline(source.parse(tmp_path / "log.csv.gz")) == SHOPPED
    path.write_text("user;item;time\n7;10;1\n7;9;2\n")
    assert timeline(Interactions(delimiter=";").parse(path)) == {0: [(["10"], "9")]}
    assert Interactions(delimiter=";").parse(path).class_names == ("", "9", "10")  # as numbers
    published = Interactions(delimiter=";", numbering="published").parse(path)
    assert published.train.labels.values.tolist() == [9]


def test_interactions_in_parquet_are_those_in_csv(tmp_path: Path) -> None:
    arrow = pytest.importorskip("pyarrow", reason="the extra [parquet] is not installed")
    from pyarrow import parquet

    columns = list(zip(*EVENTS, strict=True))
    table = arrow.table({"user": columns[0], "item": columns[1], "time": columns[2]})
    parquet.write_table(table, tmp_path / "log.parquet")
    assert timeline(Interactions().parse(tmp_path / "log.parquet")) == SHOPPED
    differences = {"use_dictionary": False, "column_encoding": {"item": "DELTA_BYTE_ARRAY"}}
    parquet.write_table(table, tmp_path / "log.parquet", **differences)
    assert timeline(Interactions().parse(tmp_path / "log.parquet")) == SHOPPED
    (tmp_path / "bad.parquet").write_bytes(b"PAR1")
    with pytest.raises(so.UserError, match=r"bad.parquet: not a readable Parquet file"):
        Interactions().parse(tmp_path / "bad.parquet")
    holes = arrow.table({"user": ["a", None], "item": ["x", "y"], "time": [1, 2]})
    parquet.write_table(holes, tmp_path / "holes.parquet")
    with pytest.raises(so.UserError, match="column 'user' has 1 empty cells"):
        Interactions().parse(tmp_path / "holes.parquet")


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ("user,thing,time\na,b,1\n", r"log.csv:1: no column 'item'; the header has 'user, thing, time'"),
        ("user,item,time\na,b,1\na,b\n", r"log.csv:3: 2 fields instead of 3 in 'a,b'"),
        ("user,item,time\na,b,1\na,,3\n", r"log.csv:3: column 2 is empty in 'a,,3'"),
        ("user,item,time\na,b,1\na,c,nan\n", r"time 'nan' is neither a number nor an ISO date"),
        ('user,item,time\na,"b",1\na,"b"\n', r"log.csv:3: 2 fields instead of 3"),
        ('user,item,time\na,"b",1\na,"",2\n', r"log.csv:3: column 2 is empty"),
        ("user,item,time\na,b,1\na,,3,4\n", r"log.csv:3: 4 fields instead of 3"),
        (
            "user,item,time\na,b,2024-01-01\na,c,2024-99-01\n",
            r"data row 2: time '2024-99-01' is neither",
        ),
        ("user,item,time\n\n\n", r"log.csv: has a header and no rows"),
        ("user,item,time\n", r"log.csv: has a header and no rows"),
        ("user,item,time\na,b,1\na,c,soon\n", r"time 'soon' is neither a number nor an ISO date"),
        ("user,item,time\na,b,1\nc,b,2\n", r"no user has two interactions"),
        ("user|item|time\na|b|1\n", r'set data.source.delimiter = "\|"'),
        ("who|item|time\na|b|1\n", r"set data.source.user, .item and .time"),
    ],
)
def test_broken_interactions_are_named(tmp_path: Path, content: str, complaint: str) -> None:
    (tmp_path / "log.csv").write_text(content)
    with pytest.raises(so.UserError, match=complaint):
        Interactions().parse(tmp_path / "log.csv")


# ---------------------------------------------------------------- archives


def test_a_truncated_archive_is_one_line(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "ml.zip", "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("ml/ratings.dat", "\n".join(f"{i}::1::5::{i}" for i in range(2000)))
    raw = (tmp_path / "ml.zip").read_bytes()
    (tmp_path / "ml.zip").write_bytes(raw[: len(raw) // 2])
    with pytest.raises(so.UserError, match=r"ml.zip: not a readable archive"):
        MovieLens(name="movielens").parse(tmp_path / "ml.zip")
    damaged = bytearray(raw)
    damaged[200:260] = bytes(60)
    (tmp_path / "ml.zip").write_bytes(bytes(damaged))
    with pytest.raises(so.UserError, match=r"ml/ratings.dat cannot be read, it may be cut short"):
        MovieLens(name="movielens").parse(tmp_path / "ml.zip")
    with gzip.open(tmp_path / "log.csv.gz", "wb") as stream:
        stream.write(b"user,item,time\n" + b"a,b,1\n" * 5000)
    whole = (tmp_path / "log.csv.gz").read_bytes()
    (tmp_path / "log.csv.gz").write_bytes(whole[:-20])
    with pytest.raises(so.UserError, match=r"log.csv.gz: cannot be read, it may be cut short"):
        Interactions().parse(tmp_path / "log.csv.gz")


@pytest.mark.parametrize(
    "name", ["../evil.txt", "/etc/evil.txt", "a/../../evil.txt", "..\\evil.txt", "C:evil.txt"]
)
def test_members_that_point_outside_are_refused(tmp_path: Path, name: str) -> None:
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as file:
        file.writestr("train.txt", XC)
        file.writestr(zipfile.ZipInfo(name), "x")
    with tarfile.open(tmp_path / "a.tar", "w") as tar:
        tar.addfile(tarfile.TarInfo(name), io.BytesIO(b""))
    for archive in ("a.zip", "a.tar"):
        with pytest.raises(so.UserError, match="points outside the archive: refused"):
            XCText(name="xc-text").parse(tmp_path / archive)
    assert sorted(f.name for f in tmp_path.iterdir()) == ["a.tar", "a.zip"]


def test_what_zipfile_cannot_read_is_one_line(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as file:
        file.writestr("train.txt", XC)
    raw = bytearray((tmp_path / "a.zip").read_bytes())
    central = raw.index(b"PK\x01\x02")
    for offset, value, words in ((8, 1, "encrypted"), (10, 99, "compression")):
        broken = bytearray(raw)
        broken[central + offset] = value
        broken[6 if offset == 8 else 8] = value
        (tmp_path / "a.zip").write_bytes(bytes(broken))
        with pytest.raises(so.UserError, match=f"train.txt cannot be read .*{words}"):
            XCText(name="xc-text").parse(tmp_path / "a.zip")


@pytest.mark.parametrize("how", ["gz", "bz2", "xz"])
def test_a_damaged_tar_is_one_line(tmp_path: Path, how: str) -> None:
    path = tmp_path / f"a.tar.{how}"
    with tarfile.open(path, f"w:{how}") as tar:  # type: ignore[call-overload]
        info = tarfile.TarInfo("train.txt")
        noise = np.random.default_rng(0).bytes(300_000)
        info.size = len(noise)
        tar.addfile(info, io.BytesIO(noise))
    raw = bytearray(path.read_bytes())
    raw[len(raw) // 2 : len(raw) // 2 + 200] = bytes(200)
    path.write_bytes(bytes(raw))
    with pytest.raises(so.UserError, match=r"a.tar"):
        XCText(name="xc-text").parse(path)


def test_gzipped_members_of_a_folder_are_unpacked(tmp_path: Path) -> None:
    for part in ("train", "test"):
        with gzip.open(tmp_path / f"{part}.txt.gz", "wb") as stream:
            stream.write(XC.encode())
    assert sets(XCText(name="xc-text").parse(tmp_path).train) == XC_SETS


def test_ids_too_large_to_be_meant_are_one_line(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("1 1:1\n2 3000000000:1\n")
    with pytest.raises(so.UserError, match=r"data:2: feature 3000000000, but there are 2,147,483,648"):
        LibSVM().parse(tmp_path / "data")
    (tmp_path / "ratings.dat").write_text("1::999999999999999::5::1\n1::7::5::2\n")
    assert timeline(MovieLens(name="movielens").parse(tmp_path)) == {1: [(["999999999999999"], "7")]}
    with pytest.raises(so.UserError, match=r"item goes up to 999999999999999, but only 2 numbers occur"):
        MovieLens(name="movielens", numbering="published").parse(tmp_path)
    (tmp_path / "movies.dat").write_text("99999999999999999999::A::B\n")
    with pytest.raises(so.UserError, match=r"movies.dat:1: cannot read a movie's id"):
        MovieLens(name="movielens").parse(tmp_path)
    (tmp_path / "log.csv").write_text(
        "user,item,time\n99999999999999999999,a,1\n99999999999999999999,b,2\n"
    )
    assert timeline(Interactions().parse(tmp_path / "log.csv")) == {0: [(["a"], "b")]}
    named = so.FederatedDataset.from_arrays([[1.0], [2.0]], [0, 1], [0, 10**13])
    assert named.client_names == ("0", "10000000000000")


def test_lines_are_counted_through_blank_lines_comments_and_stray_spaces(tmp_path: Path) -> None:
    lines = [f"{i}::1::5::{i}" for i in range(2000)]
    lines[1001] = "1:: 3::4::5"
    (tmp_path / "ratings.dat").write_text("\n".join(lines))
    with pytest.raises(so.UserError, match=r"ratings.dat:1002: ' 3' is not a number"):
        MovieLens(name="movielens").parse(tmp_path)


def test_columns_nobody_asked_for_may_be_empty_and_007_is_not_7(tmp_path: Path) -> None:
    (tmp_path / "log.csv").write_text("user,item,time,note\n007,x,1,\n007,y,2,hm\n7,x,1,\n\n7,z,2,\n")
    assert timeline(Interactions().parse(tmp_path / "log.csv")) == {0: [(["x"], "y")], 1: [(["x"], "z")]}


def test_times_are_really_in_order(tmp_path: Path) -> None:
    path = tmp_path / "log.csv"

    def order(*times: str) -> str:
        """The items a … in order of their times."""
        rows = "".join(f"u,{item},{time}\n" for item, time in zip("abcd", times, strict=False))
        path.write_text("user,item,time\n" + rows)
        found = Interactions(window=9, ties="file").parse(path)
        history, last = timeline(found)[0][-1]
        return "".join([*history, last])

    assert order("1700000000000000002", "1700000000000000001", "1700000000000000003") == "bac"
    assert order("2024-01-01T10:00:00+09:00", "2024-01-01T05:00:00+00:00", "2024-01-01T00:30Z") == "cab"
    assert order("2024-01-01T00:00:00.500Z", "2024-01-01T00:00:00Z") == "ba"
    assert order("10", "9.5", "1e1") == "bac"


def test_quoted_fields_may_go_over_lines_and_blocks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(text.blocks, "__kwdefaults__", {"skip_lines": 0, "size": 64})
    rows = "".join(f'{k % 7},item {k % 5},"line one\nline two, more",{k}\n' for k in range(300))
    (tmp_path / "log.csv").write_text("user,item,note,time\n" + rows)
    found = Interactions().parse(tmp_path / "log.csv")
    assert len(found.train) == 300 - 7


def test_what_systems_leave_behind_is_not_read(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as file:
        for name in ("d/train.txt", "d/test.txt"):
            file.writestr(name, XC)
            file.writestr(f"__MACOSX/{name.replace('/', '/._')}", b"\x00\x05")
        file.writestr("d/.DS_Store", b"x")
    assert sets(XCText(name="xc-text").parse(tmp_path / "a.zip").train) == XC_SETS


def test_byte_order_marks_and_old_line_ends(tmp_path: Path) -> None:
    for part in ("train", "test"):
        (tmp_path / f"{part}.txt").write_bytes(b"\xef\xbb\xbf" + XC.encode())
    assert sets(XCText(name="xc-text").parse(tmp_path).train) == XC_SETS
    (tmp_path / "data").write_bytes(b"\xef\xbb\xbf1 1:1\r2 2:1\r")
    assert sets(LibSVM().parse(tmp_path / "data").train) == [[0], [1]]


@pytest.mark.parametrize(
    ("header", "complaint"),
    [
        ("4 6 99999999999999", "says 99,999,999,999,999 labels"),
        ("4 99999999999 5", "says 99,999,999,999 features"),
    ],
)
def test_headers_that_promise_the_moon_are_refused(tmp_path: Path, header: str, complaint: str) -> None:
    with pytest.raises(so.UserError, match=rf"train.txt:1: {complaint}: more than"):
        xc(tmp_path, train=XC.replace("4 6 5", header), test=XC)


def test_values_too_large_for_32_bits_are_named(tmp_path: Path) -> None:
    with pytest.raises(so.UserError, match=r"train.txt:2: '1e39' is too large"):
        xc(tmp_path, train=XC.replace("5:2", "5:1e39"), test=XC)


def test_libsvm_test_files_are_found_by_their_names(tmp_path: Path) -> None:
    (tmp_path / "a-train.svm").write_text("1 1:1\n")
    (tmp_path / "a-test.svm").write_text("1 1:1\n1 1:2\n")
    assert len(LibSVM().parse(tmp_path / "a-train.svm").test or []) == 2
    assert len(LibSVM().parse(tmp_path).test or []) == 2
    (tmp_path / "a-test.svm").rename(tmp_path / "latest.svm")
    with pytest.raises(so.UserError, match="needs one training file"):
        LibSVM().parse(tmp_path)
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "c.bz2").write_bytes(bz2.compress(b"3 1:1\n"))
    assert LibSVM().parse(tmp_path / "b" / "c.bz2").class_names == ("3",)
    (tmp_path / "b" / "c.bz2").write_bytes(b"BZh9" + bytes(50))
    with pytest.raises(so.UserError, match=r"c.bz2: cannot be read, it may be cut short"):
        LibSVM().parse(tmp_path / "b" / "c.bz2")


def test_links_in_a_tar_are_not_followed(tmp_path: Path) -> None:
    (tmp_path / "secret.txt").write_text(XC)
    with tarfile.open(tmp_path / "a.tar", "w") as tar:
        link = tarfile.TarInfo("train.txt")
        link.type, link.linkname = tarfile.SYMTYPE, str(tmp_path / "secret.txt")
        tar.addfile(link)
    with opened(tmp_path / "a.tar") as archive:
        assert archive.names == []


# ---------------------------------------------------------------- the real files


def test_movielens_1m_has_the_published_counts_and_the_papers_examples(real_data: Path) -> None:
    found = MovieLens(name="movielens-1m").read(real_data / "ml-1m.zip")
    assert len(found.train) == 994_169
    assert found.train.user is not None
    assert len(torch.unique(found.train.user)) == 6_040
    assert found.classes == 3_706 + 1
    # By example, 90 % and 10 %: the figures of the paper's Table 1.
    halves = load_data(DataConfig(source="movielens-1m", path=real_data / "ml-1m.zip", hold_out="random",
                             validation_fraction=0, test_fraction=0.1), seed=0)  # fmt: skip
    assert (halves.train.examples, len(halves.test)) == (894_752, 99_417)


def test_movielens_1m_by_user_is_80_10_10_in_order_of_ids(real_data: Path) -> None:
    splits = load_data(DataConfig(source="movielens-1m", path=real_data / "ml-1m.zip"), seed=0)
    assert splits.train.clients == 4_832
    assert splits.validation is not None
    assert splits.train.examples + len(splits.validation) + len(splits.test) == 994_169
    user = MovieLens(name="movielens-1m").read(real_data / "ml-1m.zip").train.user
    assert user is not None
    sizes = torch.bincount(user)[1:]  # examples of each user, in order of ids
    first, second = 4_832, 4_832 + 604
    assert (sizes[:first].numpy() == splits.train.sizes).all()
    assert int(sizes[first:second].sum()) == len(splits.validation)
    assert int(sizes[second:].sum()) == len(splits.test)
    # The last history of the last user is the last of the test part.
    every = MovieLens(name="movielens-1m").read(real_data / "ml-1m.zip").train
    last = torch.tensor([len(splits.test) - 1])
    assert torch.equal(
        splits.test.inputs["history"].take(last), every.columns["history"].take(torch.tensor([994_168]))
    )
    capped = load_data(
        DataConfig(source={"name": "movielens-1m", "cap": 300}, path=real_data / "ml-1m.zip"), seed=0
    )
    assert capped.train.sizes.max() == 300
    assert (np.minimum(splits.train.sizes, 300) == capped.train.sizes).all()


def test_movielens_windows_equal_a_plain_loop_over_the_file(real_data: Path) -> None:
    """The obvious twin: 200 users in Python, against the columns."""
    with zipfile.ZipFile(real_data / "ml-1m.zip") as file:
        lines = file.read("ml-1m/ratings.dat").decode("iso-8859-1").splitlines()
    events: dict[int, list[tuple[int, int, int]]] = {}
    for place, line in enumerate(lines):
        user, movie, _, time = map(int, line.split("::"))
        if user <= 200:
            events.setdefault(user, []).append((time, place, movie))
    expected = []
    for user in sorted(events):
        movies = [movie for _, _, movie in sorted(events[user])]
        for t in range(1, len(movies)):
            history = movies[max(0, t - 10) : t]
            expected.append((history + [0] * (10 - len(history)), movies[t]))
    found = MovieLens(name="movielens-1m", numbering="published", ties="file").read(
        real_data / "ml-1m.zip"
    )
    some = torch.arange(len(expected))
    histories = found.train.columns["history"].take(some).tolist()
    assert histories == [history for history, _ in expected]
    assert found.train.labels.values[: len(expected)].tolist() == [label for _, label in expected]


def test_bibtex_has_the_published_counts(real_data: Path) -> None:
    found = MulanArff(name="bibtex").read(real_data / "bibtex")
    assert found.test is not None
    x = found.train.columns["x"]
    assert isinstance(x, Sparse)
    assert (len(found.train), len(found.test), x.width, found.classes) == (4880, 2515, 1836, 159)
    every = len(found.train.labels.values) + len(found.test.labels.values)
    assert round(every / (4880 + 2515), 2) == 2.40
    # A twin: the first rows by hand.
    rows = (real_data / "bibtex" / "bibtex-train.arff").read_text().split("@data")[1].split("\n")[1:6]
    for i, row in enumerate(rows):
        on = {int(pair.split()[0]) for pair in row.strip("{}").split(",")}
        assert set(x.take(torch.tensor(i)).nonzero()[:, 0].tolist()) == {f for f in on if f < 1836}
        assert set(found.train.labels[i].tolist()) == {f - 1836 for f in on if f >= 1836}
