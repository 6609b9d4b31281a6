"""Tables of files that are still to come: what stands in their place, and what they will say."""

from pathlib import Path
from typing import Any

import pytest

from benchmarks.papers import known_decoding
from benchmarks.papers.side_by_side import Kept
from benchmarks.papers.suite import Runs
from benchmarks.papers.two_stage import Candidate, TwoStage, refuse_unknown
from benchmarks.quote import dual_encoder, edges, fedalc, fedss, tables
from spreadout.core.errors import UserError

ORIGIN = {"hardware": "a machine", "versions": {"torch": "2"}}


def score(*values: float) -> dict[str, Any]:
    mean = sum(values) / len(values)
    return {"mean": mean, "spread": 0.5 if len(values) > 1 else None, "values": list(values)}


def shown(monkeypatch: pytest.MonkeyPatch, made: dict[str, Any]) -> None:
    for module in (fedss, fedalc, tables):
        monkeypatch.setattr(module, "read", lambda path: {**ORIGIN, **made})


def test_what_was_not_run_is_one_line_with_commands_and_minutes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tables, "ROOT", tmp_path)
    plans = [tables.Planned(name, f"{name}.json", f"fedss {name}", 4) for name in ("one", "two")]
    (tmp_path / "one.json").touch()
    assert tables.not_run(plans) == [
        "Not run, with what it would take of an H200: two (`python -m benchmarks.papers.fedss two`, "
        "about 4 minutes)."
    ]
    (tmp_path / "two.json").touch()
    assert tables.not_run(plans) == []


def test_rounds_and_bytes_until_a_score_is_reached(monkeypatch: pytest.MonkeyPatch) -> None:
    each = {"down": 2.0**29, "up": 2.0**29}
    curve = {"round": [0, 100, 200], "MAP@10": [0.0, 35.0, 45.0]}
    arm = {"name": "a", "label": "an arm", "curve": curve, "bytes_per_client_round": each}
    central = {**arm, "label": "in one place", "bytes_per_client_round": {"down": 0.0, "up": 0.0}}
    method = {"name": "fedss", "merge": "sum"}
    configs = {"a": {"clients": {"per_round": 2}, "method": method}}
    shown(monkeypatch, {"variants": [arm, central], "configs": configs})
    lines = fedss.by_bytes("x.json").splitlines()
    # 30 after 6/7 of the first hundred rounds, 40 half way through the second; two clients, 1 GiB each.
    assert lines[2] == "| an arm | 86 | 150 | – | 171.43 | 300.00 | – |"
    assert "in one place" not in lines[3]
    assert "Sampled rows are merged by the paper's literal sum." in lines[-1]


def test_one_merge_is_told_and_several_are_left_to_the_labels() -> None:
    methods = {
        "ours": {"name": "fedss", "merge": "weighted-mean"},
        "spread": {"name": "fedaws-softmax", "merge": "weighted-mean"},
        "full": {"name": "fedavg", "merge": "weighted-mean"},  # where it makes no difference
    }
    made = {
        "variants": [{"name": name} for name in methods],
        "configs": {name: {"method": method} for name, method in methods.items()},
    }
    assert fedss.merges_of(made) == "Sampled rows are merged by the mean over a row's holders (ours)."
    methods["spread"]["merge"] = "sum"
    assert fedss.merges_of(made) == ""


def test_seeds_are_counted_and_arms_with_fewer_named() -> None:
    whole = {"label": "a", "seeds": [0, 1, 2]}
    assert tables.over_seeds({"seeds": [0, 1, 2], "variants": [whole, {"label": "old"}]}) == (
        "Mean ± deviation over 3 seeds."
    )
    short = {"label": "b", "seeds": [0]}
    assert "(b: 1)." in tables.over_seeds({"seeds": [0, 1, 2], "variants": [whole, short]})
    assert tables.over_seeds({"seeds": [0], "variants": [short]}) == "One seed."
    assert tables.over_seeds({"seeds": [0, 1, 2], "variants": [short]}) == "One seed."  # so far
    cut = {**short, "cut_short": [0]}
    assert tables.over_seeds({"seeds": [0], "variants": [cut, {"label": "c", "seeds": [0]}]}) == (
        "One seed. At their best round when time ended them: b."
    )
    assert [tables.spread(score(1.0)), tables.spread(score(1.0, 3.0))] == ["1.0", "2.0 ± 0.5"]


