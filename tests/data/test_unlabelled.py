"""Files that a trained model is asked about: every format, with labels and without."""

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import spreadout as so
from kinds import written
from spreadout.cli.main import main
from spreadout.data.columns import Sparse
from spreadout.data.sources.interactions import Interactions
from spreadout.data.sources.libsvm import LibSVM
from spreadout.data.sources.mulan_arff import MulanArff
from spreadout.data.sources.omniglot import Omniglot
from spreadout.data.unlabelled.files import read_inputs
from spreadout.data.unlabelled.wanted import Wanted


def dense(found: np.ndarray | Sparse | None) -> list[list[float]]:
    assert isinstance(found, Sparse)
    rows: list[list[float]] = found.take(torch.arange(len(found))).tolist()
    return rows


@pytest.mark.parametrize(
    "text",
    [
        "3 4 2\n0 0:1 3:2\n0,1 1:5\n\n",  # a header and labels
        "3 4\n 0:1 3:2\n 1:5\n\n",  # a matrix without labels; the last example has no features
        "0:1 3:2\n1:5\n",  # neither
        "# a comment\n7 0:1 3:2\n\n7 1:5 # another\n",
    ],
)
def test_sparse_lines_are_read_with_labels_and_without(tmp_path: Path, text: str) -> None:
    (tmp_path / "x.txt").write_text(text)
    found = read_inputs(tmp_path / "x.txt", Wanted(4))
    assert dense(found.x)[:2] == [[1, 0, 0, 2], [0, 5, 0, 0]]


def test_libsvm_counts_features_from_one_where_the_run_did(tmp_path: Path) -> None:
    (tmp_path / "x").write_text("1 1:1 4:2\n")
    found = read_inputs(tmp_path / "x", Wanted(4, source=LibSVM()))
    assert dense(found.x) == [[1, 0, 0, 2]]
    (tmp_path / "x").write_text("1 0:1\n")
    with pytest.raises(so.UserError, match="x:1: feature 0, but the run's features are counted from 1"):
        read_inputs(tmp_path / "x", Wanted(4, source=LibSVM()))
    (tmp_path / "x").write_text("1 9:1\n")
    with pytest.raises(so.UserError, match="x:1: feature 8, but there are 4"):
        read_inputs(tmp_path / "x", Wanted(4, source=LibSVM()))


@pytest.mark.parametrize(
    "text", ["a,b\n1,2\n3,4\n", "1 2\n3 4\n", "1;2\n\n3;4", "\ufeff1\t2\n3\t4\n", '"1","2"\n"3","4"\n']
)
def test_tables_of_numbers(tmp_path: Path, text: str) -> None:
    (tmp_path / "x.csv").write_text(text)
    found = read_inputs(tmp_path / "x.csv", Wanted(2)).x
    assert isinstance(found, np.ndarray)
    assert found.tolist() == [[1, 2], [3, 4]]


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("1,2\n3\n", "x.csv:2: 1 cells, others have 2"),
        ("a,b\n1,x\n", "x.csv:2: 'x' is no number; this run takes 2 numbers an example"),
        ("a,b\n", "has no line of numbers; this run takes 2 numbers an example"),
        ("", "x.csv: has no inputs"),
        ("\0\1", "is in no form that is known here"),
        ("\xff", "is no text"),
    ],
)
def test_tables_that_are_none(tmp_path: Path, text: str, complaint: str) -> None:
    (tmp_path / "x.csv").write_bytes(text.encode("latin1"))
    with pytest.raises(so.UserError, match=complaint):
        read_inputs(tmp_path / "x.csv", Wanted(2))


def test_a_table_like_the_runs_own_may_have_its_labels(tmp_path: Path) -> None:
    class Own(so.Source):
        name: str = "own-table"
        label: str = "kind"
        client: str | None = "who"
        features: tuple[str, ...] = ()

        def read(self, path: Path | None) -> so.RawDataset:
            raise NotImplementedError

    (tmp_path / "x.csv").write_text("a,kind,who,b\n1,cat,me,2\n3,dog,you,4\n")
    for source in (Own(), Own(features=("a", "b"))):
        found = read_inputs(tmp_path / "x.csv", Wanted(2, source=source)).x
        assert isinstance(found, np.ndarray)
        assert found.tolist() == [[1, 2], [3, 4]]
    with pytest.raises(so.UserError, match=r"x.csv:1: no column 'c', which this run was trained on"):
        read_inputs(tmp_path / "x.csv", Wanted(2, source=Own(features=("c",))))


ARFF = "@relation r\n@attribute a numeric\n@attribute c {x,y,z}\n{}@data\n{}"


def test_arff_with_its_labels_and_without(tmp_path: Path) -> None:
    (tmp_path / "x.arff").write_text(
        ARFF.replace("{}@", "@attribute l {0,1}\n@").replace("{}", "1,y,1\n0,x,0\n")
    )
    wanted = Wanted(3, labels=("l",))
    assert dense(read_inputs(tmp_path / "x.arff", wanted).x) == [[1, 1, 0], [0, 0, 0]]
    own = Wanted(1, source=MulanArff(label="c"), labels=["x", "y", "z"])  # the class is left out
    (tmp_path / "x.arff").write_text(ARFF.replace("{}@", "@").replace("{}", "1,y\n0,x\n"))
    assert dense(read_inputs(tmp_path / "x.arff", own).x) == [[1], [0]]
    assert dense(read_inputs(tmp_path / "x.arff", wanted).x) == [[1, 1, 0], [0, 0, 0]]
    guessed = Wanted(1, source=MulanArff(), labels=["x", "y", "z"])  # as when the run was trained
    assert dense(read_inputs(tmp_path / "x.arff", guessed).x) == [[1], [0]]
    # Without the class, and with a feature that is called as a class is.
    (tmp_path / "x.arff").write_text("@relation r\n@attribute x numeric\n@data\n1\n")
    assert dense(read_inputs(tmp_path / "x.arff", own).x) == [[1]]
    (tmp_path / "x.arff").write_text(
        "@relation r\n@attribute x numeric\n@attribute class {x,y,z}\n@data\n1,?\n"
    )
    assert dense(read_inputs(tmp_path / "x.arff", guessed).x) == [[1]]
    (tmp_path / "x.arff").write_text(ARFF.replace("{}@", "@").replace("{}", "?,y\n"))
    with pytest.raises(so.UserError, match="has no value of 'a' in some rows"):
        read_inputs(tmp_path / "x.arff", wanted)
    (tmp_path / "x.arff").write_text(ARFF.replace("{}@", "@").replace("{}", "1,y\n"))
    with pytest.raises(so.UserError, match="has 3 features; this run takes 5 numbers"):
        read_inputs(tmp_path / "x.arff", Wanted(5))


