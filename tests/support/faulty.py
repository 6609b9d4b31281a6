"""Small data on which runs go wrong in known ways, and such runs."""

from typing import Any

import numpy as np
import torch

import spreadout as so
from spreadout.runs.finding import Finding

PLAIN: dict[str, Any] = {"chosen": []}  # nothing is chosen by the data: these are about bad settings


def blobs(
    classes: int = 10,
    each: int = 8,
    dim: int = 12,
    noise: float = 0.3,
    shift: float = 0.0,
    clients: int | None = None,
    held: int = 20,
    validation: int = 0,
) -> so.Splits:
    """Classes around random centres; a client for each, or so many with some of all.

    held: examples of a class that are held out; validation: so many of these are for that.
    """
    rng = np.random.default_rng(0)
    centre = rng.normal(size=(classes, dim))

    def drawn(count: int) -> tuple[np.ndarray, np.ndarray]:
        y = np.repeat(np.arange(classes), count)
        return (centre[y] + shift + noise * rng.normal(size=(len(y), dim))).astype(np.float32), y

    x, y = drawn(each)
    owner = y if clients is None else np.arange(len(y)) % clients
    train = so.FederatedDataset.from_arrays(x, y, client=owner)
    x, y = drawn(held)
    apart = np.arange(len(y)) % held < validation
    other = so.Examples.from_arrays(x[apart], y[apart]) if validation else None
    return so.Splits("blobs", train, so.Examples.from_arrays(x[~apart], y[~apart]), other)


def mislabelled(validation: int = 0) -> so.Splits:
    """Four classes of which the training data has many wrong labels: they are learned by heart in the end."""
    data = blobs(
        classes=4, each=25, dim=10, noise=1.0, clients=4, held=20 + validation, validation=validation
    )
    rng = np.random.default_rng(1)
    x, y = (data.train.columns[name].take(torch.arange(100)).numpy().copy() for name in "xy")
    wrong = rng.random(100) < 0.4
    y[wrong] = rng.integers(0, 4, int(wrong.sum()))
    train = so.FederatedDataset.from_arrays(x, y, client=np.arange(100) % 4)
    return so.Splits("mislabelled", train, data.test, data.validation)


def skewed() -> so.Splits:
    """Inputs say nothing, and 70 % are of one class: the best is that one, always."""
    rng = np.random.default_rng(0)
    y = np.repeat(np.arange(4), (140, 20, 20, 20))
    x = rng.normal(size=(200, 3)).astype(np.float32)
    held = [so.Examples.from_arrays(x[i::4], y[i::4]) for i in (0, 1)]
    rest = np.arange(200) % 4 > 1
    return so.Splits(
        "skewed", so.FederatedDataset.from_arrays(x[rest], y[rest], y[rest]), held[0], held[1]
    )


def loud(n: int = 200, features: int = 200, held: int = 300) -> so.Splits:
    """Four classes by ten features of a large scale among many of noise: brought to one, they drown."""
    rng = np.random.default_rng(0)
    centre = rng.normal(size=(4, 10))

    def drawn(count: int) -> tuple[np.ndarray, np.ndarray]:
        y = np.arange(count) % 4
        x = rng.normal(size=(count, features))
        x[:, :10] = 4 * (x[:, :10] + centre[y])
        return x.astype(np.float32), y

    x, y = drawn(n)
    train = so.FederatedDataset.from_arrays(x, y, y)
    return so.Splits("loud", train, so.Examples.from_arrays(*drawn(held)))


def wide(
    n: int = 200,
    features: int = 400,
    telling: int = 20,
    scales: float = 1.5,
    validation: int = 0,
    seed: int = 0,
) -> so.Splits:
    """Four classes by some features among many of noise; scales: how far those of features differ."""
    rng = np.random.default_rng(seed)
    centre, scale = 0.9 * rng.normal(size=(4, telling)), np.exp(scales * rng.normal(size=features))

    def inputs(y: np.ndarray) -> np.ndarray:
        x = rng.normal(size=(len(y), features))
        x[:, :telling] += centre[y]
        return (scale * x).astype(np.float32)

    y = np.arange(n) % 4
    train = so.FederatedDataset.from_arrays(inputs(y), y, y)
    parts = [np.arange(300) % 4, rng.integers(0, 4, validation)]  # a few are seldom as many of each
    test, other = (so.Examples.from_arrays(inputs(y), y) if len(y) else None for y in parts)
    assert test is not None
    return so.Splits("wide", train, test, other)


def corners(n: int = 600, held: int = 500) -> so.Splits:
    """The corners of a cube of seven dimensions in two colours by chance, and eight features of noise.

    Neighbours know the corners; a small network learns some of them, wherever it is trained.
    """
    rng = np.random.default_rng(0)
    colour = rng.integers(0, 2, 2**7)

    def drawn(count: int) -> tuple[np.ndarray, np.ndarray]:
        corner = rng.integers(0, 2, (count, 7))
        x = 2.0 * (2 * corner - 1) + 0.5 * rng.normal(size=(count, 7))
        noise = rng.normal(size=(count, 8))
        return np.hstack([x, noise]).astype(np.float32), colour[corner @ 2 ** np.arange(7)]

    x, y = drawn(n)
    train = so.FederatedDataset.from_arrays(x, y, y)
    return so.Splits("corners", train, so.Examples.from_arrays(*drawn(held)))


def rare(gap: float, validation: int, seed: int = 0) -> so.Splits:
    """Three classes, a client each, of 90, 7 and 3 % of the examples; gap: between their centres."""
    rng = np.random.default_rng(seed)
    centre = gap * rng.normal(size=(3, 10))

    def drawn(count: int) -> tuple[np.ndarray, np.ndarray]:
        y = np.searchsorted([0.9 * count, 0.97 * count], np.arange(count), side="right")
        return (centre[y] + rng.normal(size=(count, 10))).astype(np.float32), y

    x, y = drawn(120)
    train = so.FederatedDataset.from_arrays(x, y, y)
    test, other = (so.Examples.from_arrays(*drawn(count)) for count in (300, validation))
    return so.Splits("rare", train, test, other)


def doubled(leave_out: bool) -> so.Splits:
    """Classes that nothing tells; half of the test rows are training rows too, unless left out there."""
    rng = np.random.default_rng(2)
    x, y = rng.normal(size=(300, 6)).astype(np.float32), rng.integers(0, 4, 300)
    kept = slice(50 if leave_out else 0, 200)
    train = so.FederatedDataset.from_arrays(x[kept], y[kept], np.arange(len(x[kept])) % 4)
    again = np.r_[:50, 200:250]
    return so.Splits("doubled", train, so.Examples.from_arrays(x[again], y[again]))


def ran(data: so.Splits, /, **changes: Any) -> tuple[float, list[Finding]]:
    """The score at the end, and what was found."""
    base: dict[str, Any] = {**PLAIN, "rounds": 20, "eval": {"every": 2}, "method": {"name": "fedavg"}}
    result = so.run(so.Experiment.of({**base, **changes}), data=data)
    return next(iter(result.metrics.values())), [Finding(**one) for one in result.summary["findings"]]