def test_a_study_is_compared_with_its_full_softmax_seed_by_seed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def arm(name: str, *values: float) -> dict[str, Any]:
        metrics = {"MAP@10": score(*values), "retrieval R@1": score(*values)}
        moved = {"rows_down": 2048.0 * (name != "centralized"), "participations": 1.0}
        return {"name": name, "label": name, "metrics": metrics, "bytes": moved, "fit": {"P@1": 90.0}}

    arms = [
        arm("fedss-10-sum", 45.0, 30.0),
        arm("full", 50.0, 30.0),
        arm("fedss-10-mean", 40.0, 15.0),
        arm("centralized", 70.0, 70.0),
    ]
    config = {"clients": {"row_lr": 0.3}, "rounds": 900}
    made = {"seeds": [0, 1], "variants": arms, "configs": {one["name"]: config for one in arms}}
    shown(monkeypatch, made)
    lines = fedss.studied("x.json").splitlines()[2:6]
    shares = [line.split(" | ")[3] for line in lines]
    assert shares == ["90.0 … 100.0 %", "100.0 %", "50.0 … 80.0 %", "140.0 … 233.3 %"]
    assert lines[0].endswith("| 90.0 | 2.0 | 0.3 | 900 |")
    assert "| – | 0.3 |" in lines[-1]
    shown(monkeypatch, {**made, "variants": arms[:1]})
    assert fedss.studied("x.json").splitlines()[2].split(" | ")[3] == "–"  # nothing to compare it with


def test_settings_one_at_a_time_show_the_two_nearest_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    metrics = {f"P@{k}": score(40.0) for k in (1, 3, 5)}
    arm = {"name": "a", "label": "λ = 1", "metrics": metrics, "geometry": {"max_cosine": 0.941}}
    shown(monkeypatch, {"seeds": [0], "variants": [arm]})
    assert "| λ = 1 | 40.0 | 40.0 | 40.0 | 0.94 |" in fedalc.knobs("x.json")


def test_errors_by_users_stand_behind_recalls() -> None:
    arm = {"metrics": {"R@1": score(1.0, 3.0)}, "user_errors": {"R@1": 0.071}}
    assert dual_encoder._with_error(arm, "R@1") == "2.00 ± 0.50 (0.07)"
    assert dual_encoder._with_error({"metrics": arm["metrics"]}, "R@1") == "2.00 ± 0.50"


def test_while_an_arm_is_missing_the_file_beside_it_is_quoted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tables, "ROOT", tmp_path)
    assert tables.latest("x.json") == "x.json"  # neither: the one that is asked for is named
    (tmp_path / "x-so-far.json").touch()
    assert tables.latest("x.json") == "x-so-far.json"
    (tmp_path / "x.json").touch()
    assert tables.latest("x.json") == "x.json"


def _tower(label: str, *values: float, **more: Any) -> dict[str, Any]:
    names = (*dual_encoder.RECALLS, *dual_encoder.OTHERS)
    return {
        "name": label.lower(),
        "label": label,
        "seeds": list(range(len(values))),
        "metrics": {name: score(*values) for name in names},
        "bytes_per_client_round": {"down": 2048.0, "up": 1024.0},
        "references": {"item-kNN": {name: {"mean": 2.5} for name in dual_encoder.RECALLS}},
        **more,
    }


