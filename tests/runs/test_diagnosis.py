"""Faults are told apart by their signs, and what is advised makes them better."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import spreadout as so
from spreadout.evaluation.activity import Activity, activity_of
from spreadout.evaluation.config import EvalConfig
from spreadout.evaluation.references import Reference
from spreadout.report.terminal import print_summary
from spreadout.runs import diagnosis
from spreadout.runs.diagnosis import diagnose
from spreadout.runs.finding import Finding, differ

P1 = EvalConfig()
PLAIN: dict[str, Any] = {"chosen": []}  # nothing is chosen by the data: these are about bad settings


def blobs(
    classes: int = 10,
    each: int = 8,
    dim: int = 12,
    noise: float = 0.3,
    shift: float = 0.0,
    clients: int | None = None,
) -> so.Splits:
    """Classes around random centres; a client for each, or so many with some of all."""
    rng = np.random.default_rng(0)
    centre = rng.normal(size=(classes, dim))

    def drawn(count: int) -> tuple[np.ndarray, np.ndarray]:
        y = np.repeat(np.arange(classes), count)
        return (centre[y] + shift + noise * rng.normal(size=(len(y), dim))).astype(np.float32), y

    x, y = drawn(each)
    owner = y if clients is None else np.arange(len(y)) % clients
    train = so.FederatedDataset.from_arrays(x, y, client=owner)
    return so.Splits("blobs", train, so.Examples.from_arrays(*drawn(20)))


def ran(data: so.Splits, **changes: Any) -> tuple[float, list[Finding]]:
    """The score at the end, and what was found."""
    base: dict[str, Any] = {**PLAIN, "rounds": 20, "eval": {"every": 2}, "method": {"name": "fedavg"}}
    result = so.run(so.Experiment.of({**base, **changes}), data=data)
    return next(iter(result.metrics.values())), [Finding(**one) for one in result.summary["findings"]]


def history(
    scores: list[float], losses: list[float] | None = None, norms: list[float] | None = None
) -> list[Any]:
    after = losses or [1.0] * (len(scores) - 1)
    return [
        {
            "round": 10 * i,
            "P@1": score,
            "loss": None if i == 0 else after[i - 1],
            "weights_norm": (norms or [8.0] * len(scores))[i],
        }
        for i, score in enumerate(scores)
    ]


# Signs and remedies in real runs.


def test_too_high_a_rate_diverges_and_a_lower_one_does_not() -> None:
    data = blobs(clients=5)
    bad, (first, *_) = ran(data, clients={"lr": 10.0})
    assert first.name == "divergence"
    assert "lower clients.lr" in first.remedy
    good, found = ran(data, clients={"lr": 0.1})
    assert good > bad + 30
    assert "divergence" not in [one.name for one in found]


def test_classes_without_negatives_collapse_and_fedaws_keeps_them_apart() -> None:
    data = blobs(classes=30, each=4, noise=0.6)
    config: dict[str, Any] = {"rounds": 12, "clients": {"lr": 1.0}}
    bad, (first, *_) = ran(data, **config, method={"name": "baseline-1", "loss_form": "square"})
    assert first.name == "collapse"
    assert 'try method.name = "fedaws"' in first.remedy
    good, found = ran(data, **config, method={"name": "fedaws", "loss_form": "square"})
    assert good > bad
    assert found == []


def test_too_weak_a_push_collapses_and_a_stronger_one_does_not() -> None:
    data = blobs(classes=30, each=4, noise=0.6)
    config: dict[str, Any] = {"rounds": 12, "clients": {"lr": 1.0}}
    bad, (first, *_) = ran(
        data, **config, method={"name": "fedaws", "loss_form": "square", "strength": 1e-6}
    )
    assert first.name == "collapse"
    assert "raise method.strength" in first.remedy
    good, found = ran(data, **config, method={"name": "fedaws", "loss_form": "square", "strength": 1.0})
    assert good > bad
    assert found == []


def test_a_plain_step_that_overshoots_is_not_to_be_made_larger(
    capsys: pytest.CaptureFixture[str],
) -> None:
    class Heard(so.Observer):
        said: list[str] = []  # noqa: RUF012

        def warned(self, text: str) -> None:
            self.said.append(text)

    data = blobs(classes=60, each=4, dim=20)
    pushed = {"name": "fedaws", "spreadout_step": "plain", "strength": 1.0}
    config: dict[str, Any] = {**PLAIN, "rounds": 20, "clients": {"lr": 0.3}, "eval": {"every": 2}}
    watch = Heard()
    result = so.run(so.Experiment.of({**config, "method": pushed}), data=data, observer=watch)
    (first, *_) = result.summary["findings"]
    assert first["name"] == "overshoot"
    assert result.history[-1]["spreadout_rises"] > 0.3
    # Its classes are drawn together, and the advice is not to push harder.
    assert result.history[-1]["collapsing"]
    assert not any("raise method.strength" in text for text in [first["remedy"], *watch.said])
    assert any("overshoot" in text for text in watch.said)
    good, found = ran(data, **config, method={**pushed, "spreadout_step": "safe"})
    assert good > result.metrics["P@1"] + 5
    assert found == []
    lower, _ = ran(data, **config, method={**pushed, "strength": 0.01})
    assert lower > result.metrics["P@1"] + 5


def test_inputs_far_from_zero_kill_units_and_centred_ones_do_not() -> None:
    config: dict[str, Any] = {"model": {"hidden": [16]}, "clients": {"lr": 0.1}}
    bad, (first, *_) = ran(blobs(clients=5, shift=10.0), **config)
    assert first.name == "dead units"
    assert "subtract the mean of the features" in first.remedy
    good, found = ran(blobs(clients=5), **config)  # the same centres and noise without the shift
    assert good > bad + 50
    assert found == []


def test_a_rate_too_high_kills_units_and_a_lower_one_does_not() -> None:
    data = blobs(clients=5, shift=2.5)
    bad, (first, *_) = ran(data, model={"hidden": [16]}, clients={"lr": 0.3})
    assert first.name == "dead units"
    assert "lower clients.lr" in first.remedy
    good, found = ran(data, model={"hidden": [16]}, clients={"lr": 0.03})
    assert good > bad + 10
    assert "dead units" not in [one.name for one in found]


def test_a_run_cut_short_is_still_rising_and_more_rounds_help() -> None:
    config: dict[str, Any] = {"method": {"name": "fedaws"}, "clients": {"lr": 0.02}}
    short, (first, *_) = ran(blobs(noise=0.6), **config)
    assert first.name == "unfinished"
    assert "set rounds = 40" in first.remedy
    longer, _ = ran(blobs(noise=0.6), **config, rounds=40)
    assert longer > short + 5
    higher, found = ran(
        blobs(noise=0.6), method={"name": "fedaws"}, clients={"lr": 0.5}
    )  # "or raise the rates"
    assert higher > short + 5
    assert found == []


def mislabelled() -> so.Splits:
    """Four classes of which the training data has many wrong labels: they are learned by heart in the end."""
    data = blobs(classes=4, each=25, dim=10, noise=1.0, clients=4)
    rng = np.random.default_rng(1)
    x, y = (data.train.columns[name].take(torch.arange(100)).numpy().copy() for name in "xy")
    wrong = rng.random(100) < 0.4
    y[wrong] = rng.integers(0, 4, int(wrong.sum()))
    train = so.FederatedDataset.from_arrays(x, y, client=np.arange(100) % 4)
    return so.Splits("mislabelled", train, data.test)


def test_what_is_learned_by_heart_is_told_and_ending_earlier_helps() -> None:
    config: dict[str, Any] = {
        "eval": {"every": 1},
        "model": {"hidden": [64]},
        "method": {"name": "centralized"},
        "clients": {"lr": 0.3, "batch": "full", "local_steps": 8},
    }
    data = mislabelled()
    bad, (first, *_) = ran(data, **config, rounds=20)
    assert first.name == "overfitting"
    end = int(first.remedy.split("rounds = ")[1].split(",")[0])
    assert end <= 13
    good, _ = ran(data, **config, rounds=end)
    assert good > bad + 5
    config["clients"] = {**config["clients"], "input_dropout": 0.4}
    dropped, _ = ran(data, **config, rounds=20)
    assert dropped > bad + 2


def test_a_sound_run_has_no_findings() -> None:
    score, found = ran(blobs(noise=0.6), method={"name": "fedaws"}, clients={"lr": 0.5})
    assert score > 90
    assert found == []


def test_below_the_most_frequent_labels_without_a_prior_one_helps() -> None:
    rng = np.random.default_rng(0)
    y = np.repeat(np.arange(4), (140, 20, 20, 20))  # inputs say nothing: the best is the first, always
    x = rng.normal(size=(200, 3)).astype(np.float32)
    held = [so.Examples.from_arrays(x[i::4], y[i::4]) for i in (0, 1)]
    rest = np.arange(200) % 4 > 1
    train = so.FederatedDataset.from_arrays(x[rest], y[rest], y[rest])
    data = so.Splits("skewed", train, held[0], held[1])
    config: dict[str, Any] = {"clients": {"lr": 0.5, "local_steps": 1}, "rounds": 10}
    method = {"name": "fedss", "negatives": 2, "weighting": "uniform"}
    bad, found = ran(data, **config, method=method)
    assert bad < 60
    assert (found[-1].name, found[-1].remedy) == ("below a trivial reference", diagnosis.WITH_PRIOR)
    assert diagnosis.WITH_PRIOR.startswith('set method.prior = "auto"')
    good, found = ran(data, **config, method={**method, "prior": "auto"})
    assert good >= 70
    assert "below a trivial reference" not in [one.name for one in found]


def test_a_swing_of_few_examples_is_chance() -> None:
    swinging = history([10.0, 40, 20, 45, 15, 40, 12, 44], norms=[8, 9, 10, 11, 12, 13, 14, 15])
    assert "swings" in str(diagnosis.divergence(P1, swinging, examples=1000))
    assert diagnosis.divergence(P1, swinging, examples=5) is None


def test_below_the_most_frequent_labels_is_said_in_the_last_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = blobs(clients=5)
    config = so.Experiment.of(
        {
            **PLAIN,
            "rounds": 10,
            "eval": {"every": 2},
            "method": {"name": "fedavg"},
            "clients": {"lr": 10.0},
        }
    )
    result = so.run(config, data=data, out=tmp_path / "run")
    print_summary(result.summary, tmp_path / "run", as_json=False)
    last = capsys.readouterr().out.splitlines()[-1]
    trivial = result.references["most frequent"].metrics["P@1"]
    assert result.metrics["P@1"] < trivial == 10
    assert last.startswith("finding")
    assert f"P@1 is {result.metrics['P@1']:.2f}, always the most frequent labels have 10.00" in last
    assert "lower clients.lr" in last  # what the fault before it needs
    written = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert written["findings"] == result.summary["findings"]


# Signs by themselves.


def test_levels_of_loss_and_norm() -> None:
    rising = [10.0, 40, 50, 55, 56, 56]
    assert diagnosis.divergence(P1, history(rising, [1, 0.5, 0.4, 0.3, 0.3])) is None
    assert diagnosis.divergence(P1, history(rising, [1, 0.5, 0.4, 0.9, 1.2])) is None  # none the worse
    worse = [10.0, 40, 50, 55, 50, 48]
    assert diagnosis.divergence(P1, history(worse, [1, 0.5, 0.4, 0.9, 1.2])) is not None
    assert (
        diagnosis.divergence(P1, history(rising, [1, 0.5, 0.3, 0.5, 0.6])) is None
    )  # not above the first
    fallen = [10.0, 40, 50, 30, 20, 15]
    assert diagnosis.divergence(P1, history(fallen, norms=[8.0] * 6)) is None
    assert diagnosis.divergence(P1, history(fallen, norms=[8.0, 20, 40, 50, 60, 70])) is not None
    assert (
        diagnosis.divergence(P1, history(rising, norms=[8.0, 20, 40, 50, 60, 70])) is None
    )  # and none the worse
    swinging = [10.0, 40, 20, 45, 15, 40, 12, 44]
    assert "swings" in str(
        diagnosis.divergence(P1, history(swinging, norms=[8, 9, 10, 11, 12, 13, 14, 15]))
    )
    assert diagnosis.divergence(P1, history(swinging)) is None  # weights did not move: chance


def test_noise_is_neither_overfitting_nor_unfinished() -> None:
    flat = [10.0, 60, 63, 61, 62, 60.5, 62.5, 61, 62, 61.5, 62]
    falling = [1.0, 0.5, 0.3, 0.2, 0.1, 0.1, 0.1, 0.1, 0.1, 0.05]
    assert diagnosis.overfitting(P1, history(flat, falling)) is None
    assert diagnosis.unfinished(P1, history(flat, falling), 100) is None


def test_scores_that_fall_are_overfitting_only_while_the_loss_falls() -> None:
    scores = [10.0, 60, 70, 68, 64, 60, 57, 55, 53, 52, 50]
    by_heart = [1.0, 0.5, 0.3, 0.2, 0.1, 0.1, 0.05, 0.04, 0.03, 0.02]
    found = diagnosis.overfitting(P1, history(scores, by_heart))
    assert found is not None
    assert "best in round 20" in found.sign
    assert diagnosis.overfitting(P1, history(scores, [1.0] * 10)) is None
    assert diagnosis.overfitting(P1, history(scores[:4], by_heart[:3])) is None  # too few to tell


def test_a_rising_score_is_unfinished_unless_there_is_no_room_left() -> None:
    rising = [10.0, 20, 30, 40, 48, 55, 61, 66, 70, 73, 76]
    found = diagnosis.unfinished(P1, history(rising), 100)
    assert found is not None
    assert found.remedy == "set rounds = 200, or raise the rates"
    stopped = diagnosis.unfinished(P1, history(rising), 500)
    assert stopped is not None
    assert stopped.remedy == "raise eval.patience"
    assert (
        diagnosis.unfinished(P1, history([10.0, 30, 50, 60, 70, 80, 88, 92, 95, 97.5, 100]), 100) is None
    )
    ranks = EvalConfig(metrics=["mean rank"])
    records = [{"round": i, "mean rank": 100.0 - 8 * i} for i in range(9)]
    assert diagnosis.unfinished(ranks, records, 8) is not None


def test_rates_that_fall_hide_a_rise_and_errors_still_show_it() -> None:
    rising = [10.0, 60, 80, 85, 88, 90, 91.5, 92.5, 93, 93.3, 93.4]
    assert diagnosis.unfinished(P1, history(rising), 100, examples=500) is None
    found = diagnosis.unfinished(P1, history(rising), 100, decays=True, examples=500)
    assert found is not None
    assert "in the last half of the run, while rates fell to 0" in found.sign
    assert diagnosis.unfinished(P1, history(rising), 100, decays=True, examples=50) is None  # chance
    far = [0.0, 2, 4, 6, 8, 9, 10, 11, 11.5, 12, 12.2]  # a fifth of all that was gained
    assert diagnosis.unfinished(P1, history(far), 100, decays=True) is not None
    flat = [10.0, 60, 80, 90, 92, 93, 93.1, 93.1, 93.2, 93.3, 93.3]
    assert diagnosis.unfinished(P1, history(flat), 100, decays=True, examples=500) is None


def test_a_run_cut_far_below_what_is_chosen_says_so_and_the_chosen_rounds_help(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("spreadout.config.choices.SHORTEST", 100)
    data = blobs(classes=40, dim=4, noise=0.2)

    def ended(*overrides: str) -> so.Result:
        return so.run(so.Experiment.of({}, overrides=overrides), data=data, device="cpu")

    short = ended("rounds=2")
    (found,) = short.summary["findings"]
    assert found["name"] == "unfinished"
    best = short.references["nearest neighbours"].metrics["P@1"]
    assert best > short.metrics["P@1"]
    assert found["sign"] == (
        "2 rounds, where 100 would be chosen for this data, and nearest neighbours in one place has "
        f"{best:.2f}"
    )
    assert found["remedy"] == 'set rounds = "auto", or 100'
    longer = ended("rounds=auto", "eval.every=50")
    assert longer.metrics["P@1"] > short.metrics["P@1"] + 5
    assert longer.summary["findings"] == []
    # A config with local work of its own has a number of rounds of its own.
    assert ended("rounds=2", "clients.local_steps=2").summary["findings"] != [found]


@pytest.mark.parametrize(
    ("activity", "remedy"),
    [
        (Activity(0.0, "2", 0.5), None),
        (Activity(0.5, "2", 0.5), None),
        (Activity(0.7, "2", 0.5), "lower clients.lr"),
        (Activity(0.5, "2", 0.9), "lower clients.lr"),
        (Activity(0.0, "", 0.99), "lower clients.lr"),
        (Activity(0.9, "2", 0.99, offset=8.0), "subtract the mean"),
        (Activity(0.9, "2", None, offset=1.0), "lower clients.lr"),
    ],
)
def test_dead_units_by_what_is_measured(activity: Activity, remedy: str | None) -> None:
    found = diagnosis.dead_units(activity)
    assert (found is None) == (remedy is None)
    assert found is None or remedy in found.remedy  # type: ignore[operator]
    if activity.dead == 0:  # alike because their classes are: that is collapse
        assert diagnosis.dead_units(activity, collapsed=True) is None


def test_one_cause_hides_what_follows_from_it() -> None:
    fallen = history([10.0, 40, 50, 30, 20, 15], norms=[8.0, 20, 40, 50, 60, 70])
    trivial = {"most frequent": Reference("most frequent", {"P@1": 20.0}, is_trivial=True)}
    found = diagnose(
        P1, fallen, rounds=50, collapse_advice="classes are collapsing; push", references=trivial
    )
    assert [one.name for one in found] == ["divergence", "below a trivial reference"]
    assert found[1].remedy == found[0].remedy
    sound = diagnose(P1, history([10.0, 40, 50, 52, 52, 52]), rounds=50, references=trivial)
    assert sound == []


def test_a_model_as_good_as_any_reference_is_not_called_collapsed_or_dead() -> None:
    """One class, constant features, or an easy set: embeddings are alike, and nothing is wrong."""
    level = history([10.0, 40, 50, 52, 52, 52])
    ill: dict[str, Any] = {
        "rounds": 50,
        "collapse_advice": "classes are collapsing; push",
        "activity": Activity(0.5, "2", 0.9),
    }
    ridge = {"ridge": Reference("ridge", {"P@1": 52.0})}
    trivial = {"most frequent": Reference("most frequent", {"P@1": 52.0}, is_trivial=True)}
    assert diagnose(P1, level, references=ridge | trivial, **ill) == []
    better = {"ridge": Reference("ridge", {"P@1": 60.0})}
    for references in (dict[str, Reference](), trivial, better):  # what looks at no input is no measure
        assert [one.name for one in diagnose(P1, level, references=references, **ill)] == ["dead units"]
    # Of a run that was cut short, embeddings that are alike are untrained ones.
    for dead, expected in ((0.5, "unfinished"), (0.9, "dead units")):
        found = diagnose(
            P1, level, rounds=50, references=better, usual=300, activity=Activity(dead, "2", 0.9)
        )
        assert [one.name for one in found] == [expected]


def test_one_of_nine_rows_is_no_divergence() -> None:
    worse = history([44.4, 90, 100, 100, 100, 88.9], [0.0040, 0.0020, 0.0003, 0.0002, 0.0047])
    assert diagnosis.divergence(P1, worse, examples=9) is None
    assert diagnosis.divergence(P1, worse, examples=900) is not None


def test_a_lower_rank_is_above_a_trivial_one() -> None:
    ranks = EvalConfig(metrics=["mean rank"])
    popular = {"popularity": Reference("popularity", {"mean rank": 50.0}, is_trivial=True)}
    assert diagnosis.below_trivial(ranks, [{"round": 1, "mean rank": 40.0}], popular) is None
    found = diagnosis.below_trivial(ranks, [{"round": 1, "mean rank": 60.0}], popular)
    assert found is not None
    assert found.sign == "mean rank is 60.00, always the most popular items have 50.00"
    assert found.remedy == diagnosis.AT_A_LOSS


def test_activity_counts_units_that_never_fire() -> None:
    result = so.run(so.Experiment.of({**PLAIN, "rounds": 1, "model": {"hidden": [8, 4]}}), data=blobs())
    with torch.no_grad():
        weight, bias = result.state.dense["3.weight"], result.state.dense["3.bias"]
        weight[:3], bias[:3] = 0, -1  # three of the second layer's four units
    found = activity_of(result.federation.model, result.state, blobs().test)
    assert (found.dead, found.layer) == (0.75, "4")
    assert found.sameness is not None
    assert 0 < found.sameness < 1
    assert found.offset is not None
    assert found.offset < 1
    with torch.no_grad():
        weight[3], bias[3] = 0, -1
    dead = activity_of(result.federation.model, result.state, blobs().test)
    assert dead.dead == 1
    assert dead.sameness == pytest.approx(1, abs=1e-5)


def test_where_the_server_takes_the_scale_away_its_rate_is_named() -> None:
    """One local step and Adam on the server: ten times the clients' rate gives the same model."""
    off = {"most frequent": Reference("most frequent", {"P@1": 90.0}, is_trivial=True)}
    bad = history([30.0] * 8)
    for scale_free, named in ((False, "clients.lr"), (True, "server.lr")):
        found = diagnosis.diagnose(P1, bad, rounds=70, references=off, scale_free=scale_free)
        assert f"try {named}" in found[-1].remedy
    data = blobs()
    asked = {**PLAIN, "rounds": 20, "method": {"name": "fedaws"}}
    asked["server"] = {"optimizer": "adam", "lr": 0.003, "eps": 1e-8}
    runs = [
        so.run(so.Experiment.of({**asked, "clients": {"local_steps": 1, "lr": lr, "row_lr": 0.1}}), data=data)
        for lr in (0.1, 1.0)
    ]
    assert abs(runs[0].metrics["P@1"] - runs[1].metrics["P@1"]) < 1.0


