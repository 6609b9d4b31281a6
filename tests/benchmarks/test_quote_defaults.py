"""Tables of what the defaults reach: references are means over seeds, each seed alike."""

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.quote import defaults, tables


def run(method: str, seed: int, score: float, ridge: float) -> dict[str, Any]:
    references = {"most frequent": {"P@1": 10.0}, "ridge": {"P@1": ridge, "P@3": 1.0}}
    return {
        "set": "toy", "method": method, "seed": seed, "metrics": {"P@1": score}, "references": references,
        "hardware": "a machine", "torch": "1",
    }  # fmt: skip


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    runs = [
        run("centralized", 0, 50.0, 60.0),  # seed 0 was run more often than seed 1
        run("fedaws", 0, 62.6, 60.0),
        run("fedaws", 1, 62.6, 80.0),
        run("fedmlh", 0, 20.0, 30.0),  # whose references had instances without labels
    ]
    made = {"runs": runs, "hardware": "a machine", "commit": "0", "versions": {"torch": "1"}}
    (tmp_path / "table.json").write_text(json.dumps(made))
    monkeypatch.setattr(tables, "ROOT", tmp_path)
    return "table.json"


def test_references_are_means_over_seeds(path: str) -> None:
    assert "| toy | 10.0 | | 70.0 |" in defaults.reached(path)


def test_a_share_just_below_ninety_is_not_shown_as_ninety(path: str) -> None:
    (row,) = (line for line in defaults.shares(path).splitlines() if line.startswith("| toy"))
    assert row == "| toy | ridge | 70.0 | 89.4 % | | |"


def test_logs_are_shown_by_prior_and_runs_below_popularity_are_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def one(seed: int, score: float, popular: float, *changes: str) -> dict[str, Any]:
        known = {"popularity": popular, "successor": 1.0, "item-kNN": 2.0}
        return {
            "set": "log", "method": "dual_encoder", "seed": seed, "changes": list(changes),
            "metrics": {"R@10": score}, "references": {name: {"R@10": of} for name, of in known.items()},
            "hardware": "a machine", "torch": "1",
        }  # fmt: skip

    runs = [one(0, 29.0, 30.0, "method.prior=0"), one(0, 30.0, 30.0), one(1, 33.0, 32.0)]
    made = {"runs": runs, "hardware": "a machine", "commit": "0", "versions": {"torch": "1"}}
    (tmp_path / "logs.json").write_text(json.dumps(made))
    monkeypatch.setattr(tables, "ROOT", tmp_path)
    lines = defaults.popularity("logs.json").splitlines()
    assert lines[2:4] == [
        "| log | 31.0 | 1.0 | 2.0 | (29.0) | 31.5 | |",
        "| runs below popularity | | | | 1 of 1, 1.0 | 0 of 2 | |",
    ]
