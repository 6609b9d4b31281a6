"""The safe step: never uphill, whatever the table, the penalty, the weights and the first guess."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional as F

from spreadout.core.ragged import Ragged
from spreadout.objectives import line_search, regularizers
from spreadout.objectives.cooccurrence import CoOccurrence, PairWeights
from spreadout.objectives.regularizers import FarPenalty, HingePenalty, Penalty, Reduction, TableLoss
from spreadout.objectives.table_loss import of_first

PENALTIES: list[Penalty] = [
    HingePenalty(1.0),
    HingePenalty(2.5),
    HingePenalty(1.2, "euclidean"),
    FarPenalty(),
    FarPenalty("euclidean"),
]
FORMS = ("all", "mined", "both")
WEIGHTS = ("none", "rows", "pairs")
REDUCTIONS: tuple[Reduction, ...] = ("sum", "mean", "row")
Value = Callable[[Tensor | None, bool], TableLoss]  # of given neighbours, with its gradient or without


def table_of(
    classes: int, dim: int, spread: float, seed: int, dtype: torch.dtype = torch.float64
) -> Tensor:
    """Random unit rows around one point: spread 0 is a collapsed table."""
    draw = torch.Generator().manual_seed(seed)
    noise = torch.randn(classes, dim, generator=draw, dtype=torch.float64)
    rows = F.normalize(torch.ones(dim, dtype=torch.float64) / dim**0.5 + spread * noise, dim=-1)
    return F.normalize(rows.to(dtype), dim=-1)


def weights_of(kind: str, rows: Tensor, seed: int) -> Tensor | PairWeights | None:
    """A weight for each row, or by which labels meet; None weighs all alike."""
    classes, draw = len(rows), torch.Generator().manual_seed(seed)
    if kind == "none":
        return None
    if kind == "rows":
        return torch.rand(classes, generator=draw).to(rows)
    pairs = torch.randint(classes, (2 * classes, 2), generator=draw).tolist()
    sets = Ragged.from_lists([sorted(set(pair)) for pair in pairs])
    return CoOccurrence.of(sets, classes=classes).weights()


def regulariser(
    rows: Tensor,
    penalty: Penalty,
    anchors: Tensor,
    k: int,
    *,
    form: str = "all",
    weight: Tensor | PairWeights | None = None,
    clip: float | None = None,
    reduction: Reduction = "sum",
) -> Value:
    """The loss of a table that moves, as methods put it together."""

    def every(gradient: bool) -> TableLoss:
        return regularizers.all_pairs(
            rows, penalty, weight=weight, clip=clip, reduction=reduction, gradient=gradient
        )

    def mined(neighbours: Tensor | None, gradient: bool) -> TableLoss:
        search = None if neighbours is None else regularizers.among(rows, neighbours)
        own = weight[anchors] if isinstance(weight, Tensor) else weight
        return regularizers.mined_pairs(
            rows, anchors, k, penalty,
            weight=own, clip=clip, reduction=reduction, search=search, gradient=gradient,
        )  # fmt: skip

    def value(neighbours: Tensor | None, gradient: bool) -> TableLoss:
        if form == "all":
            return every(gradient)
        near = mined(neighbours, gradient)
        return near if form == "mined" else regularizers.together(every(gradient), near, share=0.5)

    return value


def assert_never_rises(
    rows: Tensor, loss: Value, steps: int, share: float, length: float | None
) -> list[float]:
    """What each step gained."""
    gained = []
    for _ in range(steps):
        before = loss(None, True)
        start = loss(before.neighbours, False).value
        length = line_search.descend_(
            rows, before, lambda b=before: loss(b.neighbours, False).value, share=share, length=length
        )
        after = loss(before.neighbours, False).value
        assert after <= start
        assert torch.allclose(rows.norm(dim=-1), rows.new_ones(len(rows)), atol=1e-6)
        gained.append(float(start - after))
    return gained


@settings(max_examples=150, deadline=None)
@given(
    classes=st.integers(2, 60),
    dim=st.integers(2, 24),
    spread=st.sampled_from([0, 1e-6, 1e-2, 1.0, 100.0]),
    dtype=st.sampled_from([torch.float32, torch.float64]),
    penalty=st.sampled_from(PENALTIES),
    form=st.sampled_from(FORMS),
    weight=st.sampled_from(WEIGHTS),
    clip=st.sampled_from([None, 0.1]),
    reduction=st.sampled_from(REDUCTIONS),
    share=st.floats(1e-3, 100),
    length=st.sampled_from([None, 1e-9, 1.0, 1e9]),
    k=st.sampled_from([1, 3]),
    seed=st.integers(0, 1000),
)
def test_the_regulariser_never_rises(
    classes: int,
    dim: int,
    spread: float,
    dtype: torch.dtype,
    penalty: Penalty,
    form: str,
    weight: str,
    clip: float | None,
    reduction: Reduction,
    share: float,
    length: float | None,
    k: int,
    seed: int,
) -> None:
    rows = table_of(classes, dim, spread, seed, dtype)
    loss = regulariser(
        rows, penalty, torch.arange(0, classes, 2), min(k, classes - 1),
        form=form, weight=weights_of(weight, rows, seed), clip=clip, reduction=reduction,
    )  # fmt: skip
    found = loss(None, True)  # the value alone is that of the loss with its gradient
    if form == "all":
        assert torch.equal(loss(None, False).value, found.value)
    assert_never_rises(rows, loss, 3, share, length)


@pytest.mark.parametrize("spread", [1e-2, 1.0])
@pytest.mark.parametrize("penalty", [HingePenalty(1.1), FarPenalty("euclidean")], ids=["hinge", "far"])
@pytest.mark.parametrize(
    ("classes", "form", "weight"),
    [
        (1000, "all", "none"),
        (1000, "all", "pairs"),
        (100_000, "mined", "none"),
        (100_000, "mined", "rows"),
    ],
)
def test_nor_does_that_of_a_large_table(
    classes: int, form: str, weight: str, penalty: Penalty, spread: float
) -> None:
    rows = table_of(classes, 16, spread, seed=0, dtype=torch.float32)
    anchors = torch.arange(0, classes, classes // 50)  # few classes took part
    loss = regulariser(rows, penalty, anchors, 20, form=form, weight=weights_of(weight, rows, 0))
    start = float(loss(None, False).value)
    gained = assert_never_rises(rows, loss, 3, share=1.0, length=None)
    assert gained[0] > 1e-4 * abs(start)  # and it is a step


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


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("penalty", [HingePenalty(1.1), FarPenalty("euclidean")], ids=["hinge", "far"])
def test_a_table_at_its_minimum_may_stay_there_for_many_rounds(
    penalty: Penalty, dtype: torch.dtype
) -> None:
    """No gain can be seen there, and the guess does not dwindle: rows that move away come back."""
    rows, length = table_of(12, 3, 1.0, seed=0, dtype=dtype), None

    def loss() -> TableLoss:
        return regularizers.all_pairs(rows, penalty)

    def step() -> float:
        return line_search.descend_(rows, loss(), lambda: loss().value, share=1, length=length)

    for _ in range(900):
        length = step()
    least = float(loss().value)
    rows[:] = table_of(12, 3, 1.0, seed=1, dtype=dtype)
    start = float(loss().value)
    for _ in range(100):
        length = step()
    assert float(loss().value) < start - 0.9 * (start - least)


@pytest.mark.parametrize("sphere", [True, False])
@pytest.mark.parametrize("length", [float("nan"), float("inf"), -1.0, 1e308, 1e200, 1e39])
def test_a_guess_that_no_number_can_follow_is_dropped_at_once(length: float, sphere: bool) -> None:
    """As from a state that was written by a run whose table had overflowed."""
    rows = table_of(30, 12, 1e-2, seed=1, dtype=torch.float32)
    twin = rows.clone()

    def loss(of: Tensor) -> TableLoss:
        return regularizers.all_pairs(of, HingePenalty(1.1))

    found = line_search.descend_(
        rows, loss(rows), lambda: loss(rows).value, share=1, length=length, sphere=sphere
    )
    want = line_search.descend_(
        twin, loss(twin), lambda: loss(twin).value, share=1, length=None, sphere=sphere
    )
    assert found == want
    assert torch.equal(rows, twin)


@pytest.mark.parametrize("length", [float("nan"), float("inf")])
def test_nor_is_it_kept_where_nothing_moves(length: float) -> None:
    rows = torch.eye(4, dtype=torch.float64)

    def loss() -> TableLoss:
        return regularizers.all_pairs(rows, HingePenalty(1.0))

    assert line_search.descend_(rows, loss(), lambda: loss().value, share=1, length=length) == 0


def test_a_first_guess_for_hardly_any_gradient_is_finite() -> None:
    """Its square is the least number that is not 0."""
    rows = torch.eye(2, dtype=torch.float64)
    tiny = torch.tensor([[0.0, 3e-162], [0.0, 0.0]], dtype=torch.float64)

    def value() -> Tensor:
        return (rows * tiny).sum()

    loss = TableLoss(value(), of_first(2, tiny))
    assert math.isfinite(line_search.descend_(rows, loss, value, share=1))
    assert value() < 0


@pytest.mark.parametrize("length", [1e-200, 1e-9, 1e9])
def test_a_bad_guess_is_soon_forgotten(length: float) -> None:
    rows = table_of(30, 12, 1e-2, seed=1, dtype=torch.float32)

    def loss() -> TableLoss:
        return regularizers.all_pairs(rows, HingePenalty(1.1))

    start, least = float(loss().value), 0.0
    for _ in range(400):
        length = line_search.descend_(rows, loss(), lambda: loss().value, share=1, length=length)
    assert float(loss().value) < least + 0.1 * start


def test_where_no_step_can_be_seen_lengths_do_not_grow_without_end() -> None:
    """A huge constant beside the regulariser: whatever rows do is lost in rounding."""
    rows, length = table_of(12, 3, 1.0, seed=0, dtype=torch.float32), None

    def loss() -> TableLoss:
        found = regularizers.all_pairs(rows, HingePenalty(1.1))
        return found._replace(value=found.value + 1e12)

    for _ in range(400):
        length = line_search.descend_(rows, loss(), lambda: loss().value, share=1, length=length)
    assert length is not None
    assert 0 < length < 1e6
    assert rows.isfinite().all()
