"""Images that should not have been mirrored: what a run says of it, and that what it says helps."""

from typing import Any

import numpy as np
import pytest

import spreadout as so

SIDE, EACH = 16, 150


def arrows(seed: int) -> tuple[Any, Any]:
    """To the left and to the right, anywhere in the frame."""
    rng = np.random.default_rng(seed)
    arrow = np.zeros((7, 9))
    arrow[2:5, :5] = 1
    for i in range(4):
        arrow[i : 7 - i, 5 + i] = 1
    y = np.arange(2 * EACH) % 2
    x = rng.normal(0, 0.05, (2 * EACH, 1, SIDE, SIDE))
    for image, one in zip(x, y, strict=True):
        top, left = rng.integers(0, SIDE - 7), rng.integers(0, SIDE - 9)
        image[0, top : top + 7, left : left + 9] += arrow if one else arrow[:, ::-1]
    return x.astype(np.float32), y


def test_a_run_that_mirrored_what_has_a_side_says_so_and_its_remedy_helps(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The choice sees this side; here it is made as if it did not."""
    monkeypatch.setattr(so.FederatedDataset, "may_be_mirrored", True)
    (x, y), held = arrows(0), arrows(1)
    splits = so.Splits("arrows", so.FederatedDataset.from_arrays(x, y), so.Examples.from_arrays(*held))
    values = {"method": {"name": "fedaws"}, "model": {"width": 16}, "rounds": 200}
    told, scores = {}, {}
    for changes in ((), ("clients.image_flip=false",)):
        made = so.Experiment.of(values, overrides=changes)
        found = so.run(made, data=splits, device="cpu", progress=False)
        assert found.federation.clients.augment.flip == (not changes)
        told[changes] = {one["name"]: one["remedy"] for one in found.summary["findings"]}
        scores[changes] = found.metrics["P@1"]
    assert next(iter(told[()].items()))[0] == "mirrored classes"
    assert told[()]["mirrored classes"].startswith("set clients.image_flip = false")
    assert "mirrored classes" not in told["clients.image_flip=false",]
    assert scores["clients.image_flip=false",] > scores[()] + 20
