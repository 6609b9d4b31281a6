"""Hand-written, blocked gradients against autograd on the formulas as the paper writes them."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from spreadout.core.ragged import Ragged
from spreadout.core.rows import project_to_sphere
from spreadout.objectives.cooccurrence import CoOccurrence
from spreadout.objectives.neighbours import nearest
from spreadout.objectives.regularizers import (
    FarPenalty,
    HingePenalty,
    Penalty,
    all_pairs,
    mined_pairs,
    together,
)

PENALTIES: list[Penalty] = [
    HingePenalty(1.1), HingePenalty(0.7), HingePenalty(2.0), HingePenalty(2.6),
    HingePenalty(1.5, "euclidean"), FarPenalty("cosine"), FarPenalty("euclidean"),
]  # fmt: skip


def table(classes: int, dim: int = 5, seed: int = 0) -> Tensor:
    g = torch.Generator().manual_seed(seed)
    return project_to_sphere(torch.randn(classes, dim, generator=g, dtype=torch.float64))


def distance(u: Tensor, v: Tensor, kind: str) -> Tensor:
    return 1 - u @ v if kind == "cosine" else (u - v).norm()


def term(penalty: Penalty, u: Tensor, v: Tensor) -> Tensor:
    d = distance(u, v, penalty.distance)
    if isinstance(penalty, HingePenalty):
        return torch.relu(penalty.margin - d) ** 2
    return -(d**2)


def along(gradient: Tensor, w: Tensor) -> Tensor:
    """Formulas of d and of s differ off the sphere; on it only the part along it matters."""
    return gradient - (gradient * w).sum(1, keepdim=True) * w


@pytest.mark.parametrize("penalty", PENALTIES, ids=str)
@pytest.mark.parametrize("weighted", [False, True])
def test_all_pairs_equals_the_double_sum_of_eq_7(penalty: Penalty, weighted: bool) -> None:
    w = table(9).requires_grad_()
    weight = torch.rand(9, dtype=torch.float64) if weighted else None
    a = weight if weight is not None else torch.ones(9, dtype=torch.float64)
    literal = sum(a[c] * term(penalty, w[c], w[e]) for c in range(9) for e in range(9) if c != e)
    expected = torch.autograd.grad(literal, w)[0]
    found = all_pairs(w.detach(), penalty, weight=weight, budget=1)  # one row a block
    torch.testing.assert_close(found.value, literal.detach())
    torch.testing.assert_close(along(found.gradient.values, w.detach()), along(expected, w.detach()))
    mean = all_pairs(w.detach(), penalty, weight=weight, reduction="mean")
    torch.testing.assert_close(mean.value, literal.detach() / 72)


@pytest.mark.parametrize("penalty", PENALTIES, ids=str)
def test_mined_pairs_equal_the_sum_of_eq_8(penalty: Penalty) -> None:
    w = table(12).requires_grad_()
    anchors, candidates, k = torch.tensor([0, 3, 7]), torch.tensor([1, 2, 3, 5, 8, 9]), 2
    literal = torch.zeros((), dtype=torch.float64)
    moved = set()
    for c in anchors.tolist():
        near = sorted(
            (y for y in candidates.tolist() if y != c),
            key=lambda y: -float(w[c].detach() @ w[y].detach()),
        )
        for y in near[:k]:
            literal = literal + term(penalty, w[c], w[y])
            moved |= {c, y}
    expected = torch.autograd.grad(literal, w)[0]
    found = mined_pairs(w.detach(), anchors, k, penalty, candidates=candidates, budget=1)
    torch.testing.assert_close(found.value, literal.detach())
    assert found.gradient.ids.tolist() == sorted(moved)
    full = torch.zeros_like(expected)
    full[found.gradient.ids] = found.gradient.values
    torch.testing.assert_close(along(full, w.detach()), along(expected, w.detach()))


def test_a_step_down_the_gradient_lowers_the_regulariser() -> None:
    for penalty in PENALTIES:
        w = table(30, 8)
        before = all_pairs(w, penalty)
        slope = along(before.gradient.values, w)
        after = all_pairs(project_to_sphere(w - 1e-4 * slope), penalty)
        assert float(after.value) < float(before.value)


def test_cosine_eq_8_cannot_part_two_rows_that_coincide_but_euclidean_pushes() -> None:
    """The trap: −d_cos² has no slope at d = 0, while −d² = 2s − 2 has the same slope everywhere."""
    s = torch.tensor([1.0], dtype=torch.float64)
    assert float(FarPenalty("cosine").slope(s)) == 0.0
    assert float(FarPenalty("euclidean").slope(s)) == 2.0


def test_cosine_eq_8_over_all_pairs_prefers_two_antipodal_clusters() -> None:
    pole = torch.eye(6, dtype=torch.float64)[:1]
    clusters = torch.cat([pole.expand(3, 6), -pole.expand(3, 6)])
    orthogonal = torch.eye(6, dtype=torch.float64)
    penalty = FarPenalty("cosine")
    assert float(all_pairs(clusters, penalty).value) < float(all_pairs(orthogonal, penalty).value)
    hinge = HingePenalty(1.1)  # the default where C is small does not
    assert float(all_pairs(clusters, hinge).value) > float(all_pairs(orthogonal, hinge).value)


@settings(max_examples=40)
@given(st.integers(2, 30), st.integers(1, 12), st.integers(1, 2000), st.booleans())
def test_blocked_nearest_equals_a_full_sort(classes: int, k: int, budget: int, exclude: bool) -> None:
    w = table(classes, seed=classes * 31 + k)
    queries = torch.arange(0, classes, 2)
    found = nearest(w[queries], w, k, exclude=queries if exclude else None, budget=budget)
    s = w[queries] @ w.T
    if exclude:
        s[torch.arange(len(queries)), queries] = -torch.inf
    top = s.sort(descending=True).values[:, : min(k, classes - exclude)]
    width = top.shape[1]
    torch.testing.assert_close(found.scores[:, :width], top)
    torch.testing.assert_close(s.gather(1, found.ids[:, :width]), top)


def test_low_precision_mining_returns_exact_scores_of_nearly_the_same_rows() -> None:
    w = table(500, 32).float()
    exact = nearest(w[:50], w, 10, exclude=torch.arange(50))
    rough = nearest(w[:50], w, 10, exclude=torch.arange(50), low_precision=True)
    shared = sum(
        len(set(a) & set(b)) for a, b in zip(exact.ids.tolist(), rough.ids.tolist(), strict=True)
    )
    assert shared / 500 > 0.99
    torch.testing.assert_close(rough.scores, (w[:50, None] * w[rough.ids]).sum(-1))


@pytest.mark.parametrize("penalty", [HingePenalty(1.1), HingePenalty(2.5), FarPenalty()])
@pytest.mark.parametrize("correlated", [False, True])
def test_a_value_alone_is_the_value_beside_the_gradient(penalty: Penalty, correlated: bool) -> None:
    rows, anchors = table(7).float(), torch.tensor([0, 2, 5])
    sets = Ragged.from_lists([[0, 1], [0, 1, 2], [3], [4, 5, 6]])
    weight = CoOccurrence.of(sets, classes=7).weights() if correlated else None
    every = [all_pairs(rows, penalty, weight=weight, gradient=wanted) for wanted in (True, False)]
    near = [
        mined_pairs(rows, anchors, 2, penalty, weight=weight, gradient=wanted, reduction="mean")
        for wanted in (True, False)
    ]
    both = [together(one, other, 0.3) for one, other in zip(every, near, strict=True)]
    for whole, alone in (every, near, both):
        assert torch.equal(whole.value, alone.value)
        assert len(whole.gradient.ids) >= len(anchors)
        assert len(alone.gradient.ids) == 0
