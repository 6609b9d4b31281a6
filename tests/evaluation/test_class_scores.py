"""Metrics by class: the same numbers as scikit-learn's, and refused where they mean nothing."""

import re
import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import (
    balanced_accuracy_score,
    f1_score,
    precision_recall_fscore_support,
    roc_auc_score,
)
from sklearn.preprocessing import MultiLabelBinarizer

import spreadout as so
from spreadout.core.ragged import Ragged
from spreadout.evaluation.metric import MetricInputs
from spreadout.evaluation.metrics import (
    balanced_accuracy,
    class_counts_at,
    compute,
    macro_auc,
    macro_f1_at,
    micro_f1_at,
)
from spreadout.report.class_table import MOST, class_tables
from spreadout.runs.arms import arms_of
from toys import label_sets, label_sets_config, several_classes, shop, shop_config

SEEDS = st.integers(0, 2**20)


def one_label(seed: int, n: int = 40, classes: int = 5) -> tuple[np.ndarray, np.ndarray]:
    """Right classes, a few of them rare or missing, and a ranking of all classes."""
    rng = np.random.default_rng(seed)
    chance = rng.dirichlet(np.full(classes, 0.5))
    y = rng.choice(classes, n, p=chance)
    ranked = np.stack([rng.permutation(classes) for _ in range(n)])
    return y, ranked


def sets_of(seed: int, n: int = 30, classes: int = 6) -> list[list[int]]:
    rng = np.random.default_rng(seed)
    return [rng.choice(classes, rng.integers(0, 4), replace=False).tolist() for _ in range(n)]


@settings(deadline=None, max_examples=60)
@given(SEEDS)
def test_one_label_as_scikit_learn_has_it(seed: int) -> None:
    y, ranked = one_label(seed)
    labels, found = Ragged.from_lists([[int(c)] for c in y]), torch.from_numpy(ranked)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # classes that are predicted and never right
        assert balanced_accuracy(found, labels) == pytest.approx(
            100 * balanced_accuracy_score(y, ranked[:, 0])
        )
    macro = 100 * f1_score(y, ranked[:, 0], average="macro")
    assert macro_f1_at(found, labels, 1) == pytest.approx(macro)
    assert compute("macro_f1", found, labels) == pytest.approx(macro)
    assert micro_f1_at(found, labels, 1) == pytest.approx(100 * np.mean(y == ranked[:, 0]), rel=1e-12)


@settings(deadline=None, max_examples=60)
@given(SEEDS, st.integers(1, 4))
def test_label_sets_as_scikit_learn_has_them(seed: int, k: int) -> None:
    sets = sets_of(seed)
    _, ranked = one_label(seed, len(sets), 6)
    kept = [i for i, labels in enumerate(sets) if labels]  # without a label nothing is known
    coded = MultiLabelBinarizer(classes=range(6))
    y = coded.fit_transform([sets[i] for i in kept])
    guess = coded.transform(ranked[kept, :k])
    there = (y.any(0) | guess.any(0)).nonzero()[0].tolist()
    labels, found = Ragged.from_lists(sets), torch.from_numpy(ranked)
    macro = f1_score(y, guess, average="macro", labels=there, zero_division=0)
    assert macro_f1_at(found, labels, k) == pytest.approx(100 * macro)
    micro = f1_score(y, guess, average="micro", zero_division=0)
    assert compute(f"micro_f1@{k}", found, labels) == pytest.approx(100 * micro, rel=1e-12)


def coarse(rng: np.random.Generator, *shape: int) -> torch.Tensor:
    """Few different numbers, exact in 32 bits in every order of sums: many scores are level."""
    return torch.from_numpy(rng.integers(-2, 3, shape).astype(np.float32))


@settings(deadline=None, max_examples=60)
@given(SEEDS, st.sampled_from([2, 3, 7]))
def test_one_against_the_rest_as_scikit_learn_has_it(seed: int, classes: int) -> None:
    rng = np.random.default_rng(seed)
    y, _ = one_label(seed, 30, classes)
    embedded, rows = coarse(rng, 30, 3), coarse(rng, classes + 1, 3)
    scores = (embedded @ rows[1:].T).numpy()  # the first row is padding
    margin = np.stack([scores[:, c] - np.delete(scores, c, 1).max(1) for c in range(classes)], 1)
    each = [roc_auc_score(y == c, margin[:, c]) for c in np.unique(y) if (y != c).any()]
    found = macro_auc(embedded, rows, Ragged.from_lists([[int(c) + 1] for c in y]), first=1)
    if not each:
        assert np.isnan(found)
        return
    assert found == pytest.approx(100 * np.mean(each))
    if classes == 2:  # the usual curve of two classes, by the chance that a softmax gives
        # Margins are whole numbers up to 24: level ones stay level, and e⁻²⁴ is told from e⁻²³.
        chance = torch.from_numpy(scores).double().softmax(1)[:, 1].numpy().round(13)
        assert found == pytest.approx(100 * roc_auc_score(y, chance))


@settings(deadline=None, max_examples=40)
@given(SEEDS)
def test_label_sets_against_the_rest_as_scikit_learn_has_it(seed: int) -> None:
    rng, sets = np.random.default_rng(seed), sets_of(seed)
    sets[0], sets[1] = [0, 1], [2]  # there are sets, whatever is drawn
    embedded, rows = coarse(rng, len(sets), 3), coarse(rng, 6, 3)
    kept = [i for i, labels in enumerate(sets) if labels]
    y = MultiLabelBinarizer(classes=range(6)).fit_transform([sets[i] for i in kept])
    scores = (embedded[kept] @ rows.T).numpy()
    each = [roc_auc_score(y[:, c], scores[:, c]) for c in range(6) if 0 < y[:, c].sum() < len(y)]
    assert macro_auc(embedded, rows, Ragged.from_lists(sets)) == pytest.approx(100 * np.mean(each))


