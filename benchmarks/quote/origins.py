"""What result files say of where they are from, and which of them leave something out."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from benchmarks.common.paths import ROOT
from benchmarks.quote import tables

SCORES = frozenset({"metrics", "P@1", "R@1", "MAP@10"})
SEEDS = frozenset({"seed", "seeds"})
# A set with its method is a config, too: that of the defaults at the commit.
CONFIGS = frozenset({"config", "configs", "suite", "base", "setting", "settings", "changes", "set"})
CHANGED = "+"  # behind a commit: the tree differed from it


def origins() -> str:
    """The files without a commit, a machine or, where they have scores, a seed or a config."""
    made = {_name(path): _read(path) for path in sorted((ROOT / "results").rglob("*.json"))}
    has = {name: frozenset(_keys(one)) for name, one in made.items()}
    lacking = {
        "no commit": [name for name, one in made.items() if not commits_of(one)],
        "no machine": [name for name in made if "hardware" not in has[name]],
        "a commit with a +": [name for name, one in made.items() if _was_changed(one)],
        "scores, and no seed": [name for name in made if has[name] & SCORES and not has[name] & SEEDS],
        "scores, and no config": [
            name for name in made if has[name] & SCORES and not has[name] & CONFIGS
        ],
    }
    rows = [
        [what, str(len(files)), ", ".join(f"`{name}`" for name in files) or "none"]
        for what, files in lacking.items()
    ]
    return tables.table(("a file with", "how many", "which"), rows)


def commits_of(made: Any) -> set[str]:
    """Of a file as a whole, or of each of its runs."""
    return set(_values(made, "commit"))


def _was_changed(made: Any) -> bool:
    return any(commit.endswith(CHANGED) for commit in commits_of(made))


def _name(path: Path) -> str:
    return str(path.relative_to(ROOT / "results").with_suffix(""))


def _read(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


def _keys(made: Any) -> Iterator[str]:
    """Of all mappings, however deep."""
    if isinstance(made, Mapping):
        yield from made
    for one in _inner(made):
        yield from _keys(one)


def _values(made: Any, key: str) -> Iterator[str]:
    if isinstance(made, Mapping) and key in made:
        yield str(made[key])
    for one in _inner(made):
        yield from _values(one, key)


def _inner(made: Any) -> Iterator[Any]:
    if isinstance(made, Mapping):
        yield from made.values()
    elif isinstance(made, list):
        yield from made
