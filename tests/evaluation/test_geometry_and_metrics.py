import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import top_k_accuracy_score

from spreadout.core.ragged import Ragged
from spreadout.core.rows import project_to_sphere
from spreadout.evaluation import geometry, metrics
from spreadout.evaluation.geometry import class_geometry


def test_gauges_of_orthogonal_classes() -> None:
    found = class_geometry(torch.eye(4), epsilon=0.1)
    assert found.max_cosine == found.mean_cosine == 0.0
    assert found.min_distance == pytest.approx(math.sqrt(2))
    assert found.mean_distance == pytest.approx(math.sqrt(2))
    assert found.effective_rank == pytest.approx(4.0)
    assert found.error_bound == pytest.approx(0.2 / math.sqrt(2))
    assert not found.collapsing


def test_gauges_of_a_collapsed_table() -> None:
    found = class_geometry(torch.eye(4)[:1].expand(6, 4).contiguous(), epsilon=0.1)
    assert found.max_cosine == found.mean_cosine == 1.0
    assert found.min_distance == found.mean_distance == 0.0
    assert found.effective_rank == pytest.approx(1.0)
    assert found.error_bound == 1.0  # no promise at all
    assert found.collapsing


def test_two_antipodal_clusters_are_a_collapse_too() -> None:
    pole = torch.eye(8)[:1]
    found = class_geometry(torch.cat([pole.expand(5, 8), -pole.expand(5, 8)]), epsilon=0.1)
    assert found.mean_cosine < 0
    assert found.effective_rank == pytest.approx(1.0)
    assert found.collapsing
    opposites = class_geometry(torch.cat([pole, -pole]), epsilon=0.1)
    assert not opposites.collapsing  # with two classes there is nothing better


def test_gauges_equal_the_full_pairwise_matrix_in_blocks_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    w = project_to_sphere(torch.randn(70, 8))
    s = (w @ w.T).fill_diagonal_(float("nan"))
    pairs = s[~s.isnan()]
    found = class_geometry(w, epsilon=0.5)
    assert found.anchors == 70
    assert found.max_cosine == pytest.approx(float(pairs.max()), abs=1e-6)
    assert found.mean_cosine == pytest.approx(float(pairs.mean()), abs=1e-6)
    assert found.mean_distance == pytest.approx(float((2 - 2 * pairs).sqrt().mean()), abs=1e-5)
    monkeypatch.setattr(geometry, "WORK_LIMIT", 1.0)
    sampled = class_geometry(w, epsilon=0.5)
    assert sampled.anchors == 64  # said, so that a reader knows ρ is from a sample
    assert sampled.max_cosine <= found.max_cosine + 1e-6
    assert sampled.error_bound is None  # a nearest pair may have been missed: no promise


@given(st.integers(0, 1000), st.integers(1, 5))
def test_p_at_1_and_r_at_k_equal_scikit_learn_for_one_label(seed: int, k: int) -> None:
    rng = np.random.default_rng(seed)
    scores, label = rng.normal(size=(30, 7)), rng.integers(0, 7, 30)
    ranked = torch.from_numpy(np.argsort(-scores, axis=1))
    labels = Ragged(torch.arange(31), torch.from_numpy(label))
    theirs = 100 * top_k_accuracy_score(label, scores, k=k, labels=np.arange(7))
    assert metrics.recall_at(ranked, labels, k) == pytest.approx(theirs)
    assert metrics.precision_at(ranked, labels, k) == pytest.approx(theirs / k)


@given(
    st.lists(st.sets(st.integers(0, 6)), min_size=1, max_size=12),
    st.integers(1, 7),
    st.integers(0, 99),
)
def test_multi_label_metrics_equal_the_definition(sets: list[set[int]], k: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    ranking = [rng.permutation(7).tolist() for _ in sets]
    ranked, labels = torch.tensor(ranking), Ragged.from_lists([sorted(found) for found in sets])
    scored = [
        (len(right & set(row[:k])), len(right))
        for row, right in zip(ranking, sets, strict=True)
        if right
    ]
    if not scored:
        assert math.isnan(metrics.precision_at(ranked, labels, k))
        return
    assert metrics.precision_at(ranked, labels, k) == pytest.approx(
        100 * np.mean([h / k for h, _ in scored])
    )
    assert metrics.recall_at(ranked, labels, k) == pytest.approx(
        100 * np.mean([h / n for h, n in scored])
    )


@pytest.mark.parametrize("name", ["P@0", "P@", "p@1", "accuracy", "P@1.5", "P@-1"])
def test_unknown_metrics_are_refused(name: str) -> None:
    with pytest.raises(ValueError, match=r"is unknown.*nown: P@k, "):
        metrics.find_metric(name)
