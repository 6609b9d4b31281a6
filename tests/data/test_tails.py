"""Long tails: roots and back, what counts as long, and what does not matter to it."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from spreadout.data.columns import Dense
from spreadout.data.moments import moments
from spreadout.data.tails import LONG, POWERS, shortened, to_power, with_roots

ROWS = 4000


def drawn(kind: str, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    normal = rng.normal(size=ROWS)
    some = {
        "normal": normal,
        "far from 0": 1000 + np.exp(normal),
        "uniform": rng.random(ROWS),
        "exponential": rng.exponential(size=ROWS),
        "indicator": (rng.random(ROWS) < 0.01) * 1.0,
        "one value or 0": (rng.random(ROWS) < 0.01) * 37.0,
        "constant": np.full(ROWS, 5.0),
        "nothing": np.zeros(ROWS),
        "log-normal 0.5": np.exp(0.5 * normal),
        "log-normal 1.5": np.exp(1.5 * normal),
        "log-normal 4": np.exp(4 * normal),
        "both signs": rng.choice([-1, 1], ROWS) * np.exp(1.5 * normal),
        "an outlier": np.append(normal[1:] + 5, 1e4),
        "counts": rng.poisson(np.exp(1.5 * normal)) * 1.0,
    }
    return some[kind]


def powers(x: np.ndarray) -> list[float]:
    column = Dense(torch.from_numpy(x.astype(np.float32).reshape(len(x), -1)))
    power, _, _ = shortened(*moments(column, torch.arange(len(x)), with_roots))
    return [round(one, 4) for one in power.tolist()]


@pytest.mark.parametrize(
    ("kind", "power"),
    [
        ("normal", 1),
        ("far from 0", 1),
        ("uniform", 1),
        ("exponential", 1),
        ("indicator", 1),
        ("one value or 0", 1),
        ("constant", 1),
        ("nothing", 1),
        ("log-normal 0.5", 1),
        ("log-normal 1.5", 1 / 3),
        ("log-normal 4", 1 / 9),
        ("both signs", 1 / 3),
        ("an outlier", 1 / 3),
        ("counts", 1 / 3),
    ],
)
def test_which_tails_are_long(kind: str, power: float) -> None:
    x = drawn(kind)
    assert powers(x) == [round(power, 4)]
    assert powers(x * 1e9) == powers(x * 1e-9) == powers(-x) == [round(power, 4)]  # in any unit
    blank = np.zeros(9 * ROWS)  # nor does it matter how often a feature is 0
    assert powers(np.concatenate([x, blank])) == [round(power, 4)]


finite = st.floats(-1e6, 1e6, width=32).filter(lambda x: x == 0 or abs(x) > 1e-6)


@given(arrays.arrays(np.float64, st.integers(1, 30), elements=finite), st.sampled_from(POWERS))
def test_roots_keep_sign_and_order_and_can_be_taken_back(x: np.ndarray, power: float) -> None:
    x = np.sort(x)
    root = to_power(torch.from_numpy(x), power)
    np.testing.assert_allclose(to_power(root, 1 / power), x, rtol=1e-9)
    np.testing.assert_array_equal(root.sign(), np.sign(x))
    assert (root.diff() >= 0).all()
    if power == 1:
        np.testing.assert_array_equal(root, x)  # to the last bit


def test_what_is_missing_stays_missing() -> None:
    x = torch.tensor([[torch.nan, 8.0, -8.0, 0.0]])
    power = torch.tensor([1 / 3, 1 / 3, 1 / 3, 1 / 3])
    torch.testing.assert_close(
        to_power(x, power), torch.tensor([[torch.nan, 2.0, -2.0, 0.0]]), equal_nan=True
    )


@given(st.integers(0, 1000))
def test_powers_and_moments_are_those_of_a_plain_loop(seed: int) -> None:
    rng = np.random.default_rng(seed)
    x = np.exp(rng.normal(size=(50, 5)) * [0.1, 0.7, 1.2, 2, 4]) * (rng.random((50, 5)) < 0.8)
    column = Dense(torch.from_numpy(x.astype(np.float32)))
    power, mean, variance = shortened(*moments(column, torch.arange(50), with_roots))
    for j, values in enumerate(column.values.double().numpy().T):
        chosen = 0
        while chosen < len(POWERS) - 1:
            here, next_ = values ** POWERS[chosen], values ** POWERS[chosen + 1]
            there = (values != 0).mean()
            if not there or there**2 * (here**2).mean() / (next_**2).mean() ** 3 <= LONG:
                break
            chosen += 1
        assert power[j] == POWERS[chosen]
        assert float(mean[j]) == pytest.approx((values ** POWERS[chosen]).mean())
        assert float(variance[j]) == pytest.approx((values ** POWERS[chosen]).var())
