"""The arms that a GPU day runs: each makes a sound experiment, and none gets more tries than another."""

from argparse import Namespace
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from benchmarks.common.paths import CONFIGS
from benchmarks.papers import correlations, dual_encoder_choice, fedalc, fedmlh, fedss_arms, sensitivity
from benchmarks.papers.two_stage import Candidate, experiment_of
from benchmarks.papers.user_errors import by_item_knn, error_by_user, of_item_knn, without
from benchmarks.quote.fedmlh import _sent_until
from spreadout.config.effect import idle_keys
from spreadout.config.values import overlay
from spreadout.core.errors import UserError
from spreadout.evaluation.metrics import hits
from spreadout.evaluation.references import references_of
from toys import shop

HELD = {"data": {"validation_fraction": 0.2}, "eval": {"split": "validation"}}
SUITES: dict[str, tuple[Path, dict[str, Candidate]]] = {
    **{
        f"fedalc on {name}": (CONFIGS / "fedalc" / f"{name}-base.toml", fedalc.arms_of(name))
        for name in correlations.SETS
    },
    **{
        f"linear on {name}": (correlations.base_of(name, linear=True), fedalc.linear_arms_of(name))
        for name in correlations.SETS
    },
    "fewer points": (
        correlations.base_of("bibtex", linear=True),
        fedalc.fewer(fedalc.linear_arms_of("bibtex"), 3),
    ),
    "pairs on Delicious": (
        correlations.base_of("delicious", linear=True),
        correlations.arms(["all-hinge", "k5-hinge"], 5, name="delicious"),
    ),
    "correlations": (fedalc.BASE, correlations.arms(tuple(correlations.PUSHED), 5)),
    **{name: (fedss_arms.BASE, fedss_arms.arms(name)) for name in fedss_arms.STUDIES},
    **{shape: (CONFIGS / "fedmlh" / f"{shape}.toml", fedmlh.arms(shape)) for shape in fedmlh.SHAPES},
    **{
        name: (dual_encoder_choice.base_of(name), dual_encoder_choice.candidates(name))
        for name in dual_encoder_choice.CHOICES
    },
}


@pytest.mark.parametrize("suite", SUITES)
def test_arms_are_sound_and_have_equally_many_points(suite: str) -> None:
    base, arms = SUITES[suite]
    assert len({len(arm.points()) for name, arm in arms.items() if name not in fedalc.DEEP}) == 1
    for name, arm in arms.items():
        points = arm.points()
        assert len(dict(points)) == len(points)  # every point has a name of its own
        for point, changes in (points[0], points[-1]):
            made = experiment_of(base, f"{name}-{point}", changes, HELD)
            assert not idle_keys(made)


@pytest.mark.parametrize("shape", fedmlh.SHAPES)
def test_the_published_law_of_labels_fits_the_shapes(shape: str) -> None:
    base, arms = SUITES[shape]
    law = overlay(fedmlh.matched(shape), fedmlh.fewer(5000))
    made = experiment_of(base, shape, overlay(arms["fedmlh"].points()[0][1], law), HELD)
    source = made.data.source
    assert (source.law, source.examples) == ("matched", 5000)  # type: ignore[attr-defined]
    assert not idle_keys(made)


def test_knobs_are_turned_one_at_a_time() -> None:
    suite = sensitivity.suite_of("delicious", 2)
    assert not any(idle_keys(one) for one in suite.variants.values())
    for name, one in suite.variants.items():  # invented entries hide sizes, which weights would tell
        assert one.method.weighting == ("uniform" if name.startswith("dummies") else "examples")
    assert len({repr(one.method) for one in suite.variants.values()}) > len(suite.variants) - 4


def test_an_error_by_users_is_what_drawing_users_again_gives() -> None:
    draw = torch.Generator().manual_seed(0)
    sizes = torch.randint(5, 60, (80,), generator=draw)
    user = torch.repeat_interleave(torch.arange(80), sizes)
    taste = torch.rand(80, generator=draw)[user]  # a user's examples are alike
    right = (torch.rand(len(user), generator=draw) < taste).double()
    found, asked = (
        torch.zeros(80).double().index_add(0, user, v) for v in (right, torch.ones_like(right))
    )
    again = torch.randint(80, (4000, 80), generator=draw)
    spread = (found[again].sum(1) / asked[again].sum(1)).std()
    alone = (right.mean() * (1 - right.mean()) / len(right)).sqrt()  # as if examples were independent
    assert error_by_user(right, user * 7) == pytest.approx(float(spread), rel=0.06)
    assert error_by_user(right, user) > 2 * float(alone)


