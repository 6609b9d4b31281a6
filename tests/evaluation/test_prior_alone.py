"""Models that know no more than what is frequent: they answer that, and say so."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import spreadout as so
from spreadout.evaluation import cautious_prior, prior_alone
from spreadout.evaluation.cautious_prior import LIKELIER, STEEPNESS, likelier_weight
from spreadout.evaluation.prior_alone import ALONE, is_more
from spreadout.runs import diagnosis

SHARES = (0.7, 0.2, 0.1)


def table(rows: int, signal: float, seed: int, place: Path, shares: tuple[float, ...] = SHARES) -> Path:
    """Classes of these shares; signal: how far apart they are, in standard deviations."""
    rng = np.random.default_rng(seed)
    y = rng.choice(len(shares), rows, p=shares)
    x = rng.normal(size=(rows, 4)) + signal * np.eye(4)[y]
    path = place / f"{rows}-{signal}-{seed}.npz"
    np.savez(path, x=x.astype(np.float32), y=y)
    return path


def ended(path: Path, method: str, *changes: str, seed: int = 0) -> so.Result:
    values: dict[str, Any] = {
        "seed": seed,
        "data": {"source": "npz", "path": str(path)},
        "method": {"name": method},
        "rounds": 100,
    }
    return so.run(so.Experiment.of(values, overrides=changes), device="cpu", progress=False)


def found(result: so.Result) -> list[str]:
    return [one["name"] for one in result.summary["findings"]]


@pytest.mark.parametrize("method", ["fedaws", "fedss", "fedavg", "centralized"])
@pytest.mark.parametrize("seed", range(3))
def test_where_inputs_say_nothing_no_default_run_is_below_the_most_frequent(
    method: str, seed: int, tmp_path: Path
) -> None:
    result = ended(table(400, 0.0, seed, tmp_path), method, seed=seed)
    trivial = result.references["most frequent"].metrics["P@1"]
    assert result.metrics["P@1"] == trivial
    assert result.summary["prior"]["weight"] == ALONE
    assert found(result)[-1] == "inputs unused"


@pytest.mark.parametrize("method", ["fedaws", "fedss"])
def test_a_model_that_knows_more_ranks_by_what_it_knows(method: str, tmp_path: Path) -> None:
    result = ended(table(400, 3.0, 0, tmp_path), method)
    assert result.metrics["P@1"] > result.references["most frequent"].metrics["P@1"] + 15
    assert result.summary["prior"]["weight"] < 1
    assert "inputs unused" not in found(result)


def test_where_rare_classes_are_to_count_they_are_found(tmp_path: Path) -> None:
    """The remedy: by P@1 one answer to everything is hard to beat, by balanced accuracy easily."""
    path = table(1200, 1.5, 0, tmp_path, (0.96, 0.04))
    usual = ended(path, "fedaws")
    said = {one["name"]: one["remedy"] for one in usual.summary["findings"]}
    assert said["inputs unused"].startswith(f"{diagnosis.RARE}; else ")
    alike = ended(path, "fedaws", 'eval.metrics=["balanced_accuracy", "P@1"]')
    assert "inputs unused" not in found(alike)
    assert not any("prior" in record for record in alike.history)  # none at all
    assert alike.metrics["balanced_accuracy"] > usual.metrics["balanced_accuracy"] + 20
    asked = ended(path, "fedaws", 'eval.metrics=["balanced_accuracy"]', "method.prior=0.03", "rounds=2")
    assert {record["prior"] for record in asked.history} == {0.03}


def test_a_weight_that_is_set_stays(tmp_path: Path) -> None:
    result = ended(table(400, 0.0, 0, tmp_path), "fedaws", "method.prior=0.03")
    assert {record["prior"] for record in result.history} == {0.03}


def test_what_is_kept_ranks_as_it_was_scored(tmp_path: Path) -> None:
    path = table(400, 0.0, 0, tmp_path)
    result = ended(path, "fedaws")
    answers = result.predict(np.load(path)["x"][:20], top=1)
    assert len({guess.name for (guess,) in answers}) == 1


def test_a_larger_validation_part_tells_more_surely(tmp_path: Path) -> None:
    """The remedy: of a dozen rows nobody can tell that a weak model knows anything."""
    path = table(800, 0.5, 5, tmp_path)
    few = ended(path, "fedaws", "data.validation_fraction=0.02", "rounds=auto")
    assert found(few) == ["inputs unused"]
    assert few.summary["findings"][0]["remedy"].endswith("a larger data.validation_fraction tells more")
    more = ended(path, "fedaws", "data.validation_fraction=0.3", "rounds=auto")
    assert "inputs unused" not in found(more)
    assert more.metrics["P@1"] >= few.metrics["P@1"]


def test_of_a_dozen_rows_their_likelihood_tells_what_their_number_cannot(tmp_path: Path) -> None:
    result = ended(
        table(800, 1.5, 0, tmp_path), "fedaws", "data.validation_fraction=0.02", "rounds=auto"
    )
    assert "inputs unused" not in found(result)
    assert result.metrics["P@1"] > result.references["most frequent"].metrics["P@1"] + 5


@pytest.mark.parametrize("shares", [(0.4, 0.3, 0.3), (0.5, 0.3, 0.2)])
def test_a_dozen_rows_are_no_reason_to_drop_a_model_where_the_frequent_are_seldom_right(
    shares: tuple[float, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Twelve rows often cannot tell such a model from chance: the prior alone ranked then."""
    paths = [table(170, 0.7, seed, tmp_path, shares) for seed in range(5)]
    now = [ended(path, "fedaws", seed=seed) for seed, path in enumerate(paths)]
    monkeypatch.setattr(prior_alone, "SELDOM", 0.0)
    careful = [ended(path, "fedaws", seed=seed) for seed, path in enumerate(paths)]
    gained = [a.metrics["P@1"] - b.metrics["P@1"] for a, b in zip(now, careful, strict=True)]
    assert min(gained) >= 0
    assert sum(gained) > 10
    dropped = [result for result in careful if result.history[-1]["prior"] == ALONE]
    assert len(dropped) > sum(result.history[-1]["prior"] == ALONE for result in now)


