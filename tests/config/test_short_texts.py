"""Texts of few words: one that is seen once is not to move as far as one of every tenth text."""

import random
from pathlib import Path

import pytest

import spreadout as so
from spreadout.config import sound
from spreadout.config.rates import RARE_WORDS


def few_words(place: Path, texts: int = 400, topics: int = 6) -> Path:
    """Three to six words each: of a topic's own thirty, or of two hundred that all share."""
    draw = random.Random(0)
    lines = ["text,label"]
    for _ in range(texts):
        topic = draw.randrange(topics)
        words = (
            f"own{topic}x{draw.randrange(30)}" if draw.random() < 0.6 else f"any{draw.randrange(200)}"
            for _ in range(draw.randint(3, 6))
        )
        lines.append(f"{' '.join(words)},topic{topic}")
    path = place / "texts.csv"
    path.write_text("\n".join(lines))
    return path


def asked(path: Path, method: str, *changes: str) -> so.Experiment:
    values = {
        "data": {"source": {"name": "texts", "text": "text", "label": "label"}, "path": str(path)},
        "method": {"name": method},
        "eval": {"references": False},
    }
    return so.Experiment.of(values, overrides=changes)


@pytest.mark.parametrize("method", ["fedaws", "fedss"])
def test_texts_of_few_words_are_told_better(method: str, tmp_path: Path) -> None:
    path = few_words(tmp_path)
    scores = [
        so.run(asked(path, method, "rounds=100", *change), device="cpu", progress=False).metrics["P@1"]
        for change in ((), ("server.eps=1e-8",))
    ]
    assert scores[0] > scores[1] + 2


@pytest.mark.parametrize(
    ("method", "changes", "epsilon"),
    [
        ("fedaws", (), RARE_WORDS),
        ("fedalc", (), RARE_WORDS),
        ("fedss", (), RARE_WORDS),
        ("fedaws", ("clients.lr=0.02",), RARE_WORDS / 5),  # as much smaller as what it is beside
        ("fedss", ("clients.lr=0.02",), RARE_WORDS * 2),
        ("fedaws", ("server.eps=1e-6",), 1e-6),
        ("fedaws", ("model.encoder=mlp",), 1e-8),
        ("fedmlh", (), 1e-8),
    ],
)
def test_only_words_that_are_looked_up_move_by_how_often_they_are_seen(
    method: str, changes: tuple[str, ...], epsilon: float, tmp_path: Path
) -> None:
    complete, _ = sound.prepared(asked(few_words(tmp_path), method, *changes))
    assert complete.server.eps == pytest.approx(epsilon)


def test_many_clients_and_label_sets_were_not_tried(tmp_path: Path) -> None:
    sets = tmp_path / "sets.csv"
    lines = few_words(tmp_path).read_text().replace("topic5", "topic5;topic0")
    sets.write_text(lines)
    one = asked(sets, "fedaws").model_dump(exclude_unset=True)
    one["data"]["source"]["separator"] = ";"
    assert sound.prepared(so.Experiment.of(one))[0].server.eps == 1e-8
    many = few_words(tmp_path, texts=3000, topics=250)
    assert sound.prepared(asked(many, "fedaws"))[0].server.eps == 1e-8
