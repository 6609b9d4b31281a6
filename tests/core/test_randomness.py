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


@pytest.mark.parametrize("n", [*range(1, 71), 255, 256, 257, 5000, 65_537])
def test_every_order_is_a_permutation(n: int) -> None:
    keys = randomness.bits(3, np.arange(3))[:, None]
    orders = randomness.permute(np.arange(n)[None].repeat(3, 0), n, keys)
    assert (np.sort(orders) == np.arange(n)).all()


def test_places_are_permuted_one_by_one_as_together() -> None:
    sizes = np.array([1, 2, 9, 64, 65, 1000])
    places, keys = sizes - 1, randomness.bits(3, np.arange(6))
    together = randomness.permute(places, sizes, keys)
    alone = [
        int(randomness.permute(np.array([place]), int(n), key)[0])
        for place, n, key in zip(places, sizes, keys, strict=True)
    ]
    assert together.tolist() == alone
    assert randomness.permute(np.zeros((0, 1, 4), dtype=np.int64), 5, keys[:0, None, None]).size == 0


def permuted(place: int, n: int, key: int) -> int:
    """As `permute`, in plain numbers."""
    half = max(-(-(n - 1).bit_length() // 2), 3)
    while True:
        left, right = place >> half, place % 2**half
        for turn in range(6):
            left, right = right, left ^ mixed(mixed(right + (turn << 32)) ^ key) % 2**half
        place = left * 2**half + right
        if place < n:
            return place


def mixed(word: int) -> int:
    z = (word + 0x9E3779B97F4A7C15) % 2**64
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 % 2**64
    z = (z ^ z >> 27) * 0x94D049BB133111EB % 2**64
    return z ^ z >> 31


@pytest.mark.parametrize("places", [1, 50])  # under each key: of many, what it mixes is looked up
@pytest.mark.parametrize("most", [70, 2**20, 2**20 + 1])  # of the last, all is mixed as it comes
def test_orders_are_those_of_plain_numbers(most: int, places: int) -> None:
    sizes = np.array([1, 5, 64, 65, most])[:, None]
    place = np.arange(places) * 7 % sizes  # (sizes, places)
    keys = randomness.bits(4, np.arange(len(sizes)))[:, None]
    found = randomness.permute(place, sizes, keys)
    for i, size in enumerate(sizes[:, 0].tolist()):
        known = [permuted(one, size, int(keys[i, 0])) for one in place[i].tolist()]
        assert found[i].tolist() == known


@pytest.mark.parametrize("n", [2, 3, 4, 5, 8, 13, 16, 17, 33])
def test_two_places_go_to_any_two_equally_often(n: int) -> None:
    keys = randomness.bits(randomness.key(0, "pairs", n), np.arange(100_000))
    first, last = (
        randomness.permute(np.full(100_000, place, dtype=np.int64), n, keys) for place in (0, n - 1)
    )
    counts = np.bincount(first * n + last, minlength=n * n).reshape(n, n)[~np.eye(n, dtype=bool)]
    expected, free = 100_000 / len(counts), len(counts) - 1
    assert ((counts - expected) ** 2 / expected).sum() < free + 5 * (2 * free) ** 0.5


def test_all_orders_of_four_are_equally_likely() -> None:
    keys = randomness.bits(randomness.key(0, "orders"), np.arange(100_000))[:, None]
    orders = randomness.permute(np.arange(4)[None].repeat(100_000, 0), 4, keys)
    counts = np.unique(orders @ np.array([64, 16, 4, 1]), return_counts=True)[1]
    # Chi-square with 23 degrees of freedom has mean 23 and deviation 6.8.
    assert len(counts) == 24
    assert ((counts - 100_000 / 24) ** 2 / (100_000 / 24)).sum() < 23 + 5 * 6.8


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
    words = x * (torch.rand_like(x) < 0.1)  # a CPU draws for what is not 0 alone, and drops the same
    assert torch.equal(Augment(dropout=0.25)(words, clients, seed=0, round=0), dropped * words)