def test_a_loss_without_a_test_run_has_no_recalls_and_the_history_may_be_left_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    unseen = dict.fromkeys(dual_encoder.RECALLS, 4.0)
    config = {"data": {"source": {"name": "movielens-1m", "ties": "random"}}}
    arms = [_tower("BS", 1.0, 3.0, unseen=unseen)]
    made = {**ORIGIN, "seeds": [0, 1], "variants": arms, "configs": {"bs": config}}
    for module in (dual_encoder, tables):
        monkeypatch.setattr(module, "read", lambda path: made)
    lines = dual_encoder.retrieval("x.json").splitlines()
    cells = [[cell.strip() for cell in line.split("|")[1:]] for line in lines]
    at, named = cells[0].index("without the history"), {row[0]: row for row in cells if row}
    assert named["BS"][at] == "4.00 / 4.00 / 4.00"
    assert named["*item-kNN*"][at] == "2.50 / 2.50 / 2.50"  # leaves the history out itself
    assert named["GS"][1:4] == ["–", "–", "–"]
    assert "at random" in lines[-1]
    del config["data"]["source"]["ties"]  # as older files are
    assert "the easier task" in dual_encoder.retrieval("x.json").splitlines()[-1]


def test_points_are_counted_and_the_best_is_by_all_recalls(monkeypatch: pytest.MonkeyPatch) -> None:
    recalls = (("8.0-1000", 1.0, 5.0, 9.0), ("20.0-3000", 0.9, 5.2, 9.3))
    tried = [
        {"arm": "gs", "point": point, **dict(zip(dual_encoder.RECALLS, three, strict=True))}
        for point, *three in recalls
    ]
    tuning, tested = {"points": tried}, {"variants": [_tower("BS", 1.0, 3.0)]}
    files = {"t.json": {**ORIGIN, **tuning}, "x.json": {**ORIGIN, **tested}}
    for module in (dual_encoder, edges, tables):
        monkeypatch.setattr(module, "read", files.__getitem__)
    lines = dual_encoder.chosen("table2", "t.json", "x.json").splitlines()
    (gs,) = (line for line in lines if line.startswith("| GS"))
    assert "| 2 of 6 | `clients.lr` 20, `rounds` 3000 | 0.90 / 5.20 / 9.30 | – |" in gs
    (bs,) = (line for line in lines if line.startswith("| BS |"))
    assert "| 0 of 6 | | – |" in bs


def test_points_without_a_test_stand_beside_references_on_the_same_examples(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scores = dict.fromkeys((*dual_encoder.RECALLS, *dual_encoder.OTHERS), 1.0)
    points = [
        {**scores, "arm": arm, "point": point, "R@1": best}
        for arm, point, best in (
            ("bs", "0.1-300", 1.5),
            ("bs", "0.1-900", 1.75),
            ("gs", "0.01-300", 2.0),
        )
    ]
    part = {"item-kNN": {**scores, "R@1": 2.5}}
    errors = {"these": {"item-kNN": {"R@1": 0.071}}}
    known = {"references": {"these": part}, "user_errors": errors}
    tuning = {**ORIGIN, "points": points}
    files = {"t.json": tuning, dual_encoder.REFERENCES: {**ORIGIN, **known}}
    for module in (dual_encoder, tables):
        monkeypatch.setattr(module, "read", files.__getitem__)
    lines = dual_encoder.tried("these", ("centralized", "t.json")).splitlines()
    assert lines[2].startswith("| BS | `clients.lr` 0.1, `rounds` 300 | 1.50 | 1.00 |")
    assert lines[3].startswith("| BS | `clients.lr` 0.1, `rounds` 900 | **1.75** | **1.00** |")
    assert lines[5].startswith("| *item-kNN* | | 2.50 (0.07) | 1.00 |")
    assert "Points so far: BS: 2 of 4; GS: 1 of 4." in lines[-1]
    files["x.json"] = {
        **ORIGIN,
        "seeds": [0],
        "variants": [_tower("FedAvg", 1.0)],
        "configs": {"a": {"data": {"source": "movielens-1m"}}},
    }
    rows = dual_encoder.retrieval("x.json", in_one_place="t.json").splitlines()
    (beside,) = (row for row in rows if "all data in one place" in row)
    assert beside.split(" | ")[1:3] == ["1.75", "1.00"]  # the best of batch softmax, not of all arms


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
