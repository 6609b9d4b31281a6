"""Runs side by side: kept one by one, gone on with, and none begun that would not end in time."""

import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from benchmarks.common.record import read
from benchmarks.papers import side_by_side
from benchmarks.papers.side_by_side import Job, Kept, Running, run_plans
from benchmarks.papers.suite import Runs, ended, keep
from benchmarks.papers.two_stage import Candidate, TwoStage, choose_and_run, tried_points
from benchmarks.quote.fedmlh import chosen_round
from spreadout.config.experiment import Experiment
from spreadout.runs.compare import Suite
from spreadout.runs.result import Result

BASE = """
rounds = 4
chosen = []
data = { source = "digits" }
clients = { local_steps = 1, lr = 0.1 }
eval = { every = 2, references = false }
method = { name = "baseline-1" }
"""


def suite_of(rounds: int = 2, seeds: int = 2, **variants: float) -> Suite:
    made = {
        name: Experiment.of(
            {
                "name": name,
                "rounds": rounds,
                "chosen": [],
                "data": {"source": "digits"},
                "clients": {"local_steps": 1, "lr": lr},
                "eval": {"every": rounds, "references": False},
            }
        )
        for name, lr in variants.items()
    }
    return Suite("some", tuple(range(seeds)), made, {name: name for name in made})


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the runs that were made, in their order."""
    names: list[str] = []
    plain = side_by_side._made

    def noted(job: Job, running: Running) -> Any:
        names.append(job.name)
        return plain(job, running)

    monkeypatch.setattr(side_by_side, "_made", noted)
    return names


def now(folder: Path, seconds: float = float("inf")) -> Running:
    return Running(folder, "cpu", seconds=seconds, begun=time.time())


def test_a_run_that_is_kept_is_not_made_again_unless_its_config_changed(
    tmp_path: Path, made: list[str]
) -> None:
    suite = suite_of(a=0.1, b=0.2)
    (first,) = run_plans([Runs(suite)], now(tmp_path))
    assert made == ["some a 0", "some b 0", "some a 1", "some b 1"]  # first seeds first
    assert not list(tmp_path.rglob("seed-*"))  # folders of finished runs are gone
    (again,) = run_plans([Runs(suite)], now(tmp_path))
    assert len(made) == 4
    assert again.runs == first.runs
    run_plans([Runs(suite_of(a=0.1, b=0.3))], now(tmp_path))
    assert made[4:] == ["some b 0", "some b 1"]


def test_the_file_of_runs_survives_a_line_cut_in_half(tmp_path: Path, made: list[str]) -> None:
    suite = suite_of(a=0.1)
    (kept,) = run_plans([Runs(suite)], now(tmp_path))
    whole = kept.path.read_text(encoding="utf-8")
    kept.path.write_text(whole[:-30], encoding="utf-8")
    run_plans([Runs(suite)], now(tmp_path))
    assert made == ["some a 0", "some a 1", "some a 1"]
    assert len(Kept(tmp_path, "some").runs) == 2


def test_a_run_that_is_cut_short_goes_on_where_it_was(
    tmp_path: Path, made: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    suite = suite_of(rounds=6, seeds=1, a=0.1)
    (whole,) = run_plans([Runs(suite)], now(tmp_path / "whole"))
    made.clear()
    monkeypatch.setattr(Running, "end", property(lambda self: self.begun + (-1e6 if made else 1e6)))
    run_plans([Runs(suite)], now(tmp_path))  # over as soon as the first round is
    assert not Kept(tmp_path, "some").runs
    (folder,) = tmp_path.glob("some/a/seed-0")
    monkeypatch.setattr(Running, "end", property(lambda self: self.begun + self.seconds))
    (kept,) = run_plans([Runs(suite)], now(tmp_path))
    assert not folder.exists()
    ours, theirs = ([record["P@1"] for record in one.runs["a 0"]["history"]] for one in (kept, whole))
    assert ours == theirs


def test_no_run_is_begun_that_would_not_end_in_time(tmp_path: Path, made: list[str]) -> None:
    suite = suite_of(a=0.1, b=0.1)
    run_plans([Runs(suite)], now(tmp_path, seconds=0.0))
    assert made == []
    kept = Kept(tmp_path, "some")
    job = Runs(suite).of_variant("a")[0]
    summary = {"seconds": 300.0}
    kept.add(job, {"summary": summary, "history": [{"round": 2}]})
    assert kept.seconds(job) == side_by_side.START + 300
    run_plans([Runs(suite)], Running(tmp_path, "cpu", seconds=400.0, begun=time.time() - 200))
    assert made == []  # 200 s are left, and each of the others takes 320
    run_plans([Runs(suite)], Running(tmp_path, "cpu", seconds=310.0, begun=time.time() - 200))
    assert len(made) == 3  # longer than all the time there is: in parts, then


def test_how_long_a_run_takes_is_told_by_its_own_arm_and_where_that_ended(tmp_path: Path) -> None:
    suite = suite_of(rounds=100, a=0.1, b=0.1)
    kept = Kept(tmp_path, "some")
    for name, seconds in (("a", 50.0), ("b", 10.0)):
        job = Runs(suite).of_variant(name)[0]
        kept.add(job, {"summary": {"seconds": seconds}, "history": [{"round": 20}]})
    one = Runs(suite).of_variant("b")[1]
    assert kept.seconds(one) == side_by_side.START + 50  # a hundred rounds of half a second
    patient = one.experiment.eval.model_copy(update={"patience": 3})
    stops = one.experiment.model_copy(update={"eval": patient})
    assert kept.seconds(Job("some", "b", "b", stops)) == side_by_side.START + 10


def test_a_setting_that_diverges_is_kept_as_such_and_another_fault_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    suite = suite_of(seeds=1, a=0.1)
    wild = Experiment.load(
        "digits-fedaws", ["rounds=1", "clients.local_steps=1", "method.strength=1e38"]
    )
    suite = replace(suite, variants={**suite.variants, "wild": wild}, labels={"a": "a", "wild": "wild"})
    (kept,) = run_plans([Runs(suite)], now(tmp_path))
    assert kept.runs["wild 0"]["failed"].startswith("diverged")
    assert set(ended(suite, kept)) == {"a"}
    absent = Experiment.of({"data": {"source": "npz", "path": str(tmp_path / "none.npz")}})
    (kept,) = run_plans([Runs(Suite("absent", (0,), {"a": absent}, {"a": "a"}))], now(tmp_path))
    assert not kept.runs  # it is tried again when the file is there
    assert "none.npz" in capsys.readouterr().out


def points_of(name: str, *rates: float, into: bool = False) -> TwoStage:
    base = Path(name)
    arms = {
        "slow": Candidate("slow", {}, {"clients.lr": rates}),
        "plain": Candidate("plain", {"method": {"name": "baseline-2"}}, {"clients.lr": rates}),
    }
    return TwoStage("both", base, arms, seeds=2, into=into, more=measured)


def measured(result: Result, experiment: Experiment) -> dict[str, Any]:
    return {"own": {"rounds": float(experiment.rounds), "seen": float(len(result.history))}}


def test_arms_are_chosen_on_validation_data_and_written_as_far_as_they_are(
    tmp_path: Path, made: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    base = tmp_path / "suites" / "base.toml"
    base.parent.mkdir()
    base.write_text(BASE, encoding="utf-8")
    plan, runs, out = points_of(str(base), 0.05, 0.2), tmp_path / "runs", tmp_path / "out"
    monkeypatch.setattr(
        Running, "end", property(lambda self: self.begun + (0.0 if len(made) >= 4 else 1e6))
    )
    choose_and_run([plan], out, now(runs))
    # All points of the first arm, its first seed, a point of the next, in which time was over.
    assert made == [
        "suites-both tuning-slow-0.05 0",
        "suites-both tuning-slow-0.2 0",
        "suites-both slow 0",
        "suites-both tuning-plain-0.05 0",
    ]
    assert not (out / "both.json").exists()
    so_far = json.loads((out / "both-so-far.json").read_bytes())
    assert [row["name"] for row in so_far["variants"]] == ["slow"]
    assert so_far["variants"][0]["seeds"] == [0]
    assert len(json.loads((out / "both-tuning.json").read_bytes())["points"]) == 2
    monkeypatch.setattr(Running, "end", property(lambda self: self.begun + self.seconds))
    choose_and_run([plan], out, now(runs))
    assert made[3] == made[4]  # it goes on
    assert made[5:] == [
        "suites-both tuning-plain-0.2 0",
        "suites-both plain 0",
        "suites-both slow 1",
        "suites-both plain 1",
    ]
    assert not (out / "both-so-far.json").exists()
    found = json.loads((out / "both.json").read_bytes())
    assert [row["seeds"] for row in found["variants"]] == [[0, 1], [0, 1]]
    assert found["configs"]["slow"]["eval"]["split"] == "test"
    tuned = json.loads((out / "both-tuning.json").read_bytes())["points"]
    best = max((one for one in tuned if one["arm"] == "slow"), key=lambda one: one["P@1"])
    assert str(found["configs"]["slow"]["clients"]["lr"]) == best["point"]
    rounds = found["configs"]["slow"]["rounds"]
    assert rounds == max(best["round"], 1)
    assert found["variants"][0]["own"]["rounds"] == rounds


def test_where_rates_fall_the_last_evaluation_counts_and_all_rounds_are_trained_again(
    tmp_path: Path, made: list[str]
) -> None:
    base = tmp_path / "base.toml"
    base.write_text(BASE, encoding="utf-8")
    arms = {"some": Candidate("some", {}, {"clients.lr": [0.1], "rounds": [2, 4]})}
    plans = [
        TwoStage(name, base, arms, seeds=2, whole=True, turn=turn)
        for turn, name in enumerate(("first", "second"))
    ]
    choose_and_run(plans, tmp_path, now(tmp_path / "runs"))
    assert [name.split()[0].split("-")[-1] for name in made] == 4 * ["first"] + 4 * ["second"]
    tuned = json.loads((tmp_path / "first-tuning.json").read_bytes())["points"]
    assert [one["round"] for one in tuned] == [2, 4]
    best = max(tuned, key=lambda one: one["P@1"])
    found = json.loads((tmp_path / "first.json").read_bytes())
    assert found["configs"]["some"]["rounds"] == best["round"]


def test_arms_take_the_place_of_those_with_their_names(tmp_path: Path) -> None:
    suite, out = suite_of(seeds=1, a=0.1, b=0.2), tmp_path / "some.json"
    (kept,) = run_plans([Runs(suite)], now(tmp_path))
    keep(suite, kept, out)
    other = suite_of(seeds=1, b=0.3)
    (kept,) = run_plans([Runs(other)], now(tmp_path))
    keep(other, kept, out, into=True)
    found = json.loads(out.read_bytes())
    assert [row["name"] for row in found["variants"]] == ["a", "b"]
    assert [found["configs"][name]["clients"]["lr"] for name in "ab"] == [0.1, 0.3]


def test_arms_join_those_of_an_unfinished_file_until_all_are_there(tmp_path: Path) -> None:
    out, so_far, every = tmp_path / "some.json", tmp_path / "some-so-far.json", ("a", "b", "c")
    for step, arms in enumerate(({"c": 0.1}, {"a": 0.2}, {"b": 0.3, "c": 0.4})):
        suite = suite_of(seeds=1, **arms)
        (kept,) = run_plans([Runs(suite)], now(tmp_path / "runs"))
        keep(suite, kept, out, into=True, beside=every)
        assert (out.exists(), so_far.exists()) == (step == 2, step < 2)
        found = read(out if step == 2 else so_far)
        assert [row["name"] for row in found["variants"]] == [["c"], ["a", "c"], ["a", "b", "c"]][step]
        assert list(found["configs"]) == [row["name"] for row in found["variants"]]
    assert [found["configs"][name]["clients"]["lr"] for name in every] == [0.2, 0.3, 0.4]


def kept_points(folder: Path, *about: dict[str, Any]) -> tuple[TwoStage, Path]:
    """A plan with rates 0.05 and 0.2, and a file of points that were made with its settings."""
    base = folder / "suites" / "base.toml"
    base.parent.mkdir()
    base.write_text(BASE, encoding="utf-8")
    file = folder / "out" / "both-tuning.json"
    file.parent.mkdir()
    plan = replace(points_of(str(base), 0.05, 0.2, into=True), seeds=1)
    settings = {(one.arm, one.name): one.settings for one in plan.points}
    points = [{**one, "settings": settings[one["arm"], one["point"]]} for one in about]
    file.write_text(json.dumps({"commit": "then", "hardware": "there", "points": points}))
    return plan, file


def test_points_of_the_file_that_is_there_are_not_tried_again(tmp_path: Path, made: list[str]) -> None:
    best = {"arm": "slow", "point": "0.05", "round": 2, "P@1": 101.0}  # whatever the other scores
    plan, file = kept_points(tmp_path, best, {"arm": "plain", "point": "0.05", "failed": "diverged"})
    plan = replace(plan, tried=tried_points(file))
    choose_and_run([plan], file.parent, now(tmp_path / "runs"))
    assert sorted(name.split()[1] for name in made) == [
        "plain",
        "slow",
        "tuning-plain-0.2",
        "tuning-slow-0.2",
    ]
    points = read(file)["points"]
    assert {(one["arm"], one["point"]) for one in points if one.get("commit") == "then"} == {
        ("slow", "0.05"),
        ("plain", "0.05"),
    }
    assert len(points) == 4
    configs = read(file.parent / "both.json")["configs"]
    assert {name: config["clients"]["lr"] for name, config in configs.items()} == {
        "slow": 0.05,
        "plain": 0.2,
    }
    assert configs["slow"]["rounds"] == 2
    assert tried_points(tmp_path / "none.json") == {}


def test_points_of_other_arms_keep_what_made_them(tmp_path: Path, made: list[str]) -> None:
    """The file is then of the machine that made the new ones."""
    about = {"round": 2, "P@1": 50.0, "point": "0.05"}
    plan, file = kept_points(tmp_path, {"arm": "plain", **about}, {"arm": "slow", **about})
    other = {name: arm for name, arm in plan.arms.items() if name == "slow"}
    choose_and_run([replace(plan, arms=other)], file.parent, now(tmp_path / "runs"))
    found = read(file)
    assert found["hardware"] != "there"
    by_arm = {(one["arm"], one["point"]): one.get("hardware", "here") for one in found["points"]}
    assert by_arm == {
        ("plain", "0.05"): "there",
        ("slow", "0.05"): "here",
        ("slow", "0.2"): "here",
    }
    assert made


def test_points_that_were_made_with_other_settings_are_tried_again(
    tmp_path: Path, made: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """They have the same names: what else a point is made of stands in no name."""
    every = [
        {"arm": a, "point": p, "round": 2, "P@1": 101.0}
        for a in ("plain", "slow")
        for p in ("0.05", "0.2")
    ]
    plan, file = kept_points(tmp_path, *every)
    unsaid = read(file)
    del unsaid["points"][0]["settings"]  # of a file from before points said what made them
    file.write_text(json.dumps(unsaid))
    base = plan.base.read_text(encoding="utf-8")
    found = tried_points(file)
    plan = replace(points_of(str(plan.base), 0.05, 0.2, into=True), seeds=1, tried=found)
    assert every[0].items() <= unsaid["points"][0].items()
    assert plan.known.keys() == found.keys() - {("plain", "0.05")}
    plan.base.write_text(base.replace("local_steps = 1", "local_steps = 2"), encoding="utf-8")
    changed = replace(points_of(str(plan.base), 0.05, 0.2, into=True), seeds=1, tried=found)
    choose_and_run([changed], file.parent, now(tmp_path / "runs"))
    said = "both: tries 4 of 4 points again, which are of other settings"
    assert said in capsys.readouterr().out
    assert len([name for name in made if "tuning-" in name]) == 4
    points = read(file)["points"]
    assert max(one["P@1"] for one in points) <= 100
    assert {(one["arm"], one["point"]): one["settings"] for one in points} == {
        (one.arm, one.name): one.settings for one in changed.points
    }
    again = replace(changed, tried=tried_points(file))
    made.clear()
    choose_and_run([again], file.parent, now(tmp_path / "other runs"))
    assert not [name for name in made if "tuning-" in name]


def test_several_processes_end_with_the_same_runs(tmp_path: Path) -> None:
    suite = suite_of(a=0.1, b=0.2)
    (alone,) = run_plans([Runs(suite)], now(tmp_path / "alone"))
    several = Running(tmp_path / "several", "cpu", jobs=2, begun=time.time())
    (both,) = run_plans([Runs(suite)], several)
    assert both.runs.keys() == alone.runs.keys()
    for key, one in both.runs.items():
        assert one["summary"]["metrics"] == alone.runs[key]["summary"]["metrics"]


def test_files_stay_as_they_are_while_no_point_has_been_tried(tmp_path: Path, made: list[str]) -> None:
    base = tmp_path / "base.toml"
    base.write_text(BASE, encoding="utf-8")
    plan = points_of(str(base), 0.05, 0.2)
    file = tmp_path / f"{plan.name}-tuning.json"
    file.write_text("what was found before", encoding="utf-8")
    choose_and_run([plan], tmp_path, now(tmp_path / "runs", 0.0))
    assert made == []
    assert file.read_text(encoding="utf-8") == "what was found before"


def test_a_long_second_stage_is_tested_where_its_validation_part_is_best(tmp_path: Path) -> None:
    base = tmp_path / "suites" / "base.toml"
    base.parent.mkdir()
    base.write_text(BASE.replace("every = 2", "every = 1, patience = 3"), encoding="utf-8")
    arms = {"only": Candidate("only", {"rounds": 1}, {"clients.lr": [0.05, 0.2]})}
    plan = TwoStage("long", base, arms, seeds=1, still_held=0.2, long={"rounds": 8})
    choose_and_run([plan], tmp_path / "out", now(tmp_path / "runs"))
    (tried,) = {one["round"] for one in read(tmp_path / "out" / "long-tuning.json")["points"]}
    assert tried <= 1
    made = read(tmp_path / "out" / "long.json")
    (config,), (arm,) = made["configs"].values(), made["variants"]
    assert (config["rounds"], config["eval"]["split"]) == (8, "test")
    assert (config["eval"]["patience"], config["data"]["validation_fraction"]) == (3, 0.2)
    (kept,) = [one for key, one in Kept(tmp_path / "runs", plan.suite).runs.items() if key == "only 0"]
    best = max(kept["history"], key=lambda record: record["validation P@1"])
    assert arm["best"]["round"] == best["round"]
    assert arm["metrics"]["P@1"]["mean"] == best["P@1"]  # of the test part
    assert chosen_round(made, arm) == best["round"]
    given = TwoStage("given", base, arms, seeds=1, long={"rounds": 2})
    assert not given.stops
    final = given.final({"only": (given.points[0], {"round": 1})}).variants["only"]
    assert (final.rounds, final.eval.patience, final.data.validation_fraction) == (2, None, 0.0)


def test_points_whose_rates_decay_are_compared_at_their_end(tmp_path: Path) -> None:
    base = tmp_path / "base.toml"
    base.write_text(BASE, encoding="utf-8")
    plan = replace(points_of(str(base), 0.1, 0.2), whole=True)
    kept = Kept(tmp_path, plan.suite)
    ends = {"0.1": (90.0, 10.0), "0.2": (50.0, 40.0)}  # the best on the way, and the last
    for one in plan.points:
        (best, last), job = ends[one.name], one.job
        summary = {
            "seconds": 1.0,
            "rounds": job.experiment.rounds,
            "best_by": [],
            "best": {"round": 1, "P@1": best},
            "metrics": {"P@1": last},
        }
        kept.add(job, {"summary": summary, "history": [{"round": job.experiment.rounds}]})
    point, scored = plan.chosen(kept)["slow"]
    assert (point.name, scored["P@1"]) == ("0.2", 40.0)
    final = plan.final(plan.chosen(kept)).variants["slow"]
    assert final.rounds == point.job.experiment.rounds
    on_the_way, _ = replace(plan, whole=False).chosen(kept)["slow"]
    assert on_the_way.name == "0.1"


@pytest.mark.parametrize(
    ("settles", "whole"), [(False, True), (True, True), (True, False)], ids=["no", "yes", "chosen"]
)
def test_a_run_that_time_ends_is_scored_at_its_best_round_so_far_if_it_is_to_settle(
    tmp_path: Path, settles: bool, whole: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    base = tmp_path / "base.toml"
    base.write_text(BASE if whole else BASE.replace("chosen = []", ""), encoding="utf-8")
    arms = {"a": Candidate("a", {"eval": {"patience": 100_000}}, {"clients.lr": [0.1]})}
    plan = TwoStage("some", base, arms, seeds=1, still_held=0.2, long={"rounds": 100_000})
    monkeypatch.setattr(side_by_side, "START", 1.0)
    timed = replace(now(tmp_path / "runs", seconds=1e9), settles=settles)
    run_plans([plan], replace(timed, jobs=1, begun=time.time() - 1e9 + side_by_side.START + 3))
    found = Kept(tmp_path / "runs", plan.suite).runs.get("a 0")
    assert (found is not None) == settles
    if found is not None:
        assert found["cut_short"]
        assert 0 < found["history"][-1]["round"] < 100_000
        assert found["config"]["rounds"] == 100_000
        assert found["summary"]["best"]["P@1"] == found["summary"]["metrics"]["P@1"]
        plan.write(Kept(tmp_path / "runs", plan.suite), tmp_path)
        assert read(tmp_path / "some.json")["variants"][0]["cut_short"] == [0]


def test_some_arms_are_run_with_the_first_seed_only(tmp_path: Path, made: list[str]) -> None:
    base = tmp_path / "base.toml"
    base.write_text(BASE, encoding="utf-8")
    arms = {name: Candidate(name, {}, {"clients.lr": [0.1]}) for name in ("a", "b")}
    plan = TwoStage("some", base, arms, seeds=2, long={"rounds": 2}, once=("b",))
    choose_and_run([plan], tmp_path, now(tmp_path / "runs"))
    assert [name for name in made if "tuning" not in name] == [
        f"{plan.suite} {one}" for one in ("a 0", "b 0", "a 1")
    ]
    seeds = {one["name"]: one["seeds"] for one in read(tmp_path / "some.json")["variants"]}
    assert seeds == {"a": [0, 1], "b": [0]}


def test_with_parts_runs_are_begun_that_will_not_end_in_time(tmp_path: Path, made: list[str]) -> None:
    suite = suite_of(a=0.1, b=0.1)
    job = Runs(suite).of_variant("a")[0]
    Kept(tmp_path, "some").add(job, {"summary": {"seconds": 300.0}, "history": [{"round": 2}]})
    short = Running(tmp_path, "cpu", seconds=400.0, begun=time.time() - 200)
    run_plans([Runs(suite)], short)
    assert made == []
    run_plans([Runs(suite)], replace(short, in_parts=True))
    assert len(made) == 3
