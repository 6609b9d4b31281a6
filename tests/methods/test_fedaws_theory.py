"""The propositions of FedAwS (Yu et al. 2020) as properties of the code that claims to implement it."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from spreadout.core.rows import project_to_sphere
from spreadout.evaluation.geometry import class_geometry
from spreadout.objectives import losses, regularizers
from spreadout.objectives.regularizers import HingePenalty


def random_space(
    seed: int, classes: int, dim: int, examples: int, noise: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Unit class rows, unit embeddings scattered around their classes, and the labels."""
    g = torch.Generator().manual_seed(seed)
    w = project_to_sphere(torch.randn(classes, dim, generator=g, dtype=torch.float64))
    y = torch.randint(classes, (examples,), generator=g)
    x = w[y] + noise * torch.randn(examples, dim, generator=g, dtype=torch.float64)
    return w, project_to_sphere(x), y


drawn = st.tuples(
    st.integers(0, 10_000),
    st.integers(2, 8),
    st.integers(2, 10),
    st.integers(1, 40),
    st.floats(0.0, 2.0),
)
margins = st.floats(1.001, 1.999)


@settings(max_examples=100)
@given(drawn)
def test_proposition_1_the_error_is_at_most_two_epsilon_over_rho(
    shape: tuple[int, int, int, int, float],
) -> None:
    w, x, y = random_space(*shape)
    distance = (x[:, None] - w).norm(dim=-1)  # (n, C) Euclidean: a metric, as the proof needs
    own = distance.gather(1, y[:, None])[:, 0]
    others = distance.scatter(1, y[:, None], math.inf)
    error = float((own >= others.min(1).values).double().mean())
    geometry = class_geometry(w, float(own.mean()))
    assert error <= geometry.error_bound + 1e-9
    if geometry.min_distance > 0:
        assert geometry.error_bound == pytest.approx(
            min(1.0, 2 * float(own.mean()) / geometry.min_distance)
        )


def test_proposition_1_fails_for_the_cosine_distance() -> None:
    """Why distances are Euclidean: with d = 1 − s the bound would be broken."""
    w = torch.tensor([[1.0, 0.0], [math.cos(0.2), math.sin(0.2)]], dtype=torch.float64)
    x = torch.tensor(
        [[math.cos(0.11), math.sin(0.11)]], dtype=torch.float64
    )  # of class 0, nearer to class 1
    epsilon, rho = float(1 - x @ w[0]), float(1 - w[0] @ w[1])
    assert float(x @ w[1]) > float(x @ w[0])
    assert 2 * epsilon / rho < 1  # a certain error, "bounded" below 1


@settings(max_examples=100)
@given(drawn, margins)
def test_lemma_1_the_cosine_contrastive_loss_is_a_surrogate_of_the_error(
    shape: tuple[int, int, int, int, float], margin: float
) -> None:
    """Wrong examples cost at least 2(ν − 1), as Eq. 13 says; in fact at least ν²/2.

    The printed proof's step (iii) needs φ̃(a) ≥ ν − 1 for a < 0, but φ̃(0) = (ν − 1)². The lemma holds
    all the same: over s_y ≤ s_c the loss is least at s_y = s_c = 1 − ν/2, where it is ν²/2, and
    ν²/2 − 2(ν − 1) = (ν − 2)²/2 ≥ 0.
    """
    w, x, y = random_space(*shape)
    s = x @ w.T
    wrong = s.gather(1, y[:, None])[:, 0] < s.scatter(1, y[:, None], -math.inf).max(1).values
    loss = losses.cosine_contrastive(s, y, margin=margin)
    assert bool((loss >= 2 * (margin - 1) * wrong.double() - 1e-12).all())
    assert bool((loss >= margin**2 / 2 * wrong.double() - 1e-12).all())


def test_the_constant_of_lemma_1_is_attained() -> None:
    margin = 1.4
    tie = 1 - margin / 2
    s = torch.tensor([[tie, tie]], dtype=torch.float64)
    loss = losses.cosine_contrastive(s, torch.tensor([0]), margin=margin)
    assert float(loss) == pytest.approx(margin**2 / 2)