# Fine runs are not accused: the signs above, where chance or a reference explains them.


def test_a_rise_by_chance_is_not_unfinished() -> None:
    """Curves of default runs: labels by the throw of a die, and one of sixty test rows."""
    die = [31.7, 28.3, 28.3, 30.0, 26.7, 26.7, 26.7, 25.0, 28.3, 31.7, 28.3]
    circles = [48.3, 95.0, 98.3, 98.3, 96.7, 98.3, 96.7, 96.7, 96.7, 98.3, 98.3]
    for scores, decays in ((die, True), (circles, False)):
        assert diagnosis.unfinished(P1, history(scores), 100, decays=decays, examples=60) is None
        many = diagnosis.unfinished(P1, history(scores), 100, decays=decays, examples=60_000)
        assert many is not None  # of so many rows it would be none
    few = [20.0, 40.0, 50.0]
    assert diagnosis.unfinished(P1, history(few), 20, examples=60) is None
    assert diagnosis.unfinished(P1, history(few), 20, examples=600) is not None


def test_where_hardly_an_error_is_left_a_run_is_finished() -> None:
    spiral = [37.1, 50, 46, 56, 67, 71, 84, 87, 87, 89, 95, 94, 98, 97, 98, 98, 98, 99.2]
    assert diagnosis.unfinished(P1, history(spiral), 170, decays=True, examples=240) is None
    left = diagnosis.unfinished(P1, history(spiral), 170, decays=True, examples=2400)  # 19 errors
    assert left is not None


