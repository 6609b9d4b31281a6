"""Images as people have them in arrays: any order of axes, bytes or numbers, trained and asked alike."""

from pathlib import Path

import numpy as np
import pytest

import spreadout as so
from spreadout.data.columns import Dense
from spreadout.flower.data import NOTHING_HELD_OUT
from spreadout.runs.predict import Predictor

RNG = np.random.default_rng(0)
Y = np.tile(np.arange(3), 12)
GREY = RNG.integers(0, 255, (36, 8, 8)).astype(np.uint8)
GREY[np.arange(36), Y * 2] = 255
COLOUR = np.stack([GREY, GREY // 2, GREY // 4], 1)  # channels first


def column_of(x: np.ndarray, folder: Path) -> Dense:
    np.savez(folder / "x.npz", x=x, y=Y)
    found = so.load_data(so.DataConfig(source="npz", path=str(folder / "x.npz"))).train.columns["x"]
    assert isinstance(found, Dense)
    return found


@pytest.mark.parametrize(
    ("x", "expected"),
    [
        (GREY, GREY[:, None]),
        (GREY[..., None], GREY[:, None]),
        (COLOUR, COLOUR),
        (np.moveaxis(COLOUR, 1, -1), COLOUR),
    ],
)
def test_axes_are_put_in_order_and_bytes_are_pixels(
    x: np.ndarray, expected: np.ndarray, tmp_path: Path
) -> None:
    found = column_of(x, tmp_path)
    assert found.values.shape[1:] == expected.shape[1:]
    assert (found.scale, found.shift) == (2 / 255, -1.0)
    rows = {row.tobytes() for row in expected}
    assert all(row.numpy().tobytes() in rows for row in found.values)
    numbers = column_of(x.astype(np.float32), tmp_path)
    assert numbers.scale is None
    assert numbers.values.shape == found.values.shape


def test_small_matrices_and_vectors_stay_features(tmp_path: Path) -> None:
    assert column_of(RNG.random((36, 4, 5)), tmp_path).values.shape[1:] == (4, 5)
    assert column_of(RNG.integers(0, 9, (36, 5)).astype(np.uint8), tmp_path).scale is None


def test_a_run_is_asked_in_any_order_of_axes(tmp_path: Path) -> None:
    last = np.moveaxis(COLOUR, 1, -1)
    np.savez(tmp_path / "x.npz", x=last, y=Y)
    data = {"source": "npz", "path": str(tmp_path / "x.npz")}
    so.run({"rounds": 2, "data": data, "method": {"name": "fedaws"}}, out=tmp_path / "run")
    assert so.Experiment.load(tmp_path / "run" / "config.toml").model.encoder == "convnet"
    asked = Predictor.load(tmp_path / "run")
    assert asked.predict(last[:4], 2) == asked.predict(COLOUR[:4], 2)


def test_bytes_and_numbers_are_not_mixed(tmp_path: Path) -> None:
    np.savez(tmp_path / "x.npz", x=GREY, y=Y, x_test=GREY.astype(np.float32), y_test=Y)
    with pytest.raises(so.UserError, match="x is uint8 and x_test float32"):
        so.load_data(so.DataConfig(source="npz", path=str(tmp_path / "x.npz")))


def test_arrays_in_python_are_read_as_those_of_a_file(tmp_path: Path) -> None:
    for x in (GREY, np.moveaxis(COLOUR, 1, -1), COLOUR.astype(np.float32), RNG.random((36, 4, 5))):
        there = column_of(x, tmp_path)
        train = so.FederatedDataset.from_arrays(x, Y).columns["x"]
        held = so.Examples.from_arrays(x, Y).inputs["x"]
        for found in (train, held):
            assert isinstance(found, Dense)
            assert (found.values.shape[1:], found.scale) == (there.values.shape[1:], there.scale)


def test_bytes_and_numbers_are_not_mixed_in_python_either() -> None:
    train = so.FederatedDataset.from_arrays(COLOUR, Y)
    so.Splits("same", train, so.Examples.from_arrays(COLOUR, Y))
    with pytest.raises(so.UserError, match="test: its images or those of the training data are bytes"):
        so.Splits("mixed", train, so.Examples.from_arrays(COLOUR / 255, Y))


def test_images_of_bytes_train_where_nothing_is_held_out() -> None:
    """As on a node of a deployment."""
    train = so.FederatedDataset.from_arrays(GREY[:, None], Y)
    splits = so.Splits("node", train, NOTHING_HELD_OUT)
    assert len(splits.test) == 0
