"""Texts of few words: one that is seen once is not to move as far as one of every tenth text."""

import random
from pathlib import Path

import pytest

import spreadout as so
from spreadout.config import sound
from spreadout.config.rates import RARE_WORDS


def few_words(place: Path, texts: int = 240, topics: int = 6) -> Path:
    """Two words of a topic's own thirty, and four that hardly any other text has."""
    draw = random.Random(0)
    lines = ["text,label"]
    for _ in range(texts):
        topic = draw.randrange(topics)
        own = (f"own{topic}x{draw.randrange(30)}" for _ in range(2))
        rare = (f"any{draw.randrange(2000)}" for _ in range(4))
        lines.append(f"{' '.join((*own, *rare))},topic{topic}")
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


def test_texts_of_few_words_are_told_better(tmp_path: Path) -> None:
    short, gained = ("rounds=60", "data.source.width=2048"), 0.0
    for seed in (0, 1):
        now, before = (
            so.run(asked(few_words(tmp_path), "fedaws", *short, f"seed={seed}", *change), device="cpu")
            for change in ((), ("server.eps=1e-8",))
        )
        gained += now.metrics["P@1"] - before.metrics["P@1"]
    assert gained > 8


@pytest.mark.parametrize(
    ("method", "changes", "epsilon"),
    [
        ("fedaws", (), RARE_WORDS),
        ("fedalc", (), RARE_WORDS),
        ("fedss", (), RARE_WORDS),
        ("fedaws", ("clients.lr=0.02",), RARE_WORDS / 5),  # as much smaller as what it is beside
        ("fedss", ("clients.lr=0.02",), RARE_WORDS * 2),
        ("fedaws", ("server.eps=1e-6",), 1e-6),
        ("fedaws", ("model.encoder=lookup",), 1e-8),  # not tried
        ("fedaws", ("data.source.width=250",), 1e-8),  # so few that none is rare
        ("fedmlh", (), 1e-8),
    ],
)
def test_where_words_are_many_and_rare_they_move_by_how_often_they_are_seen(
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
    asked_of_many = asked(many, "fedaws", "clients.per_round=220")
    assert sound.prepared(asked_of_many)[0].server.eps == 1e-8
