"""Whether arrays are pictures: real ones of eight pixels a side are, noise and boards are not."""

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits

import spreadout as so
from spreadout.data import continuity as module
from spreadout.data.arrays import as_inputs
from spreadout.data.columns import Dense
from spreadout.data.continuity import continuity, is_picture


def images(x: np.ndarray) -> Dense:
    found = as_inputs(x.astype(np.float32))
    assert isinstance(found, Dense)
    return found


def test_digits_are_pictures() -> None:
    digits = load_digits().images[:, None]
    assert continuity(images(digits)) > 0.3
    shuffled = digits.reshape(-1, 64)[:, np.random.default_rng(0).permutation(64)]
    assert not is_picture(images(shuffled.reshape(-1, 1, 8, 8)))  # the same numbers elsewhere


@pytest.mark.parametrize("shape", [(1, 8, 8), (3, 32, 32), (12, 8, 8), (3, 16, 40)], ids=str)
def test_noise_and_boards_are_none(shape: tuple[int, ...]) -> None:
    rng = np.random.default_rng(0)
    assert not is_picture(images(rng.normal(size=(200, *shape))))
    assert not is_picture(images(rng.random((200, *shape)) < 0.1))


def test_both_directions_count() -> None:
    """Rows of a table one below the other, each smooth, are no picture."""
    rows = np.random.default_rng(0).normal(size=(100, 1, 16, 1)) + np.linspace(0, 0.5, 16)
    assert not is_picture(images(rows))
    assert not is_picture(images(rows.swapaxes(2, 3)))


def test_without_contrast_or_images_there_is_nothing_to_say() -> None:
    assert continuity(images(np.ones((20, 1, 8, 8)))) == 0
    assert continuity(Dense(torch.zeros(0, 1, 8, 8))) == 0
    assert continuity(images(np.ones((20, 3, 8, 1)))) == 0
    rows = so.FederatedDataset.from_arrays(np.ones((20, 8)), np.arange(20) % 2)
    assert not rows.may_be_shifted


def test_large_images_are_fewer(monkeypatch: pytest.MonkeyPatch) -> None:
    x = np.random.default_rng(0).normal(size=(50, 1, 8, 8))
    x[0] = np.linspace(0, 1, 8)  # along rows, and so down as well: 1 in one way, none in the other
    x[0] += np.linspace(0, 1, 8)[:, None]
    assert continuity(images(x)) < 0.15
    monkeypatch.setattr(module, "NUMBERS", 64)
    assert continuity(images(x)) > 0.9  # of the first alone


@pytest.mark.parametrize("value", [0.0, 0.1, 7 / 255, 40.0])
def test_images_without_contrast_are_no_pictures(value: float) -> None:
    x = torch.full((6, 1, 8, 8), value)
    assert continuity(Dense(x)) == 0
