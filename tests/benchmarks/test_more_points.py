"""More points for arms that are in a file already: who chooses the same again is not run again."""

import argparse
import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.papers import correlations
from benchmarks.papers.side_by_side import Kept, config_of
from benchmarks.papers.two_stage import Candidate, TwoStage, done_before
from spreadout.core.errors import UserError

BASE = correlations.base_of("bibtex", linear=True)


def plan(done: dict[str, Any]) -> TwoStage:
    arms = {
        name: Candidate(name, {"method": {"name": "fedaws"}}, {"method.strength": [0.1, 1.0]})
        for name in ("a", "b")
    }
    return TwoStage("study", BASE, arms, seeds=2, whole=True, into=True, done=done)


def tried(folder: Path, of: TwoStage, best: dict[str, str]) -> Kept:
    """All points, with the best of each arm."""
    kept = Kept(folder, of.suite)
    for one in of.points:
        score = {f"P@{k}": 50.0 + (one.name == best[one.arm]) for k in (1, 3, 5)}
        summary = {
            "rounds": 40,
            "metrics": score,
            "best": {"round": 40, **score},
            "best_by": list(score),
        }
        kept.add(one.job, {"summary": {**summary, "seconds": 1.0}, "history": [{"round": 40}]})
    return kept


def test_an_arm_that_chooses_what_it_had_is_not_run_again(tmp_path: Path) -> None:
    first = plan({})
    before = first.final(first.chosen(tried(tmp_path / "one", first, {"a": "0.1", "b": "0.1"}))).variants
    again = plan({arm: config_of(one) for arm, one in before.items()})
    kept = tried(tmp_path / "two", again, {"a": "0.1", "b": "1.0"})
    assert list(again.final(again.chosen(kept)).variants) == ["b"]
    assert {job.arm for job in again.jobs(kept) if job.variant in ("a", "b")} == {"b"}


def test_what_was_made_with_fewer_seeds_is_made_again(tmp_path: Path) -> None:
    path = tmp_path / "study.json"
    rows = [{"name": "a", "seeds": [0, 1]}, {"name": "b", "seeds": [0]}]
    path.write_text(json.dumps({"seeds": [0, 1], "variants": rows, "configs": {"a": {}, "b": {}}}))

    def found(extend: bool, seeds: int) -> list[str]:
        return list(done_before(path, argparse.Namespace(extend=extend, seeds=seeds)))

    assert (found(True, 2), found(True, 3), found(False, 2)) == (["a"], [], [])
    assert done_before(tmp_path / "none.json", argparse.Namespace(extend=True, seeds=2)) == {}


@pytest.mark.parametrize("points", [1, 3, 5, 7])
def test_more_strengths_reach_beyond_both_ends(points: int) -> None:
    found = correlations.around(correlations.PLAIN, points)
    assert (len(found), found[points // 2]) == (points, 0.1)
    for name in ("bibtex", "delicious"):
        arms = correlations.arms(tuple(correlations.PUSHED), points, name=name)
        assert {len(one.points()) for one in arms.values()} == {points}


def test_a_file_that_is_no_file_of_results_is_said(tmp_path: Path) -> None:
    (tmp_path / "study.json").write_text("[")
    with pytest.raises(UserError, match="is no file of results"):
        done_before(tmp_path / "study.json", argparse.Namespace(extend=True, seeds=2))