def test_a_run_level_with_the_best_reference_is_not_unfinished() -> None:
    rising = [10.0, 20, 30, 40, 48, 55, 61, 66, 70, 73, 76]
    for best, expected in ((76.5, []), (75.5, []), (90.0, ["unfinished"]), (60.0, ["unfinished"])):
        known = {"ridge": Reference("ridge", {"P@1": best})}
        found = diagnose(P1, history(rising), rounds=100, examples=500, references=known)
        assert [one.name for one in found] == expected


def test_a_short_run_that_chance_cannot_tell_from_a_reference_is_not_cut() -> None:
    level = history([50.0, 80, 90, 90, 90, 90])
    known = {"nearest neighbours": Reference("nearest neighbours", {"P@1": 100.0})}
    of = {"rounds": 50, "usual": 300, "references": known}
    assert diagnose(P1, level, examples=30, **of) == []  # three rows
    assert [one.name for one in diagnose(P1, level, examples=300, **of)] == ["unfinished"]
    # Classes that lie close may not have come apart yet: both are said, and that it was cut short first.
    together = "classes are collapsing; push"
    fallen = diagnose(P1, level, examples=300, **of, collapse_advice=together)
    assert [one.name for one in fallen] == ["unfinished", "collapse"]
    whole = diagnose(P1, level, examples=300, **{**of, "rounds": 300}, collapse_advice=together)
    assert [one.name for one in whole] == ["collapse"]