def test_a_softmax_over_others_and_a_prior_that_is_often_right_keep_their_caution(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[float] = []

    def likeliest(*args: object, beyond: float, **kwargs: object) -> None:
        asked.append(beyond)

    monkeypatch.setattr(cautious_prior, "likeliest", likeliest)
    even, uneven = table(400, 0.0, 0, tmp_path, (0.5, 0.3, 0.2)), table(400, 0.0, 1, tmp_path)
    for path, method, beyond in (
        (even, "fedaws", 0.0),
        (even, "fedss", LIKELIER),
        (uneven, "fedaws", LIKELIER),
    ):
        asked.clear()
        ended(path, method, "rounds=10")
        assert set(asked) == {beyond}


def test_the_likeliest_weight_is_taken_where_it_beats_the_counts_beyond_chance() -> None:
    """Two classes: of n examples r are right by a cosine of 1, so κ = log(r / (n − r)), by hand."""
    even = torch.zeros(40, 2)
    right = torch.eye(2).repeat(20, 1)
    for wrong in range(1, 20):
        cosines = torch.cat([1 - right[:wrong], right[wrong:]])
        share = 1 - wrong / 40
        kappa = math.log(share / (1 - share))
        gain = 40 * (math.log(2) + share * math.log(share) + (1 - share) * math.log(1 - share))
        weight = likelier_weight(cosines, right, even)
        if abs(2 * gain - LIKELIER) > 0.5:  # κ is one of a grid
            assert (weight is not None) == (2 * gain > LIKELIER)
        if weight is not None:
            assert abs(math.log(1 / weight / kappa)) < 0.25  # the next of the grid


def test_the_likeliest_weight_is_that_of_the_whole_sum_of_likelihoods() -> None:
    torch.manual_seed(0)
    labels = torch.randint(3, (60,))
    right = torch.nn.functional.one_hot(labels, 3).float()
    scores, bias = torch.randn(60, 3) * 0.2 + 0.2 * right, torch.log(torch.tensor([3.0, 2.0, 1.0]))
    sums = {
        kappa: sum(
            kappa * float(scores[i, labels[i]])
            + float(bias[labels[i]])
            - math.log(sum(math.exp(kappa * float(scores[i, c]) + float(bias[c])) for c in range(3)))
            for i in range(60)
        )
        for kappa in (0, *STEEPNESS)
    }
    best = max(sums, key=lambda kappa: sums[kappa])
    assert 2 * (sums[best] - sums[0]) > LIKELIER
    assert likelier_weight(scores, right, bias.expand_as(scores)) == 1 / best


@pytest.mark.parametrize("known", [0.0, 0.5, 1.0])
def test_an_exponent_leaves_room_for_what_scores_know_of_the_frequent(known: float) -> None:
    """Scores are logits that hold so much of log n_c: the rest is what a prior is to add."""
    generator = torch.Generator().manual_seed(0)
    prior = torch.tensor([0.7, 0.2, 0.1]).log()
    logits = torch.randn(3000, 3, generator=generator) + prior
    drawn = torch.multinomial(logits.softmax(1), 1, generator=generator)[:, 0]
    right = torch.nn.functional.one_hot(drawn, 3).float()
    scores, bias = logits - (1 - known) * prior, prior.expand_as(logits)
    weight = likelier_weight(scores, right, bias, 1 - known)
    assert weight == pytest.approx(1 - known)
    whole = likelier_weight(scores, right, bias)
    assert whole is not None
    assert whole == 1.0 if known == 0 else whole > 1 - known + 0.1


def test_the_counts_alone_are_as_likely_with_the_same_exponent() -> None:
    """Cosines that say nothing gain nothing, however much flatter counts are likelier."""
    right = torch.eye(2).repeat(30, 1)
    bias = torch.tensor([4.0, 0.0]).expand_as(right)  # counts are wrong: both are as frequent
    scores = torch.randn(60, 2, generator=torch.Generator().manual_seed(0)) * 0.01
    assert likelier_weight(scores, right, bias, 0.5) is None
    shares = torch.tensor([0.7, 0.2, 0.1])  # and here scores know no more than the counts do
    known = torch.eye(3).repeat_interleave(torch.tensor([70, 20, 10]), 0)
    assert (
        likelier_weight(shares.log().expand_as(known), known, shares.log().expand_as(known), 0.5) is None
    )


@pytest.mark.parametrize(
    ("method", "learns"),
    [("fedaws", False), ("fedalc", False), ("fedss", True), ("fedavg", True), ("centralized", True)],
)
def test_losses_over_classes_of_others_learn_what_is_frequent(
    method: str, learns: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[bool] = []

    def likeliest(*args: object, learnt: bool, **kwargs: object) -> float:
        asked.append(learnt)
        return 0.0

    monkeypatch.setattr(cautious_prior, "likeliest", likeliest)
    ended(table(200, 0.0, 0, tmp_path), method, "rounds=10")
    assert set(asked) == {learns}


@pytest.mark.parametrize("method", ["fedaws", "fedss"])
def test_label_sets_are_ranked_by_a_model_that_knows_the_labels_after_the_first(
    method: str,
) -> None:
    """All have the first label, and no input is needed for that; the others are told by inputs."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(300, 6)).astype(np.float32)
    labels = [[0, *(1 + np.argsort(-one)[:2])] for one in x]
    parts = [slice(0, 200), slice(200, 250), slice(250, 300)]
    held = [so.Examples.from_arrays(x[part], labels[part]) for part in parts[1:]]
    rows = [(i, label) for i in range(200) for label in labels[i]]
    at, y = (np.array(column) for column in zip(*rows, strict=True))
    data = so.Splits("sets", so.FederatedDataset.from_arrays(x[at], y, client=y), *held)
    result = so.run({"method": {"name": method}, "rounds": 60}, data=data, device="cpu", progress=False)
    assert result.metrics["P@1"] == 100  # as the prior has
    assert result.history[-1]["prior"] != ALONE
    assert result.metrics["P@3"] > result.references["most frequent"].metrics["P@3"] + 10


def test_equally_frequent_classes_have_no_prior_to_fall_back_on(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    y = np.repeat(np.arange(4), 60)
    x = rng.normal(size=(240, 4)).astype(np.float32)
    data = so.FederatedDataset.from_arrays(x, y, client=y)
    held = [so.Examples.from_arrays(x[i::6], y[i::6]) for i in (0, 1)]
    result = so.run({"rounds": 10}, data=so.Splits("even", data, *held), device="cpu", progress=False)
    assert all(record["prior"] < 1 for record in result.history)


def test_better_is_beyond_two_standard_errors() -> None:
    for n in (10, 30, 100):
        assert not is_more(torch.zeros(n))
        assert not is_more(-torch.ones(n))
        assert is_more(torch.ones(n))
    balanced = torch.tensor([1.0, -1.0] * 20 + [1.0])
    assert not is_more(balanced)
    assert not is_more(torch.tensor([1.0] * 59 + [-1.0] * 41))  # 0.18, and the error is 0.1
    assert is_more(torch.tensor([1.0] * 62 + [-1.0] * 38))


def test_labels_that_nobody_has_trained_say_nothing_of_the_model(tmp_path: Path) -> None:
    """Validation examples of other classes are right under no rule: that is no reason for the prior."""
    rng = np.random.default_rng(0)
    y = rng.choice(3, 300, p=SHARES)
    x = (rng.normal(size=(300, 4)) + 3 * np.eye(4)[y]).astype(np.float32)
    train = so.FederatedDataset.from_arrays(x[:200], y[:200], client=y[:200], classes=3)
    strange = so.Examples.from_arrays(x[200:240], np.full(40, 3))
    data = so.Splits("toy", train, so.Examples.from_arrays(x[240:], y[240:]), validation=strange)
    e = so.Experiment.of({"rounds": 40, "method": {"name": "fedaws"}, "eval": {"metrics": ["P@1"]}})
    result = so.run(e, data=data, device="cpu", progress=False)
    assert result.metrics["P@1"] > 80
