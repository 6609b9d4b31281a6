"""Faults are told apart by their signs; fine runs are not accused."""

from typing import Any

import numpy as np
import pytest
import torch

import spreadout as so
from faulty import PLAIN, blobs
from spreadout.evaluation.activity import Activity, activity_of
from spreadout.evaluation.config import EvalConfig
from spreadout.evaluation.prior_alone import ALONE
from spreadout.evaluation.references import Copies, Reference
from spreadout.evaluation.references.features import Form
from spreadout.runs import diagnosis
from spreadout.runs.alike import alike
from spreadout.runs.diagnosis import AT_A_LOSS, RARE, diagnose
from spreadout.runs.far_below import Setting, far_below, one_answer
from spreadout.runs.finding import differ

P1 = EvalConfig()


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


def test_a_swing_of_few_examples_is_chance() -> None:
    swinging = history([10.0, 40, 20, 45, 15, 40, 12, 44], norms=[8, 9, 10, 11, 12, 13, 14, 15])
    assert "swings" in str(diagnosis.divergence(P1, swinging, examples=1000))
    assert diagnosis.divergence(P1, swinging, examples=5) is None


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
    for patience, said in ((1, True), (4, True), (5, False), (10, False)):  # who waited long is done
        waited = P1.model_copy(update={"patience": patience})
        assert (diagnosis.unfinished(waited, history(rising), 500) is not None) == said
        assert diagnosis.unfinished(waited, history(rising), 100) is not None  # it was not stopped
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


@pytest.mark.parametrize(
    ("activity", "remedy"),
    [
        (Activity(0.0, "2", 0.5), None),
        (Activity(0.5, "2", 0.5), None),
        (Activity(0.7, "2", 0.5), "lower clients.lr"),
        (Activity(0.5, "2", 0.9), "lower clients.lr"),
        (Activity(0.0, "", 0.99), None),
        (Activity(0.9, "2", 0.99, offset=8.0), "subtract the mean"),
        (Activity(0.9, "2", None, offset=1.0), "lower clients.lr"),
    ],
)
def test_dead_units_by_what_is_measured(activity: Activity, remedy: str | None) -> None:
    found = diagnosis.dead_units(activity)
    assert (found is None) == (remedy is None)
    assert found is None or remedy in found.remedy  # type: ignore[operator]


@pytest.mark.parametrize(
    ("activity", "growth", "rounds", "remedy"),
    [
        (Activity(0.0, "", 0.97), 1.0, 50, None),
        (Activity(0.0, "", 0.99), 1.0, 50, "set rounds = 200"),
        (Activity(0.0, "", 0.99), 1.0, 80, "raise eval.patience"),
        (Activity(0.0, "", 0.99), 1.4, 50, "lower clients.lr and clients.row_lr tenfold"),
        (Activity(0.0, "", 0.99, offset=8.0), 1.0, 50, "subtract the mean"),
    ],
)
def test_embeddings_alike_by_how_far_training_came(
    activity: Activity, growth: float, rounds: int, remedy: str | None
) -> None:
    level = history([30.0] * 6, norms=[8.0, *[8.0 * growth] * 5])
    found = alike(P1, level, activity, rounds)
    assert (found is None) == (remedy is None)
    assert found is None or remedy in found.remedy  # type: ignore[operator]
    # Alike because their classes are: that is collapse.
    together = diagnose(P1, level, rounds=rounds, activity=activity, collapse_advice="near; push")
    assert [one.name for one in together] == ["collapse"]


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
        so.run(
            so.Experiment.of({**asked, "clients": {"local_steps": 1, "lr": lr, "row_lr": 0.1}}),
            data=data,
        )
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
    known_of: dict[str, Any] = {"rounds": 50, "references": known}
    found = diagnose(P1, level, examples=500, activity=Activity(0.02, "2", 0.999), **known_of)
    assert [one.name for one in found] == ["far below a reference"]
    for examples, scores in ((60, level), (500, history([48.0, 49, 48, 48.5, 48.2, 48.4]))):
        found = diagnose(P1, scores, examples=examples, activity=Activity(0.02, "2", 0.999), **known_of)
        assert [one.name for one in found] == ["embeddings alike"]
    # Units that never fire are another thing: capacity is lost, and another model shows it.
    found = diagnose(P1, level, examples=500, activity=Activity(0.7, "2", 0.5), **known_of)
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


def known(best: float, form: Form | None = None, floor: float = 10.0) -> dict[str, Reference]:
    return {
        "most frequent": Reference("most frequent", {"P@1": floor}, is_trivial=True),
        "ridge": Reference("ridge", {"P@1": best}, form=form),
    }


@pytest.mark.parametrize(
    ("ours", "best", "examples", "told"),
    [
        (60.0, 80.0, 500, True),
        (76.0, 80.0, 10_000, False),  # the price of a federation
        (71.0, 80.0, 10_000, True),
        (71.0, 80.0, 150, False),  # chance
        (60.0, 80.0, 30, False),
        (20.0, 80.0, 14, True),
        (20.0, 60.0, 14, False),  # six rows
        (80.0, 60.0, 500, False),  # better
        (60.0, 80.0, 0, False),  # nobody knows how many
    ],
)
def test_far_below_is_far_and_no_chance(ours: float, best: float, examples: int, told: bool) -> None:
    found = far_below(P1, history([10.0, ours]), known(best), examples, "try")
    assert (found is not None) == told
    if found is not None:
        assert found.sign == f"P@1 is {ours:.2f}, ridge in one place has {best:.2f}"
        assert found.remedy == "try"


def test_what_wavers_by_nobody_knows_how_much_is_never_far_below() -> None:
    ranks = EvalConfig(metrics=["mean rank"])
    records = [{"round": i, "mean rank": value} for i, value in enumerate([90.0, 50.0])]
    other = {"ridge": Reference("ridge", {"mean rank": 2.0})}
    assert far_below(ranks, records, other, 1000, "try") is None