def test_a_model_above_the_trivial_reference_does_not_see_all_inputs_alike() -> None:
    """Two classes and positives alone: embeddings within a hundredth, and they say enough."""
    level = history([50.0, 55, 58, 60, 60, 60])
    known = {
        "most frequent": Reference("most frequent", {"P@1": 48.0}, is_trivial=True),
        "nearest neighbours": Reference("nearest neighbours", {"P@1": 75.0}),
    }
    alike: dict[str, Any] = {"rounds": 50, "references": known}
    found = diagnose(P1, level, examples=500, activity=Activity(0.02, "2", 0.999), **alike)
    assert found == []
    for examples, scores in ((60, level), (500, history([48.0, 49, 48, 48.5, 48.2, 48.4]))):
        found = diagnose(P1, scores, examples=examples, activity=Activity(0.02, "2", 0.999), **alike)
        assert [one.name for one in found] == ["dead units"]
    # Units that never fire are another thing: capacity is lost, and another model shows it.
    found = diagnose(P1, level, examples=500, activity=Activity(0.7, "2", 0.5), **alike)
    assert [one.name for one in found] == ["dead units"]


def test_dead_units_that_cost_nothing_are_not_said() -> None:
    level, units = history([10.0, 40, 50, 52, 52, 52]), Activity(0.7, "2", 0.5)
    known = {"ridge": Reference("ridge", {"P@1": 54.0})}
    for examples, expected in ((100, []), (10_000, ["dead units"])):  # two rows, or two hundred
        found = diagnose(P1, level, rounds=50, examples=examples, activity=units, references=known)
        assert [one.name for one in found] == expected


