"""Whether classes of images have a side: on sets that were made with one or without, and on real digits."""

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits

import spreadout as so
from spreadout.core.ragged import Ragged
from spreadout.data import handedness as module
from spreadout.data.arrays import as_examples
from spreadout.data.columns import Dense, Lists
from spreadout.data.handedness import Handedness, handedness

SHAPES = [(1, 28, 28), (3, 32, 32), (1, 8, 8), (3, 24, 40), (1, 40, 16), (3, 64, 64)]


def pictures(
    shape: tuple[int, ...], classes: int, each: int, *, sided: bool, seed: int = 0
) -> tuple[np.ndarray, np.ndarray]:
    """Two soft blobs at places of the class, a little moved, in noise; half are mirrored unless sided."""
    rng = np.random.default_rng(seed)
    _, high, wide = shape
    y = np.repeat(np.arange(classes), each)
    places = rng.uniform(0.2, 0.8, (classes, 2, 2))
    places[:, 0, 1] = rng.uniform(0.1, 0.3, classes)  # one blob left of the middle
    at = places[y] + rng.normal(0, 0.02, (len(y), 2, 2))
    down, right = (np.arange(side)[None, :] / side for side in (high, wide))
    x = sum(
        np.exp(-(((down - at[:, blob, :1]) / 0.1) ** 2))[:, :, None]
        * np.exp(-(((right - at[:, blob, 1:]) / 0.1) ** 2))[:, None, :]
        for blob in (0, 1)
    )
    x = x[:, None] + rng.normal(0, 0.1, (len(y), *shape))
    if not sided:
        mirrored = rng.random(len(y)) < 0.5
        x[mirrored] = x[mirrored][..., ::-1]
    return x.astype(np.float32), y


def found_in(x: np.ndarray, y: np.ndarray) -> Handedness:
    images, labels = as_examples(x, y)
    assert isinstance(images, Dense)
    found = handedness(images, Dense(labels))
    assert found is not None
    return found


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_classes_that_lean_one_way_are_told_from_those_that_lean_either_way(
    shape: tuple[int, ...],
) -> None:
    either = found_in(*pictures(shape, 10, 60, sided=False))
    assert either.is_none
    assert abs(either.brightness.share) < 3 * either.brightness.error
    leaning = found_in(*pictures(shape, 10, 60, sided=True))
    assert not leaning.is_none
    assert leaning.brightness.share > 0.3
    assert leaning.brightness.surest > module.LIMIT


@pytest.mark.parametrize("side", [8, 28])
def test_digits_have_a_side(side: int) -> None:
    bunch = load_digits()
    x = torch.nn.functional.interpolate(torch.from_numpy(bunch.images)[:, None], side).numpy()
    found = found_in(x, bunch.target)
    assert not found.is_none
    assert min(found.brightness.share, found.edges.share) > 0.2


def test_signs_have_a_side_though_they_are_bright_on_dark_or_dark_on_bright() -> None:
    x, y = pictures((1, 28, 28), 10, 60, sided=True)
    x = x * np.where(np.random.default_rng(0).random(len(y)) < 0.5, 1, -1)[:, None, None, None]
    found = found_in(x.astype(np.float32), y)
    assert found.brightness.is_none
    assert found.edges.share > module.LIMIT
    assert not found.is_none


def test_light_from_one_side_is_a_side_though_it_has_no_edges() -> None:
    rng, y = np.random.default_rng(0), np.repeat([0, 1], 100)
    slope = np.where(y == 0, 1.0, -1.0)[:, None, None, None] * np.linspace(-1, 1, 28)
    found = found_in((slope + rng.normal(0, 0.1, (200, 1, 28, 28))).astype(np.float32), y)
    assert found.edges.is_none
    assert not found.is_none