def test_item_knns_error_is_that_of_the_reference() -> None:
    data = shop(users=40)
    recalls = references_of(data, ["R@1", "R@5"])["item-kNN"].metrics
    right = hits(by_item_knn(data, data.test), data.test.labels)
    found = {f"R@{k}": 100 * float(right[:, :k].any(1).double().mean()) for k in (1, 5)}
    assert found == pytest.approx(recalls)
    users = torch.arange(len(data.test)) // 4
    errors = of_item_knn(data, replace(data.test, user=users))
    assert errors["R@1"] == pytest.approx(100 * error_by_user(right[:, 0].float(), users))


def test_items_of_the_history_come_behind_all_others() -> None:
    ranking, histories = torch.tensor([[3, 1, 2, 4], [2, 4, 1, 3]]), torch.tensor([[3, 2], [9, -1]])
    assert without(ranking, histories).tolist() == [[1, 4, 3, 2], [2, 4, 1, 3]]


def test_what_is_sent_until_a_share_of_the_best() -> None:
    rising = [0.0, 90.0, 96.0, 100.0, 99.0]
    curve = {"bytes": [0.0, 1.0, 2.0, 3.0, 4.0], **{f"P@{k}": rising for k in (1, 3, 5)}}
    assert [_sent_until(curve, share * 100) for share in (0.95, 0.99, 1.0, 1.01)] == [2, 3, 3, None]


def test_the_studies_of_fedss_have_what_the_paper_compares() -> None:
    for study, changes in ((name, fedss_arms.changes_of(name)) for name in fedss_arms.STUDIES):
        name, arm = next(iter(fedss_arms.arms(study).items()))
        made = experiment_of(fedss_arms.BASE, name, overlay(arm.points()[0][1], changes), HELD)
        assert not idle_keys(made)
        mobile = study in ("mobilenet", fedss_arms.ONE_STEP)
        assert made.model.encoder == ("mobilenet_v3_large" if mobile else "convnet")
        assert getattr(made.data.source, "drawings", 20) == (5 if study.endswith("-5") else 20)
        short = {**dict.fromkeys(fedss_arms.REDUCED, (25, 800)), fedss_arms.ONE_STEP: (100, 800)}
        assert (made.clients.batch, fedss_arms.rounds_of(study)) == short.get(study, (32, None))
        assert made.eval.patience == (None if study in short else 6)
    merges = {arm.changes["method"]["merge"] for arm in fedss_arms.arms("matched").values()}
    assert merges == {"weighted-mean", "sum"}


def test_numbers_of_single_shapes() -> None:
    given = {"seeds": ["1", "wiki31=3"], "rounds": ["wiki31=40"], "held": [], "examples": []}
    asked = Namespace(tuning_rounds=["6"], **given)
    wiki, other = (fedmlh.of_shape(asked, shape) for shape in ("wiki31", "amztitle"))
    assert (wiki.seeds, wiki.rounds, wiki.tuning_rounds, wiki.held) == (3, 40, 6, 0.1)
    assert (other.seeds, other.rounds, other.tuning_rounds, other.examples) == (1, None, 6, None)


@pytest.mark.parametrize("word", ["0", "x", "wiki=3", "1.5", "nan", "wiki31="])
def test_a_number_of_no_shape_is_refused(word: str) -> None:
    asked = Namespace(seeds=[word], rounds=[], held=[], examples=[], tuning_rounds=[])
    with pytest.raises(UserError, match="--seeds"):
        fedmlh.of_shape(asked, "wiki31")


def test_mined_arms_have_the_papers_neighbours_on_each_set() -> None:
    found = {name: fedalc.arms_of(name)["fedalc-mined"] for name in correlations.SETS}
    assert {name: one.changes["method"]["k"] for name, one in found.items()} == {
        "bibtex": 5,
        "delicious": 5,
        "eurlex-shape": 10,
    }
    assert found["eurlex-shape"].label == "FedALC, K = 10"