def test_pictures_are_sized_and_inked_as_the_run_had_them(tmp_path: Path) -> None:
    pixels = np.full((16, 8), 255, np.uint8)
    pixels[4:12] = 10
    Image.fromarray(pixels).save(tmp_path / "b.png")
    Image.fromarray(pixels[:8]).save(tmp_path / "a.png")
    grey = Wanted(16, (1, 4, 4), bytes_are_pixels=True)
    found = read_inputs(tmp_path, grey)
    assert found.called == ["a.png", "b.png"]
    assert isinstance(found.x, np.ndarray)
    assert (found.x.dtype, found.x.shape) == (np.uint8, (2, 1, 4, 4))
    assert found.x[1].tolist() == [[[10] * 4] * 4]
    dark = read_inputs(tmp_path / "b.png", Wanted(16, (1, 4, 4), True, source=Omniglot()))
    assert isinstance(dark.x, np.ndarray)
    assert dark.x[0].tolist() == [[[245] * 4] * 4]
    for wanted, complaint in (
        (Wanted(7), "this run takes 7 numbers an example, and no pictures"),
        (Wanted(16, (1, 4, 4)), "nothing says how pixels become them"),
        (Wanted(8, (1, 4, 2), True), "give them as an array of bytes"),
    ):
        with pytest.raises(so.UserError, match=complaint):
            read_inputs(tmp_path / "b.png", wanted)
    (tmp_path / "empty").mkdir()
    with pytest.raises(so.UserError, match="holds no pictures"):
        read_inputs(tmp_path / "empty", grey)


def test_events_make_histories_in_order_of_time(tmp_path: Path) -> None:
    wanted = Wanted(None, histories=True)
    (tmp_path / "e.csv").write_text("item,user,time\nb,u2,5\na,u1,9\nc,u1,3\n")
    found = read_inputs(tmp_path / "e.csv", wanted)
    assert (found.histories, found.called) == ([["c", "a"], ["b"]], ["u1", "u2"])
    (tmp_path / "e.csv").write_text("item,user\nb,u2\na,u1\nc,u1\n")  # without times: as they stand
    assert read_inputs(tmp_path / "e.csv", wanted).histories == [["a", "c"], ["b"]]
    (tmp_path / "ratings.dat").write_text("1::10::5::2\n1::20::5::1\n2::10::3::7\n")
    assert read_inputs(tmp_path / "ratings.dat", wanted).histories == [["20", "10"], ["10"]]
    assert read_inputs(tmp_path, wanted).called == ["1", "2"]


def test_a_runs_own_events_are_read_whatever_their_file_is_called(tmp_path: Path) -> None:
    path = tmp_path / "ratings.csv"  # as MovieLens has one
    path.write_text("who|what|when|stars\nann|b|2|5\nann|a|1|4\n")
    own = Interactions(user="who", item="what", time="when", delimiter="|")
    asked = Wanted(None, histories=True, source=own)
    assert read_inputs(path, asked).histories == [["a", "b"]]
    path.write_text("userId,movieId,rating,timestamp\n1,7,5,2\n1,8,5,1\n")
    assert read_inputs(path, asked).histories == [["8", "7"]]


KINDS = {
    "rows": "rows.npz",
    "dense sets": "toy.arff",
    "sparse sets": "test.txt",
    "images": "circle/0.png",
    "histories": "events.csv",
    "new classes": "",
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_run_is_asked_with_files_of_its_own_kind(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    home = tmp_path / "data"
    home.mkdir()
    data = written(kind, home)
    method = {"name": "dual_encoder" if kind == "histories" else "fedaws"}
    settings = {"rounds": 1, "data": data, "method": method, "eval": {"references": False}}
    result = so.run(settings, out=tmp_path / "run")
    arguments = ["predict", str(tmp_path / "run"), "--input", str(home / KINDS[kind]), "--top", "2"]
    monkeypatch.setattr("sys.argv", ["spreadout", *arguments])
    with pytest.raises(SystemExit) as stopped:
        main()
    said = capsys.readouterr()
    assert stopped.value.code in (0, None), said.err
    found = result.predict(home / KINDS[kind], top=2)
    lines = [line for line in said.out.splitlines() if line.startswith("  ")]
    assert len(lines) == 2 * len(found)
    assert lines[0].split()[1] == found[0][0].id
    if kind == "images":  # classes go by their names
        assert {line.split()[1] for line in lines} < {"circle", "square", "triangle"}
    if kind == "histories":  # inputs have names
        assert said.out.startswith("0:\n")
    if kind == "rows":
        with np.load(home / "rows.npz") as arrays:
            assert result.predict(arrays["x"], top=2) == found