def test_a_rise_is_no_swing() -> None:
    """A curve of a default run: it jumps, and only upwards."""
    norms = [8.0 + i for i in range(11)]
    rising = [52.4, 47.6, 58.6, 55.8, 59.8, 56.2, 73.2, 78.2, 80.2, 83.2, 84.2]
    assert diagnosis.divergence(P1, history(rising, norms=norms), examples=500) is None
    falling = [52.4, 47.6, 58.6, 55.8, 59.8, 56.2, 73.2, 58.2, 80.2, 63.2, 84.2]
    assert "swings" in str(diagnosis.divergence(P1, history(falling, norms=norms), examples=500))


def test_four_of_36_rows_are_no_divergence() -> None:
    worse = history([47.2, 100, 86, 89, 89, 88.9], [0.0154, 0.02, 0.02, 0.02, 0.0259])
    assert diagnosis.divergence(P1, worse, examples=36) is None
    assert diagnosis.divergence(P1, worse, examples=360) is not None


@pytest.mark.parametrize("seed", [1, 2])
def test_a_default_run_on_labels_by_the_throw_of_a_die_is_not_unfinished(seed: int) -> None:
    rng = np.random.default_rng(seed)
    x, y = rng.normal(size=(240, 10)).astype(np.float32), rng.integers(0, 4, 240)
    train = so.FederatedDataset.from_arrays(x[:160], y[:160])
    held = [so.Examples.from_arrays(x[at : at + 40], y[at : at + 40]) for at in (160, 200)]
    asked = so.Experiment.of({"method": {"name": "fedavg"}})  # all else is chosen
    result = so.run(asked, data=so.Splits("die", train, *held), device="cpu")
    assert "unfinished" not in [one["name"] for one in result.summary["findings"]]


@pytest.mark.parametrize(
    ("metric", "told"), [("P@1", False), ("retrieval R@5", False), ("MAP@R", True), ("P@5", True)]
)
def test_chance_is_asked_where_an_example_is_right_or_wrong(metric: str, told: bool) -> None:
    config = EvalConfig(metrics=[metric])
    assert differ(config, 1.0, 7.6, 500) is told  # five examples of 500
    assert differ(config, 5.0, 7.6, 500)