def test_curves_are_the_same_in_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    y, _ = one_label(0, 50, 9)
    embedded, rows, labels = coarse(rng, 50, 4), coarse(rng, 9, 4), Ragged.from_lists([[c] for c in y])
    whole = macro_auc(embedded, rows, labels)
    monkeypatch.setattr("spreadout.evaluation.class_scores.RANKED_AT_ONCE", 8 * 50 * 2)
    assert macro_auc(embedded, rows, labels) == whole


def test_only_classes_that_occur_are_looked_at() -> None:
    labels, ranked = Ragged.from_lists([[10**12], [5]]), torch.tensor([[10**12], [7]])
    assert [len(part) for part in class_counts_at(ranked, labels, 1)] == [3, 3, 3]
    assert balanced_accuracy(ranked, labels) == 50.0


@pytest.mark.parametrize("name", ["balanced_accuracy", "macro_f1"])
def test_label_sets_have_no_score_of_one_label(name: str) -> None:
    with pytest.raises(so.UserError, match=rf"{name}: is for examples of one class each; .* macro_f1@k"):
        so.run(label_sets_config({"name": "fedavg-bce"}, eval={"metrics": [name]}), data=label_sets())
    inputs = MetricInputs.of(Ragged.from_lists([[0, 1]]), ranking=torch.tensor([[0]]))
    with pytest.raises(so.UserError, match="is for examples of one class each"):
        so.metrics.find_metric(name).value(inputs)


def test_a_run_has_them_all_and_its_references_those_of_rankings() -> None:
    names = ["P@1", "balanced_accuracy", "macro_f1", "auc"]
    e = so.Experiment.of({"rounds": 5, "eval": {"metrics": names}})
    result = so.run(e, data=several_classes())
    assert set(result.metrics) == set(names)
    assert result.metrics["auc"] > 60
    trivial = result.summary["references"]["most frequent"]["metrics"]
    assert set(trivial) == {"P@1", "balanced_accuracy", "macro_f1"}
    assert trivial["balanced_accuracy"] == pytest.approx(100 / 8)


def test_items_are_scored_without_their_padding() -> None:
    result = so.run(shop_config(eval={"metrics": ["R@1", "auc"]}), data=shop())
    assert 0 <= result.metrics["auc"] <= 100


# ---------------------------------------------------------------- by default


def two_classes(rare: int, n: int = 100) -> so.Splits:
    y = np.array([1] * rare + [0] * (n - rare))
    x = np.random.default_rng(0).normal(size=(n, 4)).astype(np.float32)
    train = so.FederatedDataset.from_arrays(x, y, np.arange(n) % 5)
    return so.Splits("two", train, so.Examples.from_arrays(x, y))


@pytest.mark.parametrize(("rare", "expected"), [(2, True), (25, True), (26, False), (50, False)])
def test_a_class_three_times_as_frequent_as_others_brings_balanced_accuracy(
    rare: int, expected: bool
) -> None:
    result = so.run({"rounds": 1}, data=two_classes(rare))
    assert ("balanced_accuracy" in result.metrics) == expected
    assert next(iter(result.metrics)) == "P@1"  # which still says what is best


def test_metrics_that_are_set_stay_and_private_counts_choose_nothing() -> None:
    assert list(so.run({"rounds": 1, "eval": {"metrics": ["P@1"]}}, data=two_classes(2)).metrics) == [
        "P@1"
    ]
    private = {"rounds": 1, "privacy": {"clip": 1.0, "noise": 1.0}}
    assert list(so.run(private, data=two_classes(2)).metrics) == ["P@1"]


# ---------------------------------------------------------------- on the page


def cells(table: str) -> list[list[str]]:
    rows = re.findall("<tr>(.*?)</tr>", table)
    plain = [[re.sub("<[^>]*>", "", one) for one in re.split("</t[hd]>", row)[:-1]] for row in rows]
    return plain[1:]


def test_the_table_of_classes_is_that_of_scikit_learn(tmp_path: Path) -> None:
    data = several_classes()
    result = so.run(so.Experiment(rounds=3), data=data, out=tmp_path / "run")
    (arm,) = arms_of(tmp_path / "run")
    x = data.test.inputs["x"].take(torch.arange(len(data.test))).numpy()
    guess = result.predictor.scores(x).argmax(1).tolist()
    y = data.test.labels.values.numpy()
    precision, recall, _, tested = precision_recall_fscore_support(
        y, guess, labels=range(8), zero_division=np.nan
    )
    told = cells(class_tables([arm]))
    assert [row[0] for row in told] == [f"class {c}" for c in range(8)]
    assert [int(row[2]) for row in told] == tested.tolist()
    shown = ["–" if np.isnan(v) else f"{100 * v:.1f}" for v in precision]
    assert [row[3] for row in told] == [f"{100 * v:.1f}" for v in recall]
    assert [row[4] for row in told] == shown


def test_many_classes_have_no_table_and_sets_no_precision(tmp_path: Path) -> None:
    so.run(
        label_sets_config({"name": "fedavg-bce"}), data=label_sets(), out=tmp_path / "sets", device="cpu"
    )
    (arm,) = arms_of(tmp_path / "sets")
    table = class_tables([arm])
    assert "found among the first 5 (%)" in table
    assert "precision" not in table
    n = MOST + 1
    many = {"trained": [1] * n, "tested": [1] * n, "found": [1] * n}
    details = {**(arm.details or {}), "classes": many}
    assert class_tables([replace(arm, details=details)]) == ""
