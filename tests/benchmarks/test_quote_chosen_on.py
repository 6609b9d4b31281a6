"""The table of what the defaults were compared on: sets, rows, seeds and methods, by the files' own word."""

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.quote import chosen_on, tables
from benchmarks.quote.chosen_on import COMPARISONS, ROWS, Comparison


def _made(folder: Path, name: str, made: dict[str, Any]) -> None:
    (folder / "results" / "defaults").mkdir(parents=True, exist_ok=True)
    (folder / "results" / "defaults" / f"{name}.json").write_text(json.dumps(made))


def _run(name: str, seed: int, **more: Any) -> dict[str, Any]:
    return {"set": name, "seed": seed, "method": "fedss", **more}


def _cells(*comparisons: Comparison) -> list[list[str]]:
    lines = chosen_on.compared(comparisons).splitlines()[2:]
    return [[cell.strip() for cell in line.split("|")[3:-1]] for line in lines]


def test_rows_seeds_and_sets_are_those_of_the_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tables, "ROOT", tmp_path)
    held = [_run("b", 0, split="validation"), _run("a", 0, split="validation")]
    _made(tmp_path, "held", {"runs": [*held, _run("a", 1, split="validation")]})
    _made(tmp_path, "tested", {"runs": [_run(f"set-{i}", 0) for i in range(7)]})
    _made(tmp_path, "trust-rules", {"sets": ["a"], "seeds": [0, 1], "rules": [{"method": "fedaws"}]})
    comparisons = [Comparison("x", name) for name in ("held", "tested", "trust-rules")]
    held_cells, tested, judged = _cells(*comparisons)
    assert held_cells == ["a, b", "validation rows", "1 or 2", "`fedss`", ""]
    assert tested == ["7", "test rows", "1", "`fedss`", ""]  # too many to name
    assert judged == ["a", ROWS["trust-rules"], "2", "`fedaws`", ""]
    (only,) = _cells(Comparison("x", "held", "a note", only="b"))
    assert only == ["b", "validation rows", "1", "`fedss`", "a note"]


def test_what_was_looked_at_on_test_rows_chose_nothing() -> None:
    told = {one.file: rows for one, rows in zip(COMPARISONS, _cells(*COMPARISONS), strict=True)}
    tested = {file for file, cells in told.items() if "test rows" in cells[1]}
    assert tested == {"fresh-tables", "popularity", "seldom-fresh", "rare-words-fresh"}
    assert "looked at once" in next(one.rule for one in COMPARISONS if one.file == "fresh-tables")
