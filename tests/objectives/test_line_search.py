"""The safe step: never uphill, whatever the table, the penalty, the weights and the first guess."""

from __future__ import annotations

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional as F

from spreadout.objectives import line_search, regularizers
from spreadout.objectives.regularizers import FarPenalty, HingePenalty, Penalty, TableLoss

PENALTIES: list[Penalty] = [
    HingePenalty(1.0),
    HingePenalty(2.5),
    HingePenalty(1.2, "euclidean"),
    FarPenalty(),
]


def table_of(classes: int, dim: int, spread: float, seed: int) -> Tensor:
    """Random unit rows around one point: spread 0 is a collapsed table."""
    draw = torch.Generator().manual_seed(seed)
    noise = torch.randn(classes, dim, generator=draw, dtype=torch.float64)
    return F.normalize(torch.ones(dim, dtype=torch.float64) / dim**0.5 + spread * noise, dim=-1)


@settings(max_examples=60, deadline=None)
@given(
    classes=st.integers(2, 60),
    dim=st.integers(2, 24),
    spread=st.sampled_from([1e-6, 1e-2, 1.0, 100.0]),
    penalty=st.sampled_from(PENALTIES),
    share=st.floats(1e-3, 100),
    length=st.sampled_from([None, 1e-9, 1.0, 1e9]),
    k=st.sampled_from([None, 1, 3]),
    seed=st.integers(0, 1000),
)
def test_the_regulariser_never_rises(
    classes: int,
    dim: int,
    spread: float,
    penalty: Penalty,
    share: float,
    length: float | None,
    k: int | None,
    seed: int,
) -> None:
    rows = table_of(classes, dim, spread, seed)
    anchors = torch.arange(0, classes, 2)

    def loss(neighbours: Tensor | None = None, gradient: bool = True) -> TableLoss:
        if k is None:
            return regularizers.all_pairs(rows, penalty, gradient=gradient)
        search = None if neighbours is None else regularizers.among(rows, neighbours)
        return regularizers.mined_pairs(
            rows, anchors, min(k, classes - 1), penalty, search=search, gradient=gradient
        )

    def value(neighbours: Tensor | None) -> Tensor:
        return loss(neighbours, gradient=False).value

    for _ in range(3):
        before = loss()
        start = loss(before.neighbours).value
        assert torch.equal(value(before.neighbours), start)
        length = line_search.descend_(
            rows, before, lambda b=before: value(b.neighbours), share=share, length=length
        )
        assert loss(before.neighbours).value <= start
        assert torch.allclose(rows.norm(dim=-1), torch.ones(classes, dtype=torch.float64))


def test_no_row_turns_further_than_it_may() -> None:
    rows = table_of(40, 8, 1e-3, seed=0)
    before = rows.clone()

    def loss() -> TableLoss:
        return regularizers.all_pairs(rows, HingePenalty(1.1))

    line_search.descend_(rows, loss(), lambda: loss().value, share=1, length=1e6)
    cosine = (rows * before).sum(-1)
    assert float(cosine.min()) >= 1 / (1 + line_search.MOST**2) ** 0.5 - 1e-9
    assert float(cosine.min()) < 0.999  # and it does move


def test_a_share_of_one_reaches_the_minimum_along_the_way() -> None:
    """Against a slow twin that tries many lengths."""
    start = table_of(30, 12, 1.0, seed=1)

    def value(rows: Tensor) -> TableLoss:
        return regularizers.all_pairs(rows, HingePenalty(1.0))

    rows, length = start.clone(), None
    for _ in range(6):  # the guess settles
        trial = start.clone()
        length = line_search.descend_(
            trial, value(start), lambda t=trial: value(t).value, share=1, length=length
        )
        rows = trial
    gradient = value(start).gradient.values
    way = -(gradient - (gradient * start).sum(-1, keepdim=True) * start)

    def moved(by: Tensor) -> Tensor:
        step = by * way
        norm = step.norm(dim=-1, keepdim=True)
        return F.normalize(start + step * (line_search.MOST / norm).clamp_max(1), dim=-1)

    tried = [value(moved(by)).value for by in torch.linspace(1e-4, 0.5, 2000)]
    fallen = value(start).value - value(rows).value
    assert fallen >= 0.9 * (value(start).value - min(tried))


def test_a_table_that_is_spread_already_stays() -> None:
    rows = torch.eye(4, dtype=torch.float64)

    def loss() -> TableLoss:
        return regularizers.all_pairs(rows, HingePenalty(1.0))

    line_search.descend_(rows, loss(), lambda: loss().value, share=1)
    assert torch.equal(rows, torch.eye(4, dtype=torch.float64))