@settings(max_examples=50)
@given(st.integers(0, 1000), st.integers(2, 7), st.integers(1, 6), margins)
def test_proposition_2_the_objective_is_the_empirical_risk_of_the_surrogate(
    seed: int, classes: int, per_class: int, margin: float
) -> None:
    w, x, _ = random_space(seed, classes, 5, classes * per_class, 0.5)
    y = torch.arange(classes).repeat_interleave(per_class)  # equal n_i
    own = (x * w[y]).sum(1)
    positive = losses.positive_square(own).view(classes, per_class).mean(1)  # R_pos of each client
    spreadout = regularizers.all_pairs(w, HingePenalty(margin)).value  # Eq. 7
    objective = positive.mean() + spreadout / classes  # Eq. 16 with λ = 1/C
    risk = losses.spreadout_surrogate(x @ w.T, y, w, margin=margin).mean()  # Eq. 17
    torch.testing.assert_close(objective, risk)


@settings(max_examples=50)
@given(st.integers(0, 1000), st.lists(st.integers(1, 9), min_size=2, max_size=6), margins)
def test_remark_2_weights_extend_proposition_2_to_unequal_clients(
    seed: int, counts: list[int], margin: float
) -> None:
    classes, n = len(counts), sum(counts)
    w, x, _ = random_space(seed, classes, 5, n, 0.5)
    y = torch.from_numpy(np.repeat(np.arange(classes), counts))
    weight = torch.tensor(counts, dtype=torch.float64) * classes / n  # a_c = C·n_c/n
    positive = losses.positive_square((x * w[y]).sum(1)).mean()  # Σ (n_i/n) R_pos
    spreadout = regularizers.all_pairs(w, HingePenalty(margin), weight=weight).value
    risk = losses.spreadout_surrogate(x @ w.T, y, w, margin=margin).mean()
    torch.testing.assert_close(positive + spreadout / classes, risk)


@settings(max_examples=100)
@given(drawn, margins)
def test_theorem_1_the_surrogate_approximates_the_contrastive_loss(
    shape: tuple[int, int, int, int, float], margin: float
) -> None:
    """The proof's |b| ≤ 1 fails (|w·r| can reach 2); the bound holds with the constant 2ν instead."""
    w, x, y = random_space(*shape)
    s = x @ w.T
    contrastive = losses.cosine_contrastive(s, y, margin=margin)
    surrogate = losses.spreadout_surrogate(s, y, w, margin=margin)
    r = w[y] - x
    mismatch = (r @ w.T).abs().scatter(1, y[:, None], 0).sum(1)
    assert bool(((surrogate - contrastive).abs() <= 2 * margin * mismatch + 1e-9).all())


def test_losses_by_hand() -> None:
    s = torch.tensor([0.5, 0.95, -1.0])
    torch.testing.assert_close(losses.positive_hinge(s), torch.tensor([0.16, 0.0, 3.61]))
    torch.testing.assert_close(losses.positive_square(s), torch.tensor([0.25, 0.0025, 4.0]))
    distance = torch.tensor([[0.5, 0.2, 3.0]])
    # α·0.25 + β·(max(0, 1 − 0.2)² + max(0, 1 − 3)²) with α = 2, β = 10
    found = losses.contrastive(distance, torch.tensor([0]), alpha=2, beta=10, margin=1.0)
    torch.testing.assert_close(found, torch.tensor([0.5 + 6.4]))


def test_softmax_ignores_padding_and_equals_cross_entropy() -> None:
    scores = torch.randn(4, 3)
    label = torch.tensor([0, 2, 1, 1])
    expected = torch.nn.functional.cross_entropy(20 * scores, label, reduction="none")
    padded = torch.cat([scores, torch.full((4, 2), 9.0)], 1)
    held = torch.tensor([True, True, True, False, False])
    torch.testing.assert_close(losses.softmax(padded, label, held, scale=20), expected)


def test_an_empty_batch_has_loss_zero_and_no_gradient() -> None:
    values = torch.tensor([1.0, 2.0], requires_grad=True)
    loss = losses.masked_mean(values, torch.zeros(2))
    loss.backward()
    assert loss.item() == 0.0
    assert values.grad.tolist() == [0.0, 0.0]
