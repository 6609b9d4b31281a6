"""Settings tried on validation data: judged alike, told of as they end, and the best is what was run."""

import json
from pathlib import Path

import numpy as np
import pytest

import spreadout as so
from command import invoke
from spreadout.evaluation.early_stopping import shown_of
from spreadout.runs.folder import RunFolder
from spreadout.runs.sweep import Sweep, Trial


@pytest.fixture
def config(tmp_path: Path) -> Path:
    y = np.tile(np.arange(3), 20)
    x = np.eye(3)[y] * 4 + np.random.default_rng(0).normal(size=(60, 3))
    np.savez(tmp_path / "a.npz", x=x, y=y)
    written = tmp_path / "a.toml"
    written.write_text(f'rounds = 2\n[data]\nsource = "npz"\npath = "{tmp_path / "a.npz"}"\n')
    return written


def scored(monkeypatch: pytest.MonkeyPatch, made: list[tuple[str, ...]]) -> None:
    """Trials without processes, best at a rate of 0.3; made: which were asked for."""

    def trial(self: Sweep, settings: tuple[str, ...]) -> Trial:
        made.append(settings)
        score = -abs(float(settings[0].partition("=")[2]) - 0.3)
        return Trial(settings, score, "none", by=("P@1",))

    monkeypatch.setattr(Sweep, "_trial", trial)
    monkeypatch.setattr(Sweep, "_write_best", lambda *_: None)