@pytest.mark.parametrize(
    ("form", "setting", "advised"),
    [
        ("raw", {"wide": True, "standardised": True}, "input_scaling"),
        ("raw", {"wide": True, "standardised": True, "centred": False}, "set server.optimizer"),
        ("raw", {"wide": True}, "set server.optimizer"),
        (
            "standard",
            {"wide": True, "standardised": True, "hidden": True},
            "set model.hidden = [], server",
        ),
        ("unit", {"wide": True, "standardised": True}, "set server.optimizer"),
        ("raw", {"standardised": True, "hidden": True}, "model.hidden = []"),
        ("standard", {}, "set server.optimizer"),
        ("standard", {"wide": True, "hidden": True, "adam": False}, "try clients.lr"),
        (None, {"wide": True, "unpushed": True}, "fedaws"),
        (
            None,
            {"adam": False, "rates_chosen": True, "has_central": True},
            "ridge is the better model here",
        ),
        (None, {"adam": False, "rates_chosen": True}, "ridge may be the better model here"),
    ],
)
def test_what_is_advised_far_below_follows_from_its_cause(
    form: Form | None, setting: dict[str, bool], advised: str
) -> None:
    level = history([10.0, 50, 60, 60, 60, 60])
    given = Setting(**{"adam": True, **setting})
    (found,) = diagnose(P1, level, rounds=50, examples=500, references=known(80, form), setting=given)
    assert advised in found.remedy


def test_far_below_is_said_where_nothing_else_explains_it() -> None:
    level = history([10.0, 50, 60, 60, 60, 60])
    of: dict[str, Any] = {"rounds": 50, "examples": 500, "references": known(80)}
    assert [one.name for one in diagnose(P1, level, **of)] == ["far below a reference"]
    (fallen,) = diagnose(P1, level, **of, collapse_advice="near; push")
    assert fallen.name == "collapse"
    for copies, more in ((99, ["far below a reference"]), (100, [])):  # of 500, and 20 points ahead
        leaked = diagnose(P1, level, **of, copies=Copies(copies, 500))
        assert [one.name for one in leaked] == ["rows in both parts", *more]
    below = {**of, "references": known(80, floor=70)}
    assert [one.name for one in diagnose(P1, level, **below)] == ["below a trivial reference"]


@pytest.mark.parametrize(
    ("best", "examples", "told"),
    [(92.0, 100, True), (91.9, 100, False), (90.0, 100, False), (92.0, 50, False), (97.0, 60, True)],
)
def test_one_answer_is_a_fault_where_a_reference_tells_some_apart(
    best: float, examples: int, told: bool
) -> None:
    level, references = history([90.0, 90]), known(best, floor=90)
    found = one_answer(P1, level, references, examples, "oak", "try")
    assert (found is not None) == told
    if found is not None:
        assert found.sign.startswith("all examples are taken for oak, and they are of several classes; ")


@pytest.mark.parametrize(
    ("metrics", "best", "remedy"),
    [
        (["P@1", "balanced_accuracy"], 90.5, RARE),  # no reference is much better
        (["P@1", "balanced_accuracy"], 97.0, AT_A_LOSS),  # one is
        (["P@1"], 90.5, None),  # classes are about as frequent
        (["balanced_accuracy", "P@1"], 90.5, None),  # it is judged by that already
    ],
)
def test_one_answer_that_is_hard_to_beat_is_said_where_a_class_is_far_more_frequent(
    metrics: list[str], best: float, remedy: str | None
) -> None:
    level = [{**one, "balanced_accuracy": 90.0} for one in history([10.0, 90, 90, 90, 90, 90])]
    config = P1.model_copy(update={"metrics": metrics})
    references = known(best, floor=90)
    for one in references.values():
        one.metrics["balanced_accuracy"] = one.metrics["P@1"]
    of: dict[str, Any] = {"rounds": 50, "examples": 100, "references": references}
    found = diagnose(config, level, **of, only_answer="oak")
    assert [(one.name, one.remedy) for one in found] == ([("one answer", remedy)] if remedy else [])
    if best < 91:
        assert not diagnose(config, level, **of)  # several answers


def test_what_is_advised_to_one_answer_follows_from_its_cause() -> None:
    level = history([90.0, 90])
    assert one_answer(P1, level, known(97), 100, "oak", "try").remedy == "try"  # type: ignore[union-attr]
    weighed = [{**record, "prior": 0.5} for record in level]
    for alone, remedy in ((False, "method.prior = 0"), (True, '"fedss"')):
        found = one_answer(P1, weighed, known(97), 100, "oak", "try", Setting(alone=alone))
        assert found is not None
        assert remedy in found.remedy


@pytest.mark.parametrize(
    ("best", "setting", "advised"),
    [
        (95.0, {"alone": True}, "fedss"),
        (95.0, {"alone": True, "adam": True, "wide": True}, "sgd"),
        (95.0, {}, "try other rates"),
        (61.0, {"alone": True, "adam": True, "wide": True}, "fedss"),  # two rows
        (60.5, {"alone": True, "adam": True, "wide": True}, "try other rates"),  # one
    ],
)
def test_unused_inputs_are_worth_more_where_a_reference_uses_them(
    best: float, setting: dict[str, bool], advised: str
) -> None:
    level = [{**one, "prior": ALONE} for one in history([60.0] * 6)]
    given = Setting(**setting)
    (found,) = diagnose(
        P1, level, rounds=50, examples=200, references=known(best, floor=60), setting=given
    )
    assert found.name == "inputs unused"
    assert found.remedy.startswith(("try", "set"))
    assert advised in found.remedy
