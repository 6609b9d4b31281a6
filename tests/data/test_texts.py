"""A table of texts: words become features by their hash, in training and whenever the model is asked."""

import json
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import spreadout as so
from command import invoke
from spreadout.config.guess import guessed
from spreadout.data.words import hashed_words, words_of

ABOUT = {
    "card": ["my card is lost", "the card was stolen", "send a new card", "is my card here"],
    "bank": ["open an account", "close the account", "which account is mine", "an account for two"],
    "cash": ["the cash is gone", "get cash abroad", "no cash came out", "cash at the airport"],
}
QUICK = {"rounds": 40, "eval": {"references": False}, "method": {"name": "fedaws"}}


def table(folder: Path, rows: list[str], header: str = "text,topic") -> Path:
    path = folder / "t.csv"
    path.write_text("\n".join([header, *rows]) + "\n")
    return path


def topics(folder: Path) -> Path:
    every = [
        f'"{word} {text}",{topic}' for topic, own in ABOUT.items() for text in own for word in "abcde"
    ]
    return table(folder, every)


def read(path: Path, **options: Any) -> so.RawDataset:
    source: dict[str, Any] = {"name": "texts", "label": "topic", **options}
    config = so.DataConfig(source=source, path=path)
    return config.source.read(config.path)


def slow(text: str, width: int) -> torch.Tensor:
    """The obvious twin: one feature after another."""
    words = words_of(text)
    every = words + [f"{words[i]} {words[i + 1]}" for i in range(len(words) - 1)]
    counts = torch.zeros(width, dtype=torch.float64)
    for one in every:
        counts[zlib.crc32(one.encode()) % width] += 1
    weights = torch.where(counts > 0, 1 + counts.clamp_min(1).log(), counts)
    return weights / weights.norm().clamp_min(1e-12)


@pytest.mark.parametrize(
    "text", ["", "one", "a rose is a rose is a rose", "Größe ﬁne  x\ty", "我的卡 丢了"]
)
def test_words_and_pairs_are_counted_by_their_hash(text: str) -> None:
    for width in (2, 16, 1024):
        found = hashed_words([text, "other"], width).dense().values[0]
        torch.testing.assert_close(found.double(), slow(text, width), atol=1e-6, rtol=0)


def test_letters_of_any_size_and_width_are_one_word_and_scripts_without_gaps_are_cut() -> None:
    assert words_of("CARD Card ｃａｒｄ STRASSE straße") == ["card"] * 3 + ["strasse"] * 2
    assert words_of("我的卡") == ["我", "的", "卡"]
    assert words_of("မြန်မာစာ၊ ခို") == ["မြ", "န်", "မာ", "စာ", "ခို"]  # Burmese, with its vowels


def test_marks_on_letters_stay_on_them() -> None:
    assert words_of("नमस्ते दुनिया, வணக்கம்") == ["नमस्ते", "दुनिया", "வணக்கம்"]
    assert words_of("العَرَبِيَّة") == ["العَرَبِيَّة"]
    assert words_of("สวัสดี") == ["ส", "วั", "ส", "ดี"]


def test_a_table_of_texts_has_features_labels_and_clients(tmp_path: Path) -> None:
    path = table(
        tmp_path, ["lost card,card,ann", '"more, please",cash,bob', ",cash,ann"], "text,topic,who"
    )
    found = read(path, client="who", width=64)
    assert found.train.columns["x"].take(torch.arange(3)).shape == (3, 64)
    assert found.class_names == ("card", "cash")
    assert found.client_names == ("ann", "bob")
    assert found.notes == ("text: 1 of 3 cells are empty",)


def test_a_text_may_have_several_labels_or_none(tmp_path: Path) -> None:
    found = read(table(tmp_path, ["a b,x; y ;x", "c,", "d,y"]), separator=";")
    assert [own.tolist() for own in found.train.labels] == [[0, 1], [], [1]]
    assert found.class_names == ("x", "y")


