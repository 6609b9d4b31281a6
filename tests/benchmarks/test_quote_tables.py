"""Below a quoted table stands where its file was made."""

from typing import Any

import pytest

from benchmarks.quote import tables

ABOUT = {"hardware": "a GPU", "versions": {"torch": "2.11"}}


@pytest.mark.parametrize(
    ("made", "said"),
    [
        ({}, "a GPU, torch 2.11"),
        ({"variants": [{}, {}]}, "a GPU, torch 2.11"),
        ({"variants": [{}, {"hardware": "a CPU"}, {}]}, "2 arms on a GPU, torch 2.11; 1 arm on a CPU"),
        ({"points": [{"hardware": "a CPU"}, {}]}, "1 point on a CPU; 1 point on a GPU, torch 2.11"),
        (
            {"runs": [{"hardware": "a CPU", "torch": "2.13"}, {"hardware": "a GPU", "torch": "2.11"}]},
            "1 run on a CPU, torch 2.13; 1 run on a GPU, torch 2.11",
        ),
        ({"points": 4}, "a GPU, torch 2.11"),  # how many there were
    ],
)
def test_all_machines_of_a_file_are_named(
    made: dict[str, Any], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tables, "read", lambda path: {**ABOUT, **made})
    shown = tables.table(("", "P@1"), [["a", "1"]], "results/x.json")
    assert shown.splitlines()[-1] == f"From [`results/x.json`](/results/x.json): {said}."
