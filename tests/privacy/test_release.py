"""What leaves a client: on its grid, never further from another than promised, with the noise promised."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("cryptography")

from spreadout.core.errors import UserError
from spreadout.core.types import Params
from spreadout.privacy.keystream import KeyStream
from spreadout.privacy.mechanism import GaussianMechanism, clip_norm
from spreadout.privacy.release import Grid, _within, released, shown_by_sum
from spreadout.privacy.table_noise import noisy_rows


def silent(count: int) -> np.ndarray:  # type: ignore[type-arg]
    """Words under which the noise is one known number."""
    return np.zeros(count, np.uint64)


def change(values: list[float]) -> Params:
    whole = torch.tensor(values, dtype=torch.float32)
    return Params({"w": whole[:1].clone()}, {"classes": whole[None, 1:].clone()})


def flat(params: Params) -> torch.Tensor:
    values = (*params.dense.values(), *params.rows.values())
    return torch.cat([value.flatten() for value in values]).double()


@given(
    st.lists(st.floats(width=32), min_size=2, max_size=8),
    st.floats(1e-6, 1e6),
    st.floats(2.0**-12, 1e4),
)
@settings(max_examples=60, deadline=None)
def test_what_is_sent_is_on_the_grid_whatever_a_client_computed(
    values: list[float], clip: float, noise: float
) -> None:
    mechanism = GaussianMechanism(clip=clip, noise=noise)
    grid = Grid.of(mechanism)
    sent = flat(released(change(values), mechanism, KeyStream(b"k" * 32)))
    assert bool(sent.isfinite().all())
    assert math.frexp(grid.unit)[0] == 0.5  # a power of two
    units = sent / grid.unit
    assert torch.equal(units, units.round())
    assert noise * clip < grid.sigma * grid.unit < noise * clip * (1 + 2**-13)


def test_no_change_is_longer_than_the_clip_to_the_last_unit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("spreadout.privacy.release.discrete_gaussian", lambda n, s, w: np.zeros(n, int))
    draw = np.random.default_rng(0)
    for clip in (1.0, 0.1, 3.3):
        mechanism = GaussianMechanism(clip=clip, noise=0.01)
        for _ in range(50):
            sent = flat(released(change(draw.normal(size=50).tolist()), mechanism, silent))
            assert clip * 0.9999 < float(sent.norm()) <= clip  # in doubles: the sum is exact enough


def test_no_tiny_change_is_longer_than_the_clip_either(monkeypatch: pytest.MonkeyPatch) -> None:
    """Squares of 2e-23 are zero in single precision: the update stayed 632 times as long as the clip."""
    monkeypatch.setattr("spreadout.privacy.release.discrete_gaussian", lambda n, s, w: np.zeros(n, int))
    for clip, values in ((1e-24, [2e-23] * 1000), (1.0, [3e38] * 1000), (1e-20, [1e-30] * 999 + [1.0])):
        clipped = flat(clip_norm(change(values), clip))
        assert float(clipped.norm()) == pytest.approx(clip, rel=1e-4)
        sent = flat(released(change(values), GaussianMechanism(clip=clip, noise=1.0), silent))
        assert clip * 0.98 < float(sent.norm()) <= clip


@given(
    st.lists(st.integers(-(2**40), 2**40), min_size=1, max_size=20),
    st.integers(0, 2**56),
)
def test_whole_numbers_are_made_no_longer_than_allowed_at_once(units: list[int], most: int) -> None:
    squared = sum(unit * unit for unit in units)
    found = _within(np.array(units, np.int64), most).tolist()
    left = sum(unit * unit for unit in found)
    assert left <= most or squared <= most
    if squared <= most:
        assert found == units
    else:  # the same direction, and no shorter than truncation makes it
        ratio = math.sqrt(most / squared)
        assert all(abs(a - ratio * b) <= 1 + 2**-20 * abs(b) for a, b in zip(found, units, strict=True))


def test_a_length_beyond_64_bits_does_not_wrap_around() -> None:
    units = np.full(1000, 1 << 31, np.int64)  # squared: 1000 · 2^62
    found = _within(units, 1 << 50)
    assert 0.999 * 2**50 < int(np.dot(found, found)) <= 2**50


def test_noise_has_the_promised_deviation_and_is_new_in_every_release() -> None:
    mechanism = GaussianMechanism(clip=2.0, noise=1.5)
    nothing = Params({"w": torch.zeros(50_000)}, {})
    one, other = (released(nothing, mechanism, KeyStream()).dense["w"] for _ in range(2))
    assert float(one.std()) == pytest.approx(3.0, rel=0.03)
    assert abs(float(torch.corrcoef(torch.stack([one, other]))[0, 1])) < 0.03


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_what_is_not_finite_counts_as_zero(bad: float) -> None:
    clipped = clip_norm(change([bad, 3.0, 4.0]), 1.0)
    torch.testing.assert_close(flat(clipped), torch.tensor([0.0, 0.6, 0.8], dtype=torch.float64))


@pytest.mark.parametrize("clip", [5e-324, 1e-40, 1e38])
def test_what_has_no_grid_is_refused_by_name(clip: float) -> None:
    with pytest.raises(UserError, match=r"privacy\.clip = .* has no grid"):
        Grid.of(GaussianMechanism(clip=clip, noise=5.0))


def test_too_little_noise_is_refused_by_name() -> None:
    with pytest.raises(UserError, match=r"privacy\.noise = 1e-05"):
        Grid.of(GaussianMechanism(clip=1.0, noise=1e-5))


def test_noise_on_sums_is_larger_by_what_rounding_adds() -> None:
    mechanism = GaussianMechanism(clip=0.1, noise=2.0)
    sums = torch.full((200, 50), 0.33)
    noisy = noisy_rows(sums, mechanism, 1.0, KeyStream(b"r" * 32))
    units = noisy.double() / Grid.of(mechanism).unit
    assert torch.equal(units, units.round())
    assert float(noisy.mean()) == pytest.approx(0.33, abs=0.01)
    assert float(noisy.std()) == pytest.approx(0.2, rel=0.03)
    assert not torch.equal(noisy_rows(sums, mechanism, 1.0), noisy_rows(sums, mechanism, 1.0))


def test_parts_of_the_noise_add_up_to_the_whole_however_many_nodes_add_one() -> None:
    """In variance, exactly enough or a little more; and as a sum of drawn parts."""
    mechanism = GaussianMechanism(model="distributed", clip=0.5, noise=3)
    whole = Grid.of(mechanism)
    for nodes in (1, 2, 3, 7, 100, 10_000):
        each = Grid.shared(mechanism, nodes)
        assert (each.unit, each.most) == (whole.unit, whole.most)
        assert nodes * each.sigma**2 >= whole.sigma**2
        assert nodes * (each.sigma - 3) ** 2 <= whole.sigma**2
    zero = Params({"w": torch.zeros(20_000)}, {})
    seen = shown_by_sum(zero, mechanism, 7, KeyStream()).dense["w"]
    assert float(seen.std()) == pytest.approx(1.5, rel=0.03)


def test_a_sum_without_noise_is_cut_to_a_fine_grid_and_kept_within_the_clip() -> None:
    mechanism = GaussianMechanism(model="distributed", clip=0.5, noise=0)
    change = Params({"w": torch.full((100,), 0.2)}, {})
    seen = shown_by_sum(change, mechanism, 3, KeyStream()).dense["w"]
    torch.testing.assert_close(seen, torch.full((100,), 0.05), atol=2e-5, rtol=0)
    assert float(seen.norm()) <= 0.5
