"""Under [privacy] no default follows from what one client has: a chosen key stands in the config for all."""

from typing import Any

import numpy as np
import pytest
import torch

import spreadout as so
from spreadout.config.choices import division
from spreadout.config.sound import sound
from spreadout.core.ragged import Ragged
from spreadout.data.sources.base import Instances, RawDataset
from spreadout.methods import METHODS
from spreadout.runs.unprotected import refuse_unprotected

FEATURES, CLASSES, CLIENTS = 300, 20, 8
MANY = 5000


def world(*, other: bool, image: bool = False) -> so.Splits:
    """Eight clients with eight rows of numbers of one class each; in the other world client 3 has much else."""
    rng = np.random.default_rng(0)
    client = np.repeat(np.arange(CLIENTS), 8)
    y, x = client.copy(), rng.normal(size=(len(client), FEATURES)).astype(np.float32)
    if other:
        kept = client != 3
        words = (rng.random((MANY, FEATURES)) < 0.01).astype(np.float32)
        x = np.concatenate([x[kept], words])
        y = np.concatenate([y[kept], np.arange(MANY) % CLASSES])
        client = np.concatenate([client[kept], np.full(MANY, 3)])
    if image:
        x = np.ascontiguousarray(x[:, :256].reshape(len(x), 1, 16, 16))
    held = so.Examples.from_arrays(x[:4], y[:4])
    train = so.FederatedDataset.from_arrays(x, y, client, classes=CLASSES)
    return so.Splits("world", train, held, held)


def private_methods() -> list[str]:
    """Those that [privacy] takes as they come."""
    found = []
    for name in METHODS:
        try:
            experiment = so.Experiment.of({"method": {"name": name}, "privacy": {"clip": 1, "noise": 9}})
            refuse_unprotected(experiment, experiment.method)
        except so.UserError:
            continue
        found.append(name)
    return found


METHODS_TAKEN = private_methods()


def chosen(method: str, splits: so.Splits, privacy: dict[str, Any] | None) -> str:
    values: dict[str, Any] = {"method": {"name": method}, "data": {"partition": "iid"}}
    experiment = so.Experiment.of(values if privacy is None else {**values, "privacy": privacy})
    return sound(experiment, splits).to_toml()


@pytest.mark.parametrize("image", [False, True], ids=["numbers", "images"])
@pytest.mark.parametrize("model", ["local", "central", "distributed", "example"])
@pytest.mark.parametrize("method", METHODS_TAKEN)
def test_what_is_chosen_is_the_same_whatever_one_client_has(
    method: str, model: str, image: bool
) -> None:
    one, two = (world(other=other, image=image) for other in (False, True))
    privacy = {"clip": 1, "noise": 9, "model": model}
    assert chosen(method, one, privacy) == chosen(method, two, privacy)
    assert chosen(method, one, None) != chosen(method, two, None)  # else the worlds are one to it


def test_some_methods_are_tried() -> None:
    assert {"fedaws", "fedavg", "fedss", "fedmlh"} <= set(METHODS_TAKEN)


def raw(*, instances: int, sets: bool) -> RawDataset:
    labels = [[i % 5, (i + 1) % 5] if sets else [i % 5] for i in range(instances)]
    x = np.zeros((instances, 3), dtype=np.float32)
    found = Instances.of(x, [0] * instances)
    return RawDataset(Instances(found.columns, Ragged.from_lists(labels)), classes=5)


@pytest.mark.parametrize(
    ("method", "partition"), [("fedmlh", None), ("fedaws", {"name": "iid"}), ("fedaws", None)]
)
def test_who_holds_what_does_not_follow_from_how_many_rows_there_are(
    method: str, partition: dict[str, Any] | None
) -> None:
    def divided(instances: int, privacy: dict[str, Any] | None) -> dict[str, Any]:
        values: dict[str, Any] = {"method": {"name": method}}
        values |= {} if partition is None else {"data": {"partition": partition}}
        values |= {} if privacy is None else {"privacy": privacy}
        return division(so.Experiment.of(values), raw(instances=instances, sets=method == "fedmlh"))

    noise = {"clip": 1, "noise": 9}
    assert divided(9, noise) == divided(900, noise)
    if method == "fedmlh" or partition:
        assert divided(9, None) != divided(900, None)


def test_clients_without_examples_are_left_out_unless_that_too_is_hidden() -> None:
    x = np.zeros((4, 3), dtype=np.float32)
    y = np.array([0, 1, 0, 1])
    train = so.FederatedDataset.from_arrays(x, y, np.array([0, 1, 3, 3]), classes=2)
    splits = so.Splits("gap", train, so.Examples.from_arrays(x, y))
    assert torch.equal(train.offsets.diff(), torch.tensor([1, 1, 0, 2]))
    for model, selection in (("local", "nonempty"), ("central", "poisson")):
        asked = so.Experiment.of({"privacy": {"clip": 1, "noise": 9, "model": model}})
        assert sound(asked, splits).clients.selection == selection


@pytest.mark.parametrize(
    ("values", "held"),
    [
        ({}, False),
        ({"eval": {"keep": "best"}}, True),
        ({"eval": {"patience": 3}}, True),
        ({"eval": {"split": "validation"}}, True),
        ({"eval": {"decode": "knn"}}, True),
    ],
)
def test_rows_are_held_out_for_validation_only_where_a_key_asks_for_them(
    values: dict[str, Any], held: bool
) -> None:
    for privacy in ({}, {"privacy": {"clip": 1, "noise": 9}}):
        chosen_here = division(so.Experiment.of({**values, **privacy}), raw(instances=90, sets=False))
        assert ("data.validation_fraction" in chosen_here) == (held or not privacy)
