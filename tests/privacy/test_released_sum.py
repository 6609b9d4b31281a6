"""A real server's sum: exact whole numbers, one clip a client at most, noise of the size that is claimed."""

import math
from fractions import Fraction

import numpy as np
import pytest
import torch

from spreadout.core.types import Params
from spreadout.federated.sampling import sample_in_secret
from spreadout.privacy import adaptive_clip
from spreadout.privacy.mechanism import GaussianMechanism

pytest.importorskip("cryptography")

from spreadout.privacy.keystream import KEY_BYTES, KeyStream
from spreadout.privacy.released_sum import RealNoise, sum_grid, whole_units

CLIP = 0.3
MECHANISM = GaussianMechanism(model="central", clip=CLIP, noise=0.8)


def stream(number: int) -> KeyStream:
    return KeyStream(number.to_bytes(KEY_BYTES, "big"))


def change(seed: int, size: float) -> Params:
    draw = torch.Generator().manual_seed(seed)
    values = [size * torch.randn(shape, generator=draw) for shape in ((3, 5), (7,), (4, 2))]
    return Params({"a": values[0], "b": values[1]}, {"classes": values[2]})


@pytest.mark.parametrize("size", [1e-3, 0.02, 1.0, 1e12, 1e30])
def test_no_change_is_longer_than_the_clip_in_exact_numbers(size: float) -> None:
    grid = sum_grid(MECHANISM, CLIP, 10)
    given = change(0, size)
    units = whole_units(given, CLIP, grid)
    flat = [int(v) for part in units for value in part.values() for v in value.flatten().tolist()]
    length = sum(Fraction(v) ** 2 for v in flat) * Fraction(grid.unit) ** 2
    assert length <= Fraction(CLIP) ** 2
    assert all(float(v).is_integer() for value in units.dense.values() for v in value.flatten())
    assert units.dense["a"].shape == (3, 5)
    back = {name: value * grid.unit for name, value in units.dense.items()}
    norm = math.sqrt(sum(float(v.double().square().sum()) for part in given for v in part.values()))
    factor = min(1.0, CLIP / norm)
    for name, value in back.items():  # cut towards zero: nothing is off by more than a unit
        torch.testing.assert_close(value, given.dense[name].double() * factor, rtol=1e-5, atol=grid.unit)


def test_sums_are_exact_in_any_order() -> None:
    grid = sum_grid(MECHANISM, CLIP, 10)
    parts = [whole_units(change(seed, 1.0), CLIP, grid).dense["a"] for seed in range(50)]
    slow = [sum(int(part.flatten()[i]) for part in parts) for i in range(15)]
    for order in (parts, parts[::-1]):
        assert torch.stack(order).sum(0).flatten().tolist() == slow


@pytest.mark.parametrize("quantile", [None, 0.5])
def test_noise_has_the_deviation_that_is_accounted_for_or_a_little_more(quantile: float | None) -> None:
    mechanism = MECHANISM.model_copy(update={"clip_quantile": quantile})
    noise = RealNoise(sum_grid(mechanism, CLIP, 10), stream(1))
    sums = torch.full((300, 200), 12345.0, dtype=torch.float64)
    found = noise(sums) - 12345 * noise.grid.unit
    wanted = adaptive_clip.sum_noise(mechanism, 10) * CLIP
    assert float(found.std()) == pytest.approx(wanted, rel=0.015)  # 60,000 numbers: 0.3 % is a deviation
    assert abs(float(found.mean())) < 4 * wanted / math.sqrt(found.numel())
    assert wanted <= (noise.grid.sigma**2 - 16) ** 0.5 * noise.grid.unit <= wanted * 1.001
    multiples = (noise(sums) / noise.grid.unit).flatten()
    assert torch.equal(multiples, multiples.round())  # on the grid, whatever the sum: no bits to look at


def test_the_noised_count_moves_the_clip_as_the_slow_twin_does() -> None:
    mechanism = MECHANISM.model_copy(update={"clip_quantile": 0.5})
    lengths = torch.tensor([0.1, 0.2, 0.5, 0.25], dtype=torch.float64)
    quiet = adaptive_clip.next_clip(mechanism, CLIP, lengths, 10, 0.0)  # three of four are short
    found = np.array(
        [adaptive_clip.released_clip(mechanism, CLIP, lengths, 10, stream(i)) for i in range(400)]
    )
    moved = np.log(found / quiet)  # −RATE · noise / expected
    deviation = adaptive_clip.RATE * adaptive_clip.count_noise(mechanism, 10) / 10
    assert moved.std() == pytest.approx(deviation, rel=0.15)
    assert abs(moved.mean()) < 4 * deviation / 20


def test_a_secret_poisson_draw_has_each_client_with_its_probability_by_itself() -> None:
    drawn = np.zeros((4000, 7))
    words = stream(2)
    for row in drawn:
        row[sample_in_secret("poisson", 7, 2, words).numpy()] = 1
    spread = math.sqrt(2 / 7 * 5 / 7 / 4000)
    assert np.abs(drawn.mean(0) - 2 / 7).max() < 4 * spread
    together = np.cov(drawn.T)[~np.eye(7, dtype=bool)]
    assert np.abs(together).max() < 5 * 2 / 7 * 5 / 7 / math.sqrt(4000)
    assert drawn.sum(1).min() == 0  # nobody, now and then
    assert sample_in_secret("poisson", 0, 2, words).tolist() == []


def test_other_secret_draws() -> None:
    assert sample_in_secret("full", 4, 2, stream(3)).tolist() == [0, 1, 2, 3]
    counts = np.zeros(6)
    for i in range(600):
        some = sample_in_secret("uniform", 6, 2, stream(i)).tolist()
        assert len(set(some)) == 2
        assert some == sorted(some)
        counts[some] += 1
    assert np.abs(counts / 600 - 1 / 3).max() < 4 * math.sqrt(2 / 9 / 600)
    with pytest.raises(ValueError, match="weighted"):
        sample_in_secret("weighted", 6, 2, stream(0))
