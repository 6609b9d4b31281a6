"""Noise that rows are owed: drawn late, it is what drawing it in every round would have been."""

import pytest
import torch
from torch import Tensor

from spreadout.privacy.lazy_noise import OwedNoise

ROWS, WIDTH = 3000, 8
DEVIATIONS = (0.5, 2.0, 1.0, 0.25, 1.5)


def table(*, sphere: bool) -> OwedNoise:
    start = torch.zeros(ROWS, WIDTH)
    if sphere:
        start[:, 0] = 1.0
    return OwedNoise.of(start, {}, "classes", sphere=sphere)


def normal(seed: int):  # type: ignore[no-untyped-def]
    draw = torch.Generator().manual_seed(seed)
    return lambda ids, width: torch.randn(len(ids), width, generator=draw)


@pytest.mark.parametrize("sphere", [False, True])
def test_however_often_a_row_is_read_its_noise_has_the_variance_of_all_rounds(sphere: bool) -> None:
    """Read never, once, or in every round: the sum is one Gaussian of the same variance."""
    owed, draw = table(sphere=sphere), normal(0)
    start = owed.raw(owed.every).clone()
    never, once, often = torch.arange(ROWS).chunk(3)
    for round, deviation in enumerate(DEVIATIONS):
        owed.owe_(deviation)
        owed.settle_(often, draw)
        if round == 2:
            owed.settle_(once, draw)
    assert torch.equal(owed.raw(never), start[never])  # nobody has looked
    owed.settle_(owed.every, draw)
    moved = owed.raw(owed.every) - start
    wanted = sum(deviation**2 for deviation in DEVIATIONS)
    for group in (never, once, often):
        assert float(moved[group].var()) == pytest.approx(wanted, rel=0.06)  # 8,000 numbers each
        assert abs(float(moved[group].mean())) < 4 * (wanted / moved[group].numel()) ** 0.5
    assert torch.equal(owed.paid, owed.owed.expand(ROWS))
    if sphere:
        torch.testing.assert_close(owed.values.norm(dim=1), torch.ones(ROWS))
    before = owed.values.clone()
    owed.settle_(owed.every, draw)  # nothing is owed now
    assert torch.equal(owed.values, before)


@pytest.mark.parametrize("sphere", [False, True])
def test_read_in_every_round_it_is_the_slow_twin_number_by_number(sphere: bool) -> None:
    owed, draw, again = table(sphere=sphere), normal(1), normal(1)
    slow: Tensor = owed.raw(owed.every).clone()
    for deviation in DEVIATIONS:
        owed.owe_(deviation)
        owed.settle_(owed.every, draw)
        slow += deviation * again(owed.every, WIDTH)
    torch.testing.assert_close(owed.raw(owed.every), slow, rtol=1e-5, atol=1e-5)


def test_what_is_owed_is_kept_from_round_to_round() -> None:
    kept: dict[str, Tensor] = {}
    values = torch.eye(3)
    OwedNoise.of(values, kept, "classes", sphere=True).owe_(2.0)
    again = OwedNoise.of(values, kept, "classes", sphere=True)
    assert float(again.owed) == 4.0
    assert set(kept) == {"owed/classes", "paid/classes", "length/classes"}
    again.settle_(torch.tensor([1]), normal(2))
    assert again.paid.tolist() == [0.0, 4.0, 0.0]
