"""Result files that do not say where they are from are named."""

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.quote import origins


def _rows(folder: Path, monkeypatch: pytest.MonkeyPatch, **files: Any) -> dict[str, str]:
    for name, made in files.items():
        (folder / "results").mkdir(exist_ok=True)
        (folder / "results" / f"{name}.json").write_text(json.dumps(made))
    monkeypatch.setattr(origins, "ROOT", folder)
    lines = origins.origins().splitlines()[2:]
    cells = [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines]
    return {what: f"{count}: {which}" for what, count, which in cells}


def test_what_a_file_leaves_out_is_told_by_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = {"commit": "ab", "hardware": "a machine", "seeds": [0], "suite": "x.toml"}
    by_run = {"runs": [{"commit": "ab", "hardware": "a machine", "seed": 0, "changes": []}]}
    changed = {**whole, "commit": "ab+"}
    took, scored = {"commit": "ab", "hardware": "a machine", "ms": 3}, {"P@1": 50.0}
    files = {"whole": whole, "by_run": by_run, "changed": changed, "took": took, "scored": scored}
    said = _rows(tmp_path, monkeypatch, **files)
    assert said["no commit"] == said["no machine"] == "1: `scored`"
    assert said["scores, and no seed"] == said["scores, and no config"] == "1: `scored`"
    assert said["a commit with a +"] == "1: `changed`"


def test_every_result_file_names_its_commit_and_its_machine() -> None:
    lines = origins.origins().splitlines()
    for what in ("no commit", "no machine"):
        assert f"| {what} | 0 | none |" in lines
