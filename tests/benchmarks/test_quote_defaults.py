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