@pytest.mark.parametrize(
    ("rows", "options", "said"),
    [
        (["a,x"], {"text": "txt"}, "no column 'txt'; did you mean 'text'.*set data.source.text"),
        (["a,x"], {"label": "kind"}, "no column 'kind'.*set data.source.label"),
        (["a,x"], {"text": "topic"}, "'topic' is text and label at once"),
        (["a,"], {}, "t.csv:2: topic is empty; fill it in or drop the row"),
        (["a,;"], {"separator": ";"}, "column 'topic' is empty"),
        ([",x"], {}, "column 'text' is empty; set data.source.text"),
    ],
)
def test_what_cannot_be_read_is_named(
    rows: list[str], options: dict[str, Any], said: str, tmp_path: Path
) -> None:
    with pytest.raises(so.UserError, match=said):
        read(table(tmp_path, rows), **options)


def test_init_knows_texts_from_tables(tmp_path: Path) -> None:
    long = [f"text number {i} of all,{'ab'[i % 2]}" for i in range(80)]
    assert guessed(str(table(tmp_path, long)))["source"] == {
        "name": "texts", "label": "topic", "text": "text"
    }  # fmt: skip
    ids = [f"{i * 37},{row}" for i, row in enumerate(long)]  # which say nothing of a text
    assert guessed(str(table(tmp_path, ids, "n,text,topic")))["source"] == {
        "name": "texts", "label": "topic", "text": "text"
    }  # fmt: skip
    numbers = [f"{i % 40},{row}" for i, row in enumerate(long)]
    found = guessed(str(table(tmp_path, numbers, "n,text,topic")))["source"]
    assert isinstance(found, dict)
    assert found["name"] == "table"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("texts")
    data = {"source": {"name": "texts", "label": "topic", "width": 512}, "path": topics(made)}
    result = so.run({**QUICK, "data": data})
    assert result.metrics["P@1"] > 90
    result.save(made / "run")
    return made / "run"


def test_a_trained_model_is_asked_with_texts(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    model = so.load(folder)
    asked = ["the card is lost", "12:30 and still no cash"]
    best = [one[0].id for one in model.predict(asked)]
    assert best == ["card", "cash"]
    assert [one[0].id for one in model.predict({"text": asked})] == best
    for name, written in (
        ("q.csv", 'n,text\n1,"the card is lost"\n2,12:30 and still no cash\n'),
        ("q.txt", "the card is lost\n12:30 and still no cash\n"),
    ):
        (tmp_path / name).write_text(written.replace("n,text", "topic,text"))
        capsys.readouterr()
        assert (
            invoke(monkeypatch, "predict", str(folder), "--input", str(tmp_path / name), "--json") == 0
        )
        answers = json.loads(capsys.readouterr().out)
        assert [one[0]["id"] for one in answers] == best, answers
    with pytest.raises(so.UserError, match=r"texts \('text'\)"):
        model.predict([[1.0, 2.0]])


def test_texts_are_hashed_once(tmp_path: Path) -> None:
    with pytest.raises(so.UserError, match=r"hash_features = 64.*hashed already.*data\.source\.width"):
        so.Experiment.of({"data": {"source": "texts", "path": "t.csv", "hash_features": 64}})


@pytest.mark.parametrize(
    ("name", "written", "texts"),
    [
        ("q.txt", "lost card\n\n  \nno cash\n", ["lost card", "", "", "no cash"]),
        ("q.txt", "lost\x0bcard\r\nno\u2028cash", ["lost card", "no cash"]),
        ("q.txt", "\n", [""]),
        ("q.csv", "text\nlost card\n\nno cash\n\n", ["lost card", "", "no cash", ""]),
        ("q.csv", 'topic,text\n,\n\n,"lost\n\ncard"\n', ["", "lost card"]),
    ],
)
def test_every_line_of_a_file_has_an_answer(
    folder: Path, name: str, written: str, texts: list[str], tmp_path: Path
) -> None:
    (tmp_path / name).write_bytes(written.encode())
    model = so.load(folder)
    torch.testing.assert_close(model.scores(tmp_path / name), model.scores(texts))


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ("topic,text\n\na,b\n1,2,3\n", r"q\.csv:4: 3 fields instead of 2"),
        ('topic,text\n\n"a\nb",c\nd\n', r"q\.csv:5: 1 fields instead of 2"),
        ("text\n" + "a" * 140_000 + "\n", r"q\.csv: cannot be read as CSV \(field larger than"),
    ],
)
def test_what_cannot_be_asked_is_named_by_its_line(
    folder: Path, written: str, said: str, tmp_path: Path
) -> None:
    (tmp_path / "q.csv").write_text(written)
    with pytest.raises(so.UserError, match=said):
        so.load(folder).predict(tmp_path / "q.csv")


