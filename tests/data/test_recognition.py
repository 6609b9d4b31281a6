"""Classes that are mirror images of each other anywhere in the frame, and such as may be mirrored."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits

import spreadout as so
from spreadout.data.arrangement import arrangements
from spreadout.data.arrays import as_examples
from spreadout.data.columns import Dense
from spreadout.data.handedness import Handedness, handedness
from spreadout.data.recognition import Recognition, recognition

Made = tuple[np.ndarray, np.ndarray]
EACH = 120


def drawn(*rows: str) -> np.ndarray:
    return np.array([[float(cell == "#") for cell in row] for row in rows])


ARROW = drawn("....#....", "....##...", "########.", "#########", "########.", "....##...", "....#....")
B = drawn("#.....", "#.....", "#.....", "#####.", "#....#", "#....#", "#####.")
P = B[::-1]
ROUND = drawn(".####.", "#....#", "#....#", "#....#", "#....#", ".####.")


def blurred(x: np.ndarray) -> np.ndarray:
    """Light and shade that mean nothing: as smooth as a photograph."""
    for axis in (-2, -1):
        for _ in range(4):
            x = (np.roll(x, 1, axis) + x + np.roll(x, -1, axis)) / 3
    return x / x.std()


def anywhere(
    shapes: list[np.ndarray],
    *,
    side: int = 24,
    noise: float = 0.05,
    scenes: bool = False,
    either_sign: bool = False,
    turned: bool = False,
    seed: int = 0,
) -> Made:
    """A class for each shape, in any place; on scenes, bright or dark, or either way round if asked."""
    rng = np.random.default_rng(seed)
    y = np.repeat(np.arange(len(shapes)), EACH)
    x = rng.normal(0, 1, (len(y), 1, side, side))
    x = 0.4 * blurred(x) if scenes else noise * x
    for image, one in zip(x, y, strict=True):
        shape = shapes[one]
        if turned and rng.random() < 0.5:
            shape = shape[:, ::-1]
        top, left = (rng.integers(0, side - length + 1) for length in shape.shape)
        sign = rng.choice([-1, 1]) if either_sign else 1
        image[0, top : top + shape.shape[0], left : left + shape.shape[1]] += sign * shape
    return x.astype(np.float32), y


def pair(left: list[np.ndarray]) -> list[np.ndarray]:
    """These, and what they are in a mirror."""
    return [*left, *(shape[:, ::-1] for shape in left)]


def coloured() -> Made:
    """Red to the left of blue, or to the right: grey, they are the same."""
    rng, y = np.random.default_rng(0), np.repeat([0, 1], EACH)
    x = rng.normal(0, 0.05, (len(y), 3, 24, 24))
    for image, one in zip(x, y, strict=True):
        top, left = rng.integers(0, 20), rng.integers(0, 16)
        for channel, start in ((0, left), (2, left + 4)) if one else ((2, left), (0, left + 4)):
            image[channel, top : top + 4, start : start + 4] += 1
    return x.astype(np.float32), y


def whirls() -> Made:
    """Spirals of either sense, in any place and however turned."""
    rng, y = np.random.default_rng(0), np.repeat([0, 1], EACH)
    down, right = np.mgrid[:24, :24]
    x = np.empty((len(y), 1, 24, 24))
    for image, one in zip(x, y, strict=True):
        at = rng.uniform(8, 16, 2)
        far = np.hypot(down - at[0], right - at[1]) + 0.5
        angle = np.arctan2(down - at[0], right - at[1])
        phase = 3 * angle + (4 if one else -4) * np.log(far) + rng.uniform(0, 6.3)
        image[0] = np.cos(phase) * np.exp(-((far / 7) ** 2)) + rng.normal(0, 0.1, (24, 24))
    return x.astype(np.float32), y


def weave() -> Made:
    """A texture all over, whose lines rise to the right or fall."""
    rng, y = np.random.default_rng(0), np.repeat([0, 1], EACH)
    down, right = np.mgrid[:24, :24]
    angle = rng.uniform(0.3, 1.2, len(y)) * np.where(y == 1, 1, -1)
    phase = rng.uniform(0.5, 1.2, (len(y), 1, 1)) * (
        np.cos(angle)[:, None, None] * right + np.sin(angle)[:, None, None] * down
    )
    x = np.sin(phase + rng.uniform(0, 6.3, (len(y), 1, 1))) + rng.normal(0, 0.3, phase.shape)
    return x[:, None].astype(np.float32), y


def two_of_many() -> Made:
    """Arrows to either side among classes that have none."""
    x, y = anywhere([ROUND * (1 + 0.1 * i) for i in range(20)], scenes=True)
    arrows, _ = anywhere(pair([ARROW]), scenes=True, seed=1)
    x[np.isin(y, [4, 9])] = arrows
    return x, y


WITH_SIDE: dict[str, Callable[[], Made]] = {
    "arrows": lambda: anywhere(pair([ARROW])),
    "arrows on 16 pixels": lambda: anywhere(pair([ARROW]), side=16),
    "arrows in noise": lambda: anywhere(pair([ARROW]), noise=0.4),
    "arrows, bright or dark": lambda: anywhere(pair([ARROW]), either_sign=True),
    "arrows on scenes": lambda: anywhere(pair([ARROW]), scenes=True),
    "b and d": lambda: anywhere(pair([B])),
    "p and q": lambda: anywhere(pair([P])),
    "b, d, p and q on scenes": lambda: anywhere(pair([B, P]), scenes=True, either_sign=True),
    "red and blue": coloured,
    "whirls": whirls,
    "weave": weave,
    "two of many": two_of_many,
}
WITHOUT: dict[str, Callable[[], Made]] = {
    "arrows to either side in one class": lambda: anywhere([ARROW, ROUND], turned=True),
    "letters either way round": lambda: anywhere([B, P, ROUND], turned=True, scenes=True),
    "arrows up and down": lambda: anywhere([ARROW.T, ARROW.T[::-1]]),
    "many that are the same in a mirror": lambda: anywhere([ROUND, ARROW.T, np.ones((4, 6))]),
    "nothing to see": lambda: anywhere([np.zeros((4, 4))] * 4),
    "scenes alone": lambda: anywhere([np.zeros((4, 4))] * 10, scenes=True),
}


def found_in(made: Made) -> Handedness:
    images, labels = as_examples(*made)
    assert isinstance(images, Dense)
    found = handedness(images, Dense(labels))
    assert found is not None
    return found


@pytest.mark.parametrize("make", WITH_SIDE.values(), ids=WITH_SIDE.keys())
def test_a_side_is_seen_wherever_the_thing_is(make: Callable[[], Made]) -> None:
    found = found_in(make())
    assert not found.recognition.is_kept
    assert not found.is_none


@pytest.mark.parametrize("name", ["arrows", "b and d", "two of many"])
def test_no_odd_part_is_common_to_such_classes(name: str) -> None:
    """By the two views that look at places alone they would be mirrored."""
    found = found_in(WITH_SIDE[name]())
    assert found.brightness.is_none
    assert found.edges.is_none


@pytest.mark.parametrize("make", WITHOUT.values(), ids=WITHOUT.keys())
@pytest.mark.parametrize("seed", range(3))
def test_classes_without_a_side_may_be_mirrored(make: Callable[[], Made], seed: int) -> None:
    x, y = make()
    some = np.random.default_rng(seed).permutation(len(y))[: len(y) * 4 // 5]
    found = found_in((x[some], y[some]))
    assert found.recognition.is_kept
    assert found.is_none


def test_digits_are_not_known_in_a_mirror() -> None:
    bunch = load_digits()
    found = found_in((bunch.images[:, None].astype(np.float32), bunch.target)).recognition
    assert found.known > 0.95
    assert found.mirrored < 0.5
    assert not found.is_kept


def test_a_default_run_does_not_mirror_arrows_and_tells_them_apart() -> None:
    x, y = anywhere(pair([ARROW]), side=16)
    data = so.FederatedDataset.from_arrays(x, y)
    splits = so.Splits(
        "arrows", data, so.Examples.from_arrays(*anywhere(pair([ARROW]), side=16, seed=1))
    )
    assert data.may_be_shifted
    short = {"method": {"name": "fedaws"}, "model": {"width": 16}, "rounds": 200}
    found = so.run(so.Experiment.of(short), data=splits, device="cpu", progress=False)
    assert not found.federation.clients.augment.flip
    assert found.metrics["P@1"] > 90


@pytest.mark.parametrize(
    "shape", [(1, 16, 16), (3, 32, 32), (2, 9, 13), (4, 32, 20), (1, 4, 4), (1, 5, 31)]
)
def test_what_is_said_of_mirror_images_is_what_is_found_in_them(shape: tuple[int, ...]) -> None:
    x = torch.randn(5, *shape, generator=torch.Generator().manual_seed(0))
    plain, mirrored = arrangements(x)
    again, back = arrangements(x.flip(-1))
    torch.testing.assert_close(mirrored, again, atol=1e-5, rtol=0)
    torch.testing.assert_close(plain, back, atol=1e-5, rtol=0)
    assert float((plain - mirrored).abs().max()) > 0.01


def test_an_arrangement_does_not_depend_on_the_place_nor_on_contrast() -> None:
    x = torch.zeros(4, 1, 16, 16)
    for i, (top, left) in enumerate([(2, 2), (7, 2), (2, 5), (6, 4)]):
        x[i, 0, top : top + 7, left : left + 9] = torch.from_numpy(ARROW)
    x[3] = 5 * x[3] + 2
    plain, mirrored = arrangements(x)
    torch.testing.assert_close(plain, plain[:1].expand_as(plain), atol=1e-4, rtol=0)
    assert float((plain - mirrored).norm()) > 0.1


def test_few_that_are_lost_are_chance_and_a_class_that_is_lost_is_not() -> None:
    assert Recognition(0.9, 0.9, 0.1, 0.01, -0.1).is_kept
    assert Recognition(0.9, 0.8, 0.1, 0.01, 0.2).is_kept  # an eighth of what is known
    assert not Recognition(0.9, 0.6, 0.1, 0.01, 0.2).is_kept
    assert Recognition(0.9, 0.6, 0.1, 0.2, 0.2).is_kept  # of a dozen images
    assert not Recognition(0.9, 0.88, 0.1, 0.01, 0.5).is_kept  # one class of fifty
    assert not Recognition(0.5, 0.3, 0.5, 0.05, -0.1).is_kept  # by chance it would not be less
    nothing = float("nan")
    assert not Recognition(nothing, nothing, 0.1, nothing, -1.0).is_kept


def test_numbers_that_are_none_are_no_reason_to_mirror() -> None:
    features = torch.randn(30, 4)
    features[3, 1] = torch.nan
    assert not recognition(features, features, torch.arange(30) // 10).is_kept


def test_one_class_and_features_that_say_nothing_lose_nothing() -> None:
    group = torch.zeros(30, dtype=torch.int64)
    one = recognition(torch.randn(30, 4), torch.randn(30, 4), group)
    assert (one.known, one.mirrored, one.is_kept) == (1.0, 1.0, True)
    flat = recognition(torch.ones(30, 4), torch.ones(30, 4), torch.arange(30) // 10)
    assert flat.known == flat.mirrored
    assert flat.is_kept
