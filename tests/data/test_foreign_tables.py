"""Tables as programs of other countries and older days write them: a decimal comma, other letters."""

import json
import tomllib
from pathlib import Path

import pytest
import torch

import spreadout as so
from command import invoke
from spreadout.data.decimals import have_comma, pointed
from spreadout.data.io.csv_table import Cells, encoding_of, text_of

QUICK = {"rounds": 30, "eval": {"references": False}}
HEADER = "höhe;umfang;boden;baum"
TREES = ("Esche", "Föhre", "Eibe")
ROWS = [
    f"{3 * (i % 3) + i % 7 / 7:.2f};{i % 5 / 5:.2f};{'naß' if i % 2 else 'trocken'};{TREES[i % 3]}"
    for i in range(60)
]
TABLE = "\n".join([HEADER, *ROWS]) + "\n"
WITH_COMMA = TABLE.replace(".", ",")
KINDS = [TREES[i % 3] for i in range(60)]


def column(cells: list[str]) -> Cells:
    return Cells(cells, range(2, 2 + len(cells)))


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "cp1252", "latin-1"])
def test_init_and_predict_read_the_table_as_it_was_saved(
    encoding: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    path, config = tmp_path / "t.csv", tmp_path / "t.toml"
    path.write_bytes(WITH_COMMA.encode(encoding))
    assert invoke(monkeypatch, "init", str(path), "--out", str(config)) == 0
    said = capsys.readouterr().out
    assert "Numbers have a decimal comma (data.source.decimal)." in said
    other = encoding in ("cp1252", "latin-1")
    assert ("is no UTF-8 and is read as cp1252 (data.source.encoding)" in said) == other
    own = {"encoding": "cp1252"} if other else {}
    assert tomllib.loads(config.read_text())["data"]["source"] == {
        "name": "table", "label": "baum", "delimiter": ";", "decimal": ",", **own
    }  # fmt: skip
    so.run(so.Experiment.load(config).model_copy(update={"rounds": 30}), out=tmp_path / "run")
    for text, written in ((WITH_COMMA, encoding), (WITH_COMMA, "utf-8"), (WITH_COMMA, "utf-16")):
        path.write_bytes(text.encode(written))
        capsys.readouterr()
        asked = ("predict", str(tmp_path / "run"), "--input", str(path), "--top", "1", "--json")
        assert invoke(monkeypatch, *asked) == 0
        answers = json.loads(capsys.readouterr().out)
        assert [one[0]["id"] for one in answers] == KINDS


def test_numbers_with_a_comma_are_those_with_a_point(tmp_path: Path) -> None:
    found = []
    for name, text, decimal in (("a.csv", TABLE, "."), ("b.csv", WITH_COMMA, ",")):
        (tmp_path / name).write_text(text)
        source = {"name": "table", "label": "baum", "delimiter": ";", "decimal": decimal}
        config = so.DataConfig(source=source, path=tmp_path / name)
        found.append(config.source.read(config.path))
    with_point, with_comma = found
    at = torch.arange(60)
    assert torch.equal(with_point.train.columns["x"].take(at), with_comma.train.columns["x"].take(at))
    assert with_point.input_columns == with_comma.input_columns
    assert with_point.class_names == with_comma.class_names


def test_a_decimal_comma_is_asked_without_a_header_too(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text(
        "a;b;kind\n" + "".join(f"{i % 3},5;0,{i % 10};{TREES[i % 3]}\n" for i in range(60))
    )
    source = {"name": "table", "label": "kind", "delimiter": ";", "decimal": ","}
    model = so.run({**QUICK, "data": {"source": source, "path": tmp_path / "t.csv"}}).predictor
    (tmp_path / "q.txt").write_text("2,5;0,1\n,5;1\n")
    assert model.predict(tmp_path / "q.txt") == model.predict([[2.5, 0.1], [0.5, 1.0]])
    (tmp_path / "q.csv").write_text("b;a\n0,1;2.5\n")
    with pytest.raises(
        so.UserError, match=r"q.csv:2: a is '2\.5': numbers of this table have a decimal"
    ):
        model.predict(tmp_path / "q.csv")


@pytest.mark.parametrize(
    ("columns", "comma"),
    [
        ([["3,14", "2", ",5", "NA", ""], ["wet, dry"]], True),
        ([["3,14", "2"], ["1.5", "7"]], False),
        ([["1,234", "12,500"]], False),  # thousands
        ([["1,234", "12,5"]], True),
        ([["1,2,3", "4"], ["31.12.2024"]], False),
        ([["1", "2"], ["a,b"]], False),
        ([[]], False),
    ],
)
def test_a_decimal_comma_is_seen_where_no_number_says_the_contrary(
    columns: list[list[str]], comma: bool
) -> None:
    assert have_comma(map(column, columns)) == comma


def test_text_with_commas_stays_and_points_among_commas_are_refused() -> None:
    assert pointed(Path("t"), "a", column(["3,14", "wet, dry", "1.5 l"])) == [
        "3.14",
        "wet, dry",
        "1.5 l",
    ]
    with pytest.raises(so.UserError, match=r"t:3: a is '1\.234': .*\(data.source.decimal\)"):
        pointed(Path("t"), "a", column(["3,14", "1.234"]))


def test_a_decimal_comma_that_is_not_set_is_named(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text(WITH_COMMA)
    source = {"name": "table", "label": "baum", "delimiter": ";"}
    with pytest.raises(so.UserError, match=r"höhe is '0,00': .* or set data.source.decimal = \",\""):
        so.load_data(so.DataConfig(source=source, path=tmp_path / "t.csv"))


@pytest.mark.parametrize(
    ("raw", "encoding"),
    [
        ("größe".encode(), None),
        ("größe".encode("utf-16"), None),
        ("größe".encode("cp1252"), "cp1252"),
        (b"a\x81b", "latin-1"),
        (b"", None),
        (("x" * ((1 << 16) - 1) + "ö").encode(), None),  # cut in the middle of a letter
        (("ö" * (1 << 16)).encode() + b"\xff", "cp1252"),
    ],
)
def test_letters_that_are_no_utf_8_are_named_with_the_remedy(
    raw: bytes, encoding: str | None, tmp_path: Path
) -> None:
    path = tmp_path / "t.csv"
    path.write_bytes(raw)
    assert encoding_of(path) == encoding
    if encoding is None:
        assert text_of(path) in ("größe", "", raw.decode("utf-8", "replace"))
        return
    with pytest.raises(so.UserError, match=f't.csv:1: .*data.source.encoding = "{encoding}"'):
        text_of(path)
    assert text_of(path, encoding) == raw.decode(encoding)


def test_texts_may_be_in_other_letters_and_logs_in_utf_16_are_refused(tmp_path: Path) -> None:
    rows = "".join(f"mein{'e Straße' if i % 2 else ' Größenmaß'},{'ab'[i % 2]}\n" for i in range(30))
    (tmp_path / "t.csv").write_bytes(("text,label\n" + rows).encode("cp1252"))
    for encoding, said in (("cp1252", None), ("klingon", "is no encoding"), ("hex", "is no encoding")):
        values = {"source": {"name": "texts", "encoding": encoding}, "path": tmp_path / "t.csv"}
        if said is None:
            assert so.load_data(so.DataConfig.model_validate(values)).class_names == ("a", "b")
        else:
            with pytest.raises(so.UserError, match=said):
                so.Experiment.of({"data": values})
    (tmp_path / "log.csv").write_bytes("user,item,time\na,b,1\n".encode("utf-16"))
    with pytest.raises(so.UserError, match=r"log.csv: is text in UTF-16; save it as UTF-8"):
        so.load_data(so.DataConfig(source="interactions", path=tmp_path / "log.csv"))
