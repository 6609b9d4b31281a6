"""A trained model is asked with the very files that its run was trained on, and with others like them."""

import json
from pathlib import Path

import pytest

import spreadout as so
from command import invoke
from spreadout.data.unlabelled.tables import has_pairs, is_table

QUICK = {"rounds": 30, "eval": {"references": False}}
HEADER = ["measured at", "tree: height", "girth 1:2 cm", "kind", "site"]
ROWS = [
    [
        f"2024-05-{1 + i % 28:02d} {i % 24:02d}:{i % 60:02d}:00",
        f"{3 * (i % 3) + i % 7 / 7:.2f}",
        f"{i % 5 / 5:.2f}",
        ("ash", "fir", "yew")[i % 3],
        f"site {i % 4}",
    ]
    for i in range(90)
]
KINDS = [row[3] for row in ROWS]
MARKS = {"comma": ",", "semicolon": ";", "tab": "\t", "bar": "|"}


def table(path: Path, mark: str, names: list[str] = HEADER) -> Path:
    places = [HEADER.index(name) for name in names]
    lines = [names, *([row[place] for place in places] for row in ROWS)]
    path.write_text("\n".join(mark.join(line) for line in lines) + "\n")
    return path


@pytest.fixture(scope="module", params=["semicolon", "tab"])
def run(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("trees")
    mark = MARKS[request.param]
    source = {"name": "table", "label": "kind", "client": "site", "delimiter": mark}
    data = {"source": source, "path": table(home / "trees.csv", mark)}
    so.run({**QUICK, "data": data}, out=home / "run")
    return home / "run"


def asked(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], run: Path, path: Path
) -> list[str]:
    capsys.readouterr()
    code = invoke(monkeypatch, "predict", str(run), "--input", str(path), "--top", "1", "--json")
    said = capsys.readouterr()
    assert code == 0, said.err
    return [one[0]["id"] for one in json.loads(said.out)]


@pytest.mark.parametrize("mark", MARKS)
def test_a_table_goes_by_its_header_whatever_its_cells_and_its_delimiter(
    run: Path,
    mark: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    path = table(tmp_path / "trees.csv", MARKS[mark])
    assert asked(monkeypatch, capsys, run, path) == KINDS
    few = table(tmp_path / "few.txt", MARKS[mark], ["girth 1:2 cm", "measured at", "tree: height"])
    assert asked(monkeypatch, capsys, run, few) == KINDS


def test_columns_that_training_did_not_have_are_left_out_and_named(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "q.csv").write_text('girth 1:2 cm;said;tree: height\n0.4;"red; or\nso";6.5\n')
    assert invoke(monkeypatch, "predict", str(run), "--input", str(tmp_path / "q.csv")) == 0
    said = capsys.readouterr()
    assert said.err == "said: was not in the training data and is left out\n"
    assert said.out.split()[1] == "yew"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("girth 1:2 cm;said\n1;2\n", "no column 'tree: height', which this model was trained on"),
        ("girth 1:2 cm;tree:height\n1;2\n", "did you mean 'tree:height'"),
        ("girth 1:2 cm;tree: height\n1;2\n\n1\n", "q.csv:4: 1 fields instead of 2"),
        (
            "girth 1:2 cm;tree: height\n1;2\n\nso;1\n",
            "q.csv:4: girth 1:2 cm is 'so', which is no number",
        ),
        ("girth 1:2 cm;tree: height\n", "has a header and no rows"),
        ("girth 1:2 cm;tree: height;x;x\n1;2;3;4\n", "two columns are called 'x' (3 and 4)"),
        ("2024-05-01 10:30:00;ash\n", "no column 'tree: height'"),
        ("", "q.csv: has no inputs"),
        ("\0\1", "is in no form that is known here"),
    ],
)
def test_what_a_table_lacks_is_named(
    run: Path,
    text: str,
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "q.csv").write_text(text)
    assert invoke(monkeypatch, "predict", str(run), "--input", str(tmp_path / "q.csv")) == 2
    assert said in capsys.readouterr().err


def test_what_has_no_header_goes_by_position(run: Path, tmp_path: Path) -> None:
    model = so.load(run)
    want = model.predict([[6.5, 0.4]])
    for text in ("6.5;0.4\n", "6.5 0.4\n", "6.5\t0.4\n", "0:6.5 1:0.4\n", "7 0:6.5 1:0.4\n"):
        (tmp_path / "q.txt").write_text(text)
        assert model.predict(tmp_path / "q.txt") == want