def test_one_class_with_a_side_among_many_without_is_enough() -> None:
    """Two arrows among photographs: mirrored, one would be the other."""
    x, y = pictures((1, 16, 16), 60, 30, sided=False)
    assert found_in(x, y).is_none
    arrow, _ = pictures((1, 16, 16), 1, 30, sided=True, seed=1)
    x[y == 7], x[y == 8] = arrow, arrow[..., ::-1]
    found = found_in(x, y)
    assert found.brightness.share + module.SURE * found.brightness.error < module.LIMIT  # in the mean
    assert not found.is_none


@pytest.mark.parametrize(("classes", "each"), [(2, 3), (10, 3), (5, 5)])
def test_of_few_images_nothing_is_sure(classes: int, each: int) -> None:
    for seed in range(20):
        assert not found_in(*pictures((1, 16, 16), classes, each, sided=False, seed=seed)).is_none


def test_of_one_image_a_class_nothing_can_be_said() -> None:
    x, y = pictures((1, 16, 16), 200, 1, sided=False)
    images, labels = as_examples(x, y)
    assert isinstance(images, Dense)
    assert handedness(images, Dense(labels)) is None
    narrow = Dense(torch.zeros(40, 1, 16, 2))
    assert handedness(narrow, Dense(torch.zeros(40, dtype=torch.int64))) is None
    assert handedness(Dense(torch.zeros(0, 1, 8, 8)), Dense(torch.zeros(0, dtype=torch.int64))) is None


@pytest.mark.parametrize("value", [0.0, 1.0])
def test_images_without_anything_on_them_are_not_mirrored(value: float) -> None:
    x = np.full((60, 1, 8, 8), value, dtype=np.float32)
    assert not so.FederatedDataset.from_arrays(x, np.arange(60) % 3).may_be_mirrored


def test_shares_have_no_bias_and_errors_are_as_large_as_said() -> None:
    """However few images a class has: none is compared with itself."""
    some = [found_in(*pictures((1, 12, 12), 12, 4, sided=False, seed=seed)) for seed in range(60)]
    for shares in ([one.brightness for one in some], [one.edges for one in some]):
        values, errors = (np.array([getattr(one, key) for one in shares]) for key in ("share", "error"))
        assert abs(values.mean()) < 3 * values.std() / np.sqrt(len(values))
        assert (
            0.9 * values.std() < errors.mean() < 2 * values.std()
        )  # a jackknife's are rather too large


def test_only_so_many_images_are_looked_at_of_however_many_classes() -> None:
    x, y = pictures((1, 8, 8), 3000, 3, sided=False)
    few = found_in(x, y)
    assert (few.images, few.classes) == (300, 100)
    x, y = pictures((1, 8, 8), 10, 500, sided=False)
    many = found_in(x, y)
    assert (many.images, many.classes) == (2000, 10)
    assert many == found_in(x, y)


def test_large_images_are_fewer(monkeypatch: pytest.MonkeyPatch) -> None:
    x, y = pictures((1, 16, 16), 4, 50, sided=True)
    whole = found_in(x, y)
    monkeypatch.setattr(module, "AT_ONCE", 16 * 16 * 7)
    assert found_in(x, y) == whole  # a block at a time
    monkeypatch.setattr(module, "NUMBERS", 16 * 16 * 80)
    assert found_in(x, y).images == 80


def test_an_image_with_several_labels_is_one_of_each() -> None:
    x, y = pictures((1, 16, 16), 10, 60, sided=True)
    images, _ = as_examples(x, y)
    assert isinstance(images, Dense)
    sets = Lists.of(Ragged.from_lists([[int(label), 10] for label in y]))
    found = handedness(images, sets)
    assert found is not None
    assert (found.classes, found.is_none) == (11, False)
    x, _ = pictures((1, 16, 16), 10, 60, sided=False)
    images, _ = as_examples(x, y)
    assert isinstance(images, Dense)
    found = handedness(images, sets)
    assert found is not None
    assert found.is_none


def test_only_images_may_be_mirrored() -> None:
    x, y = pictures((1, 16, 16), 10, 60, sided=False)
    assert so.FederatedDataset.from_arrays(x, y).may_be_mirrored
    assert not so.FederatedDataset.from_arrays(x.reshape(len(x), -1), y).may_be_mirrored