CELLS = ["lost card", None, float("nan"), np.float64("nan"), 12, 12.0, 1e300, np.int64(3)]
AS_TEXT = ["lost card", "", "", "", "12", "12", "1e+300", "3"]


def test_cells_as_pandas_has_them_are_texts(folder: Path) -> None:
    model = so.load(folder)
    want = model.scores(AS_TEXT)
    for given in (CELLS, np.array(CELLS, dtype=object), {"text": CELLS}):
        torch.testing.assert_close(model.scores(given), want)
    frame = {"text": CELLS, "topic": ["card", "cash"] * 4}
    assert len(CELLS) == 8
    data = so.FederatedDataset.from_frame(frame, label="topic")
    assert data.input_columns is not None
    found = so.Examples.from_frame(frame, label="topic", like=data).inputs["x"]
    assert data.input_columns.text is not None
    width = data.input_columns.text.width
    assert torch.equal(found.take(torch.arange(8)), hashed_words(AS_TEXT, width).dense().values)


def test_a_series_of_pandas_is_a_list_of_texts(folder: Path) -> None:
    pandas = pytest.importorskip("pandas")
    model = so.load(folder)
    for cells in (CELLS, ["no cash", None], ["no cash", "a card"]):
        series = pandas.Series(cells, dtype=object)
        texts = AS_TEXT if cells is CELLS else [one or "" for one in cells]
        torch.testing.assert_close(model.scores(series), model.scores(texts))
    missing = pandas.DataFrame({"text": pandas.array(["no cash", pandas.NA], dtype="string")})
    torch.testing.assert_close(model.scores(missing), model.scores(["no cash", ""]))


def test_a_separator_that_parts_nothing_is_refused() -> None:
    with pytest.raises(so.UserError, match=r"data\.source\.separator = ''"):
        so.Experiment.of({"data": {"source": {"name": "texts", "separator": ""}, "path": "t.csv"}})


@pytest.mark.parametrize("cells", [["12", "7"], [None, ""], [3.0, 4.0]])
def test_clients_whose_texts_are_numbers_or_empty_have_texts_all_the_same(cells: list[Any]) -> None:
    own, others = {"text": cells, "topic": [0, 1]}, {"text": ["lost card", "no cash"], "topic": [1, 0]}
    for parts in ([own, others], [others, own]):
        data = so.FederatedDataset.from_partitions(parts, label="topic")
        x, at = data.columns["x"], 2 * parts.index(own)
        as_text = [str(int(one)) if isinstance(one, float) else one or "" for one in cells]
        want = hashed_words(as_text, 8192).dense().values
        assert torch.equal(x.take(torch.arange(at, at + 2)), want)


def test_what_is_no_text_is_refused(folder: Path) -> None:
    model = so.load(folder)
    for odd in (b"lost card", np.bytes_(b"lost card"), np.datetime64("2020-01-01")):
        with pytest.raises(so.UserError, match=r"text is .* in row 2, no text|no text; leave"):
            model.predict({"text": ["lost card", odd]})
    with pytest.raises(so.UserError, match=r"row 2: text is .*, no text"):
        model.predict({"text": ["lost card", ["a", "list"]]})
    with pytest.raises(so.UserError, match="give a list of inputs"):
        model.predict([1.0, 2.0])


def test_texts_of_a_data_frame_are_those_of_a_file() -> None:
    frame = {"text": ["lost card", "no cash"] * 4, "topic": ["card", "cash"] * 4}
    train = so.FederatedDataset.from_frame(frame, label="topic")
    test = so.Examples.from_frame(frame, label="topic", like=train)
    assert train.input_columns is not None
    assert train.input_columns.text is not None
    want = hashed_words(["lost card"], train.input_columns.text.width).dense().values[0]
    assert torch.equal(test.inputs["x"].take(torch.tensor([0]))[0], want)
    parts = so.FederatedDataset.from_partitions([frame, frame], label="topic", features="text")
    assert torch.equal(parts.columns["x"].take(torch.tensor([0]))[0], want)
    assert parts.clients == 2