@pytest.mark.parametrize(
    ("text", "pairs"),
    [
        ("1 2:3\n", True),
        ("3 4 2\n\n0,1\n0 1:5\n", True),
        ("# sizes: 2\n2:5 7:1e-3 # a: 5\n", True),
        ("at a,b\n2024-05-01 10:30,5\n", False),
        ("2024-05-01 10:30:00,5\n", False),
        ("5,2024-05-01 10:30\n", False),
        ("5\t2024-05-01 10:30\n", False),
        ("1 2\n3 4\n", False),
        ("", False),
    ],
)
def test_pairs_are_known_from_times_of_day(text: str, pairs: bool, tmp_path: Path) -> None:
    (tmp_path / "x").write_text(text)
    assert has_pairs(tmp_path / "x") == pairs


@pytest.mark.parametrize("mark", [",", ";"])
def test_texts_are_asked_with_tables_of_any_name(
    mark: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = {"card": ["my card", "lost it: 10:30 today", "a card"], "cash": ["no cash", "cash", "get"]}
    rows = [
        f'"{one}{mark} {two}"{mark}{topic}' for topic, own in words.items() for one in own for two in own
    ]
    header = f"what is said{mark}topic"
    (tmp_path / "t.csv").write_text("\n".join([header, *rows * 3]) + "\n")
    source = {"name": "texts", "text": "what is said", "label": "topic", "width": 256, "delimiter": mark}
    so.run({**QUICK, "data": {"source": source, "path": tmp_path / "t.csv"}}, out=tmp_path / "run")
    want = [row.rpartition(mark)[2] for row in rows] * 3
    assert asked(monkeypatch, capsys, tmp_path / "run", tmp_path / "t.csv") == want
    (tmp_path / "t.txt").write_bytes((tmp_path / "t.csv").read_bytes())
    assert asked(monkeypatch, capsys, tmp_path / "run", tmp_path / "t.txt") == want
    model = so.load(tmp_path / "run")
    assert model.columns is not None
    (tmp_path / "lines.txt").write_text(f"my card{mark} what is said\nno cash today\n")
    assert not is_table(tmp_path / "lines.txt", model.columns, mark)
    assert [one[0].id for one in model.predict(tmp_path / "lines.txt")] == ["card", "cash"]
    (tmp_path / "other.csv").write_text(f"said{mark}n\nmy card{mark}1\n")
    with pytest.raises(so.UserError, match="no column 'what is said', which this model was trained on"):
        model.predict(tmp_path / "other.csv")


def test_logs_are_read_with_the_runs_own_columns_and_delimiter(tmp_path: Path) -> None:
    header = ["visitor no.", "seen: item", "at", "page"]
    events = [
        [f"v{u}", f"item-{'abc'[(u + t) % 3]}", f"2024-05-01 10:{t:02d}:00", "p"]
        for u in range(20)
        for t in range(6)
    ]

    def log(name: str, mark: str, order: tuple[int, ...]) -> Path:
        lines = [mark.join(row[place] for place in order) for row in (header, *events)]
        (tmp_path / name).write_text("\n".join(lines) + "\n")
        return tmp_path / name

    source = {
        "name": "interactions",
        "user": header[0],
        "item": header[1],
        "time": "at",
        "delimiter": ";",
    }
    data = {"source": source, "path": log("log.csv", ";", (0, 1, 2, 3))}
    model = {"encoder": "mean", "dim": 4}
    settings = {"rounds": 2, "data": data, "model": model, "method": {"name": "dual_encoder"}}
    predictor = so.run({**settings, "eval": {"metrics": ["R@1"], "every": 2}}).predictor
    want = predictor.predict(tmp_path / "log.csv")
    assert len(want) == 20
    for name, mark, order in (
        ("a.csv", ";", (3, 2, 1, 0)),
        ("b.csv", "\t", (1, 2, 0)),
        ("c.txt", ",", (2, 0, 1)),
    ):
        assert predictor.predict(log(name, mark, order)) == want
    with pytest.raises(so.UserError, match="no column 'seen: item', which this run was trained on; the"):
        predictor.predict(log("d.csv", ";", (0, 2, 3)))
    with pytest.raises(so.UserError, match=r"no column 'visitor no.'"):
        predictor.predict(log("e.txt", ";", (2, 1)))
    (tmp_path / "h.csv").write_text("item-a,item-b\n")
    assert len(predictor.predict(tmp_path / "h.csv")) == 1
