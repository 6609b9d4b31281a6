"""What is chosen beside a drift correction, which takes some optimisers only."""

import pytest

import spreadout as so
from spreadout.config import sound
from toys import label_sets

MANY = ("fedmlh", "fedavg-bce")  # methods whose clients take Adam for five epochs


def asked(method: str, *changes: str) -> so.Experiment:
    values = {"method": {"name": method}, "rounds": 10, "eval": {"references": False}}
    return so.Experiment.of(values, overrides=changes)


@pytest.mark.parametrize("method", MANY)
def test_scaffold_has_an_optimiser_that_it_takes(method: str) -> None:
    data = label_sets(n=400)
    plain = sound.sound(asked(method), data).clients
    assert (plain.optimizer, plain.local_epochs) == ("adam", 5)
    found = so.run(asked(method, "clients.drift=scaffold"), data=data, device="cpu")
    clients = found.federation.clients.training.dense
    assert (clients.optimizer, clients.momentum) == ("sgd", 0)
    complete = sound.sound(asked(method, "clients.drift=scaffold"), data)
    outputs = 10 if method == "fedmlh" else 20
    assert (complete.clients.local_epochs, complete.clients.lr) == (5, outputs / 10)
    assert found.metrics["P@1"] > 60  # of 20 classes: it learns


@pytest.mark.parametrize("method", MANY)
def test_other_corrections_and_what_is_set_stay(method: str) -> None:
    data = label_sets(n=80)
    for drift in ("fedprox", "feddyn"):
        clients = sound.sound(asked(method, f"clients.drift={drift}"), data).clients
        assert (clients.optimizer, clients.lr) == ("adam", 0.001)
    with pytest.raises(
        so.UserError, match=r"takes plain SGD on clients, not clients\.optimizer = 'adam'"
    ):
        so.run(asked(method, "clients.drift=scaffold", "clients.optimizer=adam"), data=data)
    rated = sound.sound(asked(method, "clients.drift=scaffold", "clients.lr=0.3"), data).clients
    assert (rated.optimizer, rated.lr) == ("sgd", 0.3)


@pytest.mark.parametrize("method", ["centralized-sets", "centralized"])
def test_in_one_place_nobody_drifts(method: str) -> None:
    with pytest.raises(so.UserError, match="pools the data, and no client can drift") as caught:
        so.run(so.Experiment.of({"method": {"name": method}, "clients": {"drift": "scaffold"}}))
    assert "SGD" not in str(caught.value)
