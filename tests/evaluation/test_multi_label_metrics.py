"""Metrics of label sets, held to the libraries people compare themselves with."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import average_precision_score

from spreadout.core.ragged import Ragged
from spreadout.evaluation import metrics


def drawn(seed: int, n: int = 40, classes: int = 12) -> tuple[torch.Tensor, np.ndarray]:
    """Scores with ties among them, and label sets of which some are empty."""
    rng = np.random.default_rng(seed)
    scores = torch.from_numpy(rng.integers(0, 30, size=(n, classes)) / 7).float()
    return scores, rng.random((n, classes)) < 0.2


def sets_of(right: np.ndarray) -> Ragged:
    return Ragged.from_lists([np.flatnonzero(row).tolist() for row in right])


@settings(deadline=None, max_examples=30)
@given(st.integers(0, 10_000))
def test_precision_ndcg_and_psp_are_napkinxcs(seed: int) -> None:
    xc = pytest.importorskip("napkinxc.metrics")
    scores, right = drawn(seed)
    scores += torch.rand(scores.shape, generator=torch.Generator().manual_seed(seed)) / 100  # no ties
    right[:, 0] |= ~right.any(1)  # napkinxc counts examples without a label, we do not
    train = np.random.default_rng(seed + 1).random((60, right.shape[1])) < 0.15
    train[0] = True  # every label occurs: napkinxc counts labels up to the last it saw
    ranked = scores.argsort(1, descending=True)
    labels, rows = sets_of(right), [np.flatnonzero(row).tolist() for row in right]
    seen = metrics.Frequencies(torch.from_numpy(train.sum(0)), len(train))
    inverse = seen.inverse
    expected = xc.Jain_et_al_inverse_propensity([np.flatnonzero(row).tolist() for row in train])
    np.testing.assert_allclose(inverse.numpy(), expected)
    for name, found in {
        "P": xc.precision_at_k(rows, ranked.tolist(), k=5),
        "nDCG": xc.ndcg_at_k(rows, ranked.tolist(), k=5),
        "R": xc.recall_at_k(rows, ranked.tolist(), k=5),
        "PSP": xc.psprecision_at_k(rows, ranked.tolist(), inverse.numpy(), k=5),
    }.items():
        ours = [metrics.compute(f"{name}@{k}", ranked, labels, seen=seen) for k in range(1, 6)]
        np.testing.assert_allclose(ours, 100 * found, err_msg=name)


@settings(deadline=None, max_examples=30)
@given(st.integers(0, 10_000))
def test_average_precision_is_scikit_learns_ties_and_all(seed: int) -> None:
    scores, right = drawn(seed)
    right[3] = True
    expected = average_precision_score(right, scores.numpy(), average=None)
    found = metrics.average_precision(scores, torch.from_numpy(right))
    np.testing.assert_allclose(found.numpy(), expected, rtol=1e-9)


def test_a_class_without_a_right_example_has_no_average_precision() -> None:
    found = metrics.average_precision(torch.tensor([[1.0, 2.0]]), torch.tensor([[True, False]]))
    assert float(found[0]) == 1.0
    assert bool(found[1].isnan())


def test_a_rare_label_counts_more_and_an_untrained_one_as_the_rarest() -> None:
    inverse = metrics.inverse_propensity(torch.tensor([100, 1]), 1000)
    assert inverse[1] > inverse[0] > 1
    labels = Ragged.from_lists([[0, 5]])  # class 5 has no row
    found = metrics.scored_precision_at(torch.tensor([[0, 1]]), labels, 1, inverse)
    assert found == pytest.approx(100 * float(inverse[0] / inverse[1]))
