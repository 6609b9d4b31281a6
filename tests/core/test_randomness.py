import numpy as np
import pytest
import torch

from spreadout.core import randomness
from spreadout.federated.augment import Augment


def uniform(stream: int, count: int) -> np.ndarray:
    return (randomness.bits(stream, np.arange(count)) >> np.uint64(11)).astype(float) * 2.0**-53


def test_draws_do_not_depend_on_who_is_drawn_beside() -> None:
    stream = randomness.key(7, "batches", 3)
    many = randomness.bits(stream, np.arange(1000), 5)
    assert many[417] == randomness.bits(stream, 417, 5)


def test_seed_purpose_and_counters_each_change_the_draw() -> None:
    draws = {
        int(randomness.bits(randomness.key(*key), counter))
        for key in [(0, "a"), (1, "a"), (0, "b"), (0, "a", 1), (0, "a", "1")]
        for counter in range(100)
    }
    assert len(draws) == 500


def test_uniform_draws_fill_the_unit_interval_evenly() -> None:
    draws = uniform(randomness.key(0, "test"), 100_000)
    counts, _ = np.histogram(draws, bins=100, range=(0, 1))
    # Chi-square with 99 degrees of freedom has mean 99 and deviation 14.
    assert ((counts - 1000) ** 2 / 1000).sum() < 99 + 5 * 14


def test_neighbouring_counters_are_uncorrelated() -> None:
    draws = uniform(randomness.key(0, "test"), 100_000)
    assert abs(np.corrcoef(draws[:-1], draws[1:])[0, 1]) < 0.016  # five deviations of 1/√n


def test_draws_on_a_device_are_uniform_or_normal_and_their_own_for_every_slot() -> None:
    slots = torch.from_numpy(randomness.bits(randomness.key(0, "t"), np.arange(500)).view(np.int64))
    even, bell = randomness.uniform_on(slots, 200), randomness.normal_on(slots, 200)
    assert even.shape == bell.shape == (500, 200)
    assert 0 <= float(even.min()) <= float(even.max()) < 1
    for draws in (even, torch.special.ndtr(bell)):  # a normal's own distribution makes it uniform
        counts = torch.histc(draws, bins=100, min=0, max=1)
        assert float(((counts - 1000) ** 2 / 1000).sum()) < 99 + 5 * 14
    assert torch.equal(randomness.uniform_on(slots[7:8], 200)[0], even[7])
    torch.testing.assert_close(randomness.normal_on(slots[7:8], 200)[0], bell[7])
    for a, b in [(even, bell), (bell[:-1], bell[1:]), (bell[:, :-1], bell[:, 1:])]:
        both = torch.stack([a.flatten(), b.flatten()])
        assert abs(float(torch.corrcoef(both)[0, 1])) < 0.016  # five deviations of 1/√n


def test_corruption_has_the_promised_size_and_keeps_the_mean() -> None:
    x = torch.ones(4, 3, 50, 40)
    clients = np.arange(4)
    noisy = Augment(noise=0.5)(x, clients, seed=0, round=0)
    assert float((noisy - x).std()) == pytest.approx(0.5, rel=0.02)
    assert float(noisy.mean()) == pytest.approx(1.0, abs=0.02)
    dropped = Augment(dropout=0.25)(x, clients, seed=0, round=0)
    assert float((dropped == 0).float().mean()) == pytest.approx(0.25, abs=0.02)
    assert float(dropped.mean()) == pytest.approx(1.0, abs=0.02)
    assert not torch.equal(noisy, Augment(noise=0.5)(x, clients, seed=0, round=1))
    alone = Augment(noise=0.5)(x[2:3], clients[2:3], seed=0, round=0)
    torch.testing.assert_close(alone[0], noisy[2])
