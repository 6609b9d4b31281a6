"""The sampler against the exact probabilities it claims, under a stream that is the same every time."""

import math

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import chisquare, kstest, norm

pytest.importorskip("cryptography")

from spreadout.privacy.discrete_gaussian import (
    LARGEST,
    bernoulli_exp,
    discrete_gaussian,
    discrete_laplace,
    uniform,
)
from spreadout.privacy.keystream import KeyStream


def stream(number: int) -> KeyStream:
    return KeyStream(bytes([number]) * 32)


def fits(drawn: NDArray[np.int64], weight: NDArray[np.float64]) -> float:
    """The p-value of draws from weights over −n … n; rare values are looked at together."""
    n = len(weight) // 2
    expected = weight / weight.sum() * len(drawn)
    seen = np.bincount(np.clip(drawn, -n, n) + n, minlength=len(weight)).astype(float)
    often = expected >= 10
    pooled = [np.append(one[often], one[~often].sum()) for one in (seen, expected)]
    return float(chisquare(*pooled).pvalue)


@pytest.mark.parametrize("sigma", [1, 2, 7, 30])
def test_it_has_the_probabilities_of_the_discrete_gaussian(sigma: int) -> None:
    x = np.arange(-20 * sigma, 20 * sigma + 1)
    drawn = discrete_gaussian(200_000, sigma, stream(sigma))
    assert len(drawn) == 200_000
    assert fits(drawn, np.exp(-(x**2) / (2 * sigma**2))) > 0.001
    assert fits(drawn, np.exp(-(x**2) / (2 * (1.03 * sigma) ** 2))) < 1e-6  # it would be noticed


def test_a_fine_grid_has_the_shape_of_the_continuous_one() -> None:
    drawn = discrete_gaussian(200_000, 40_000, stream(1)) / 40_000
    assert kstest(drawn, norm.cdf).pvalue > 0.001
    assert abs(float(np.corrcoef(drawn[1:], drawn[:-1])[0, 1])) < 0.01


def test_many_are_drawn_block_by_block(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("spreadout.privacy.discrete_gaussian.BLOCK", 1000)
    asked = []

    def words(count: int) -> NDArray[np.uint64]:
        asked.append(count)
        return own(count)

    own = stream(5)
    drawn = discrete_gaussian(20_000, 7, words)
    assert len(drawn) == 20_000
    assert max(asked) < 2000
    assert float(drawn.std()) == pytest.approx(7, rel=0.03)


def test_its_parts_have_theirs() -> None:
    x = np.arange(-200, 201)
    assert fits(discrete_laplace(200_000, 5, stream(2)), np.exp(-np.abs(x) / 5)) > 0.001
    for p, q in [(0, 7), (3, 7), (7, 7), (25, 7), (1, 2**33)]:
        happened = bernoulli_exp(np.full(100_000, p), q, stream(3)).mean()
        assert happened == pytest.approx(math.exp(-p / q), abs=0.006)
    assert chisquare(np.bincount(uniform(100_000, 6, stream(4)))).pvalue > 0.001
    unfair = iter([np.array([2**64 - 1], np.uint64), np.array([9], np.uint64)])  # 2^64 − 1 has no place
    assert uniform(1, 6, lambda count: next(unfair)).tolist() == [3]


def test_streams_are_their_keys_own() -> None:
    assert np.array_equal(stream(1)(10), stream(1)(10))
    assert not np.array_equal(stream(1)(10), stream(2)(10))
    assert not np.array_equal(KeyStream()(10), KeyStream()(10))
    one = stream(1)
    assert not np.array_equal(one(10), one(10))
    for wrong in (0, LARGEST + 1):
        with pytest.raises(ValueError, match="must lie between"):
            discrete_gaussian(1, wrong, one)
