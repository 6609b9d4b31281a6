"""FedALC's tables: what was chosen for an arm, how labels meet, λ beside each other."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.papers import fedalc as arms
from benchmarks.papers.label_sets import statistics_of
from benchmarks.quote import fedalc


def test_what_was_chosen_is_said_without_the_rounds() -> None:
    config = {
        "rounds": 40,
        "model": {"hidden": [128]},
        "method": {"name": "centralized-sets"},
        "clients": {"lr": 0.003, "input_dropout": 0.2, "row_lr": 0.1},
        "server": {"lr": 1.0},
    }
    said = dict(fedalc.chosen_of("oracle-bce-deep", config, linear=True))
    assert said == {"lr": 0.003, "input_dropout": 0.2}


def test_models_in_one_place_have_at_least_as_many_points_as_federated_arms() -> None:
    found = arms.fewer(arms.linear_arms_of("bibtex"), 3)
    tried = {name: len(one.points()) for name, one in found.items()}
    federated = {count for name, count in tried.items() if name not in arms.DEEP}
    assert len(federated) == 1
    assert min(tried[name] for name in arms.DEEP) >= min(federated)


def test_a_partner_that_is_always_there_is_the_firmest() -> None:
    sizes, label = np.full(20, 2), np.tile([0, 1], 20)
    found = statistics_of(sizes, label, classes=3)
    assert found["firmest partner, median"] == 1
    assert found["a meeting pair beside chance, median"] == pytest.approx(1)  # all instances have both
    assert found["distinct label sets"] == pytest.approx(1 / 20)
    alone = statistics_of(np.r_[sizes, np.ones(20, int)], np.r_[label, np.full(20, 2)], classes=3)
    assert alone["a meeting pair beside chance, median"] == pytest.approx(2)
    assert alone["instances with fewer than 3 labels"] == 1


def test_strengths_stand_by_weighting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def point(name: str, score: float) -> dict[str, Any]:
        return {"arm": "one", "point": name, **{f"P@{k}": score for k in (1, 3, 5)}}

    made: dict[str, dict[str, Any]] = {
        "points.json": {"points": [point("0.1-uniform", 10.0), point("0.1-examples", 20.0)]},
        "rows.json": {"variants": [{"name": "one", "label": "One"}]},
    }
    for file in made.values():
        file |= {"hardware": "a machine", "versions": {"torch": "2"}}
    monkeypatch.setattr(fedalc, "read", lambda path: made[path])
    monkeypatch.setattr(fedalc, "table", lambda head, rows, path, note: json.dumps(rows))
    assert json.loads(fedalc.strengths("points.json", "rows.json", ("one",))) == [
        ["One, λ = 0.1", "10.0 / 10.0 / 10.0", "20.0 / 20.0 / 20.0"]
    ]
