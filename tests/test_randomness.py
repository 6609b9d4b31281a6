import numpy as np

from spreadout import randomness


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
    draws = randomness.uniform(randomness.key(0, "test"), np.arange(100_000))
    counts, _ = np.histogram(draws, bins=100, range=(0, 1))
    # Chi-square with 99 degrees of freedom has mean 99 and deviation 14.
    assert ((counts - 1000) ** 2 / 1000).sum() < 99 + 5 * 14


def test_neighbouring_counters_are_uncorrelated() -> None:
    draws = randomness.uniform(randomness.key(0, "test"), np.arange(100_000))
    assert abs(np.corrcoef(draws[:-1], draws[1:])[0, 1]) < 0.016  # five deviations of 1/√n