@pytest.mark.parametrize(
    ("tried", "said"),
    [
        ("eval.split=test,validation", "settings that are chosen by the test part are not tested by it"),
        ("eval.split=validation,train", "eval.split = validation,train: says how trials are judged"),
        ("eval.best_by=P@1,P@3", "says how trials are judged"),
        ("eval.metrics=P@1,P@3", "says how trials are judged"),
        ("data.validation_fraction=0.1,0.5", "says how trials are judged"),
        ("data.validation_seed=0,1", "says how trials are judged"),
        ("data.test_fraction=0.1,0.5", "says how trials are judged"),
        ("data.path=a.npz,b.npz", "says how trials are judged"),
        ("data.source=digits,npz", "says how trials are judged"),
        ("data.source.label=a,b", "says how trials are judged"),
        ("seed=0,1,2", "seed = 0,1,2: says how trials are judged"),
    ],
)
def test_what_decides_how_trials_are_judged_is_not_tried(tried: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(so.UserError, match=said):
        Sweep.of("digits-fedaws", ["clients.lr=0.1,0.3", tried], tmp_path)


def test_another_method_of_a_preset_is_judged_as_the_preset_is(tmp_path: Path) -> None:
    preset, other = "extreme/amazon-670k", "fedavg"
    own = so.Experiment.load(preset)
    assert so.Experiment.load(preset, [f"method.name={other}"]).eval.metrics != own.eval.metrics
    asked = Sweep.of(preset, [f"method.name={own.method.name},{other}"], tmp_path)
    for settings in asked.grid():
        tried = so.Experiment.load(preset, [*asked.fixed, *settings])
        assert settings == (f"method.name={tried.method.name}",)
        assert (tried.eval.metrics, tried.eval.split) == (own.eval.metrics, "validation")
        assert tried.data.validation_fraction == 0.1


def test_trials_judged_by_different_metrics_are_not_ranked(
    config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    by = {"method.name=fedaws": ("P@1",), "method.name=fedavg": ("P@3",)}
    monkeypatch.setattr(Sweep, "_trial", lambda _, s: Trial(s, 1.0, "none", by=by[s[0]]))
    with pytest.raises(so.UserError, match=r"fedavg is judged by P@3, .* by P@1; set eval.metrics"):
        Sweep.of(str(config), ["method.name=fedavg,fedaws"], tmp_path / "sweep").run()


@pytest.mark.parametrize("value", ["data.validation_fraction=abc", "data.test_fraction=abc"])
def test_a_value_that_cannot_be_is_one_line(
    value: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = ["sweep", "digits-fedaws", "clients.lr=0.1,0.3", "--out", str(tmp_path / "sweep")]
    assert invoke(monkeypatch, *asked, value) == 2
    said = capsys.readouterr().err.strip().splitlines()
    assert len(said) == 1
    assert value.partition("=")[0] in said[0]
    assert "abc" in said[0]


def test_each_trial_is_told_of_and_written_as_it_ends(
    config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scored(monkeypatch, [])
    written, told = tmp_path / "sweep" / "sweep.json", []

    def say(said: str) -> None:
        told.append((said, len(json.loads(written.read_text()))))

    asked = Sweep.of(str(config), ["clients.lr=0.1,0.3,1.0,0.10"], tmp_path / "sweep")
    assert asked.run(say=say)[0].settings == ("clients.lr=0.3",)
    assert [count for _, count in told] == [1, 2, 3]  # 0.10 is 0.1
    assert [said.partition(":")[0] for said, _ in told] == [f"trial {i} of 3" for i in (1, 2, 3)]
    assert any(said.endswith(":   -0.200  clients.lr=0.1") for said, _ in told)


def test_a_search_makes_no_trial_twice_and_no_more_than_asked_for(
    config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("optuna", reason="optuna is not installed")
    values = ["clients.lr=0.01,0.03,0.1,0.3,1.0,3.0", "clients.batch=16,32"]
    for jobs, trials, expected in ((4, 10, 10), (5, 3, 3), (3, 40, 12), (1, 12, 12)):
        made: list[tuple[str, ...]] = []
        scored(monkeypatch, made)
        found = Sweep.of(str(config), values, tmp_path / "sweep", jobs=jobs).run(trials)
        assert len(made) == len(set(made)) == len(found) == expected
        assert trials < 12 or found[0].settings[0] == "clients.lr=0.3"


def test_the_best_config_is_what_its_trial_ran(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """By real processes, two at a time, searched by Optuna where it is there."""
    out = tmp_path / "sweep"
    search = ["--trials", "2"] if _has_optuna() else []
    asked = ["sweep", "digits-fedaws", "rounds=3", "eval.every=1", "method.name=fedavg,fedaws"]
    assert invoke(monkeypatch, *asked, "--jobs", "2", "--out", str(out), *search) == 0
    assert {"trial 1 of 2", "trial 2 of 2"} == {
        line.partition(":")[0] for line in capsys.readouterr().err.splitlines()
    }
    trials = json.loads((out / "sweep.json").read_text())
    assert len(trials) == len(list(out.glob("trial-*"))) == 2
    best = so.Experiment.load(out / "best.toml")
    ran = so.Experiment.load(out / trials[0]["folder"] / "config.toml")
    assert (best.eval.references, ran.eval.references) == (True, False)
    assert best.model_copy(update={"eval": best.eval.model_copy(update={"references": False})}) == ran
    for one in trials:  # what the run leaves, not its best round
        run = RunFolder(out / one["folder"])
        left = run.history()[shown_of(so.Experiment.load(run.config).eval, run.history())]
        assert one["score"] == run.summary()["metrics"]["P@1"] == left["P@1"]


def test_a_trial_is_named_by_what_its_config_says(config: Path, tmp_path: Path) -> None:
    asked = Sweep.of(str(config), ["clients.lr=0.1,0.3"], tmp_path / "sweep")
    one, other = map(asked._place, asked.grid())
    assert one != other
    config.write_text(config.read_text() + "[clients]\nbatch = 16\n")
    assert asked._place(("clients.lr=0.1",)) != one
    config.write_text(config.read_text().replace("batch = 16", "batch = 32"))  # the default, but said
    assert asked._place(("clients.lr=0.1",)) != one
    config.write_text(config.read_text().replace("[clients]\nbatch = 32\n", ""))
    assert asked._place(("clients.lr=0.1",)) == one
    moved = tmp_path / "b.toml"
    moved.write_text(config.read_text())
    assert (
        Sweep.of(str(moved), ["clients.lr=0.1,0.3"], tmp_path / "sweep")._place(("clients.lr=0.1",))
        == one
    )


def _has_optuna() -> bool:
    from importlib.util import find_spec

    return find_spec("optuna") is not None
