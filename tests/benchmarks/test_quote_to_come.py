"""Tables of files that are still to come: what stands in their place, and what they will say."""

from pathlib import Path
from typing import Any

import pytest

from benchmarks.papers import known_decoding
from benchmarks.papers.side_by_side import Kept
from benchmarks.papers.suite import Runs
from benchmarks.papers.two_stage import Candidate, TwoStage, refuse_unknown
from benchmarks.quote import dual_encoder, fedalc, fedss, tables
from spreadout.core.errors import UserError

ORIGIN = {"hardware": "a machine", "versions": {"torch": "2"}}


def score(*values: float) -> dict[str, Any]:
    mean = sum(values) / len(values)
    return {"mean": mean, "spread": 0.5 if len(values) > 1 else None, "values": list(values)}


def shown(monkeypatch: pytest.MonkeyPatch, made: dict[str, Any]) -> None:
    for module in (fedss, fedalc, tables):
        monkeypatch.setattr(module, "read", lambda path: {**ORIGIN, **made})


def test_a_file_that_is_missing_is_told_by_its_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tables, "ROOT", tmp_path)
    said = tables.if_there("results/x.json", str.upper, "fedalc --jobs 12")
    assert said == "*Not run yet:* `python -m benchmarks.papers.fedalc --jobs 12`."
    (tmp_path / "results").mkdir()
    (tmp_path / "results" / "x.json").touch()
    assert tables.if_there("results/x.json", str.upper, "fedalc") == "RESULTS/X.JSON"


def test_seeds_are_counted_and_arms_with_fewer_named() -> None:
    whole = {"label": "a", "seeds": [0, 1, 2]}
    assert tables.over_seeds({"seeds": [0, 1, 2], "variants": [whole, {"label": "old"}]}) == (
        "Mean ± deviation over 3 seeds."
    )
    short = {"label": "b", "seeds": [0]}
    assert "(b: 1)." in tables.over_seeds({"seeds": [0, 1, 2], "variants": [whole, short]})
    assert tables.over_seeds({"seeds": [0], "variants": [short]}) == "One seed."
    assert [tables.spread(score(1.0)), tables.spread(score(1.0, 3.0))] == ["1.0", "2.0 ± 0.5"]


def test_a_study_is_compared_with_the_full_softmax_that_is_merged_alike(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def arm(name: str, *values: float) -> dict[str, Any]:
        metrics = {"MAP@10": score(*values), "retrieval R@1": score(*values)}
        moved = {"rows_down": 2048.0 * (name != "centralized"), "participations": 1.0}
        return {"name": name, "label": name, "metrics": metrics, "bytes": moved, "fit": {"P@1": 90.0}}

    arms = [
        arm("fedss-10-sum", 45.0, 30.0),
        arm("full-sum", 50.0, 30.0),
        arm("fedss-10-mean", 45.0, 30.0),
        arm("full-mean", 45.0, 60.0),
        arm("centralized", 70.0, 70.0),
    ]
    config = {"clients": {"row_lr": 0.3}, "rounds": 900}
    made = {"seeds": [0, 1], "variants": arms, "configs": {one["name"]: config for one in arms}}
    shown(monkeypatch, made)
    lines = fedss.studied("x.json").splitlines()[2:7]
    shares = [line.split(" | ")[3] for line in lines]
    assert shares == ["90.0 … 100.0 %", "100.0 %", "50.0 … 100.0 %", "100.0 %", "–"]
    assert lines[0].endswith("| 90.0 | 2.0 | 0.3 | 900 |")
    assert "| – | 0.3 |" in lines[-1]


def test_settings_one_at_a_time_show_the_two_nearest_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    metrics = {f"P@{k}": score(40.0) for k in (1, 3, 5)}
    arm = {"name": "a", "label": "λ = 1", "metrics": metrics, "geometry": {"max_cosine": 0.941}}
    shown(monkeypatch, {"seeds": [0], "variants": [arm]})
    assert "| λ = 1 | 40.0 | 40.0 | 40.0 | 0.94 |" in fedalc.knobs("x.json")


def test_errors_by_users_stand_behind_recalls() -> None:
    arm = {"metrics": {"R@1": score(1.0, 3.0)}, "user_errors": {"R@1": 0.071}}
    assert dual_encoder._with_error(arm, "R@1") == "2.00 ± 0.50 (0.07)"
    assert dual_encoder._with_error({"metrics": arm["metrics"]}, "R@1") == "2.00 ± 0.50"


def test_votes_are_chosen_on_the_first_seeds_validation_instances(tmp_path: Path) -> None:
    arm: dict[str, Any] = {"method": {"name": "fedaws", "spreadout_form": "topk", "k": 5}}
    suite = known_decoding.suite_of("bibtex", {"fedaws-mined": arm}, 2)
    fractions = {name: e.data.validation_fraction for name, e in suite.variants.items()}
    assert fractions == {"fedaws-mined-whole": 0.0, "fedaws-mined-part": 0.2}
    kept, points = Kept(tmp_path, suite.name), {"5 1.0": 1.0, "20 3.0": 2.0}

    def scored(value: float) -> dict[str, float]:
        return dict.fromkeys(known_decoding.METRICS, value)

    jobs = [job for name in suite.variants for job in Runs(suite).of_variant(name)]
    for number, job in enumerate(jobs):
        more: dict[str, Any] = {"test": scored(50.0)}
        more["voted"] = {point: scored(60.0 + number - 10 * value) for point, value in points.items()}
        if job.variant.endswith("part"):
            better = points if job.experiment.seed == 0 else {"5 1.0": 9.0, "20 3.0": 0.0}
            more |= {"validation": scored(1.0), "tried": {p: scored(v) for p, v in better.items()}}
        assert known_decoding.studied("fedaws-mined", suite, kept) is None  # until all are there
        kept.add(job, {"summary": {"seconds": 1.0}, "history": [{"round": 1}], "more": more})
    found = known_decoding.studied("fedaws-mined", suite, kept)
    assert found is not None
    assert found["chosen"] == {"neighbours": 20, "own": 3.0, "of": 2}  # though worse on the test part
    assert found["metrics"]["training examples vote"]["P@1"]["values"] == [40.0, 41.0]
    assert found["metrics"]["a fifth held out, it votes"]["P@1"]["values"] == [42.0, 43.0]


def test_an_arm_that_nobody_has_is_refused() -> None:
    plan = TwoStage("x", Path("a/base.toml"), {"fedaws": Candidate("FedAwS", {})})
    refuse_unknown(["fedaws"], [plan])
    with pytest.raises(UserError, match="--only fedavs: no such arm"):
        refuse_unknown(["fedaws", "fedavs"], [plan])
