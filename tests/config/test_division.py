"""Who holds what, where a config leaves that open or says a part of it."""

import tomllib

import pytest

import spreadout as so
from spreadout.config import sound

SETS = {
    "name": "synthetic",
    "classes": 30,
    "features": 40,
    "examples": 200,
    "test_examples": 40,
    "labels_per_example": 3,
}


def asked(
    method: str, partition: object = None, source: object = "digits", **more: object
) -> so.Experiment:
    data = {"source": source, **more} | ({} if partition is None else {"partition": partition})
    values = {"data": data, "method": {"name": method}, "rounds": 1, "eval": {"references": False}}
    return so.Experiment.of(values)


@pytest.mark.parametrize("partition", ["by_label", "few_classes", "frequent_classes"])
def test_label_sets_reach_the_one_place_once_whatever_the_partition(partition: str) -> None:
    """Some partitions need one label each, another copies an instance to several clients."""
    plain = sound.prepared(asked("centralized-sets", source=SETS))[1].train
    complete, splits = sound.prepared(asked("centralized-sets", partition, SETS))
    assert complete.data.partition.name == partition  # as it was set
    x = splits.train.columns["x"]
    instances = range(splits.train.examples) if x.index is None else x.index.tolist()
    assert len(set(instances)) == splits.train.examples == plain.examples == 180
    again = so.load_data(complete.data, complete.seed)  # the config alone gives the same data
    assert again.train.sizes.tolist() == [180]


def test_arms_of_a_comparison_may_share_a_partition_with_one_place() -> None:
    names = ("fedaws", "centralized", "centralized-sets")
    found = so.compare({name: asked(name, "by_label", SETS) for name in names}, device="cpu")
    assert [arm.summaries[0]["clients"] for arm in found] == [30, 1, 1]


@pytest.mark.parametrize("partition", ["iid", "dirichlet"])
@pytest.mark.parametrize(
    ("data", "clients"),
    [
        ({"source": "digits"}, 10),  # as many as classes
        ({"source": {**SETS, "labels_per_example": 1}}, 3),  # of 30 classes: 180 train, 50 each
        ({"source": {**SETS, "labels_per_example": 1}, "validation_fraction": 0}, 4),
        ({"source": {**SETS, "examples": 20}}, 2),  # one alone would be no federation
        ({"source": "digits", "test_fraction": 0.85}, 4),  # of 1,797 digits 242 train
    ],
)
def test_clients_that_get_theirs_by_chance_are_counted_for_the_data(
    partition: str, data: dict[str, object], clients: int
) -> None:
    complete, splits = sound.prepared(asked("fedaws", partition, **data))
    assert splits.train.clients == clients
    assert "data.partition.clients" in (complete.chosen or [])
    written = tomllib.loads(complete.to_toml())
    assert written["data"]["partition"]["clients"] == clients
    again, same = sound.prepared(so.Experiment.of(written))
    assert again == complete
    assert same.train.sizes.tolist() == splits.train.sizes.tolist()


def test_how_many_clients_is_the_users_to_say() -> None:
    auto = sound.prepared(asked("fedaws", {"name": "iid", "clients": "auto"}))[0]
    assert auto.data.partition.model_dump()["clients"] == 10
    set_by_hand = sound.prepared(asked("fedaws", {"name": "iid", "clients": 3}))[0]
    assert set_by_hand.data.partition.model_dump()["clients"] == 3
    assert "data.partition.clients" not in (set_by_hand.chosen or [])
    changed = so.Experiment.of(tomllib.loads(auto.to_toml()), overrides=["data.partition.clients=4"])
    assert "data.partition.clients" not in (changed.chosen or [])
    assert sound.prepared(changed)[1].train.clients == 4
    with pytest.raises(so.UserError, match=r"set data\.partition\.clients, how many there are"):
        so.load_data(so.DataConfig(partition="iid"))


@pytest.mark.parametrize("source", ["digits", SETS])
def test_sets_of_one_label_are_not_called_label_sets(source: object) -> None:
    with pytest.raises(so.UserError) as caught:
        so.run(asked("fedaws", "frequent_classes", source))
    said = str(caught.value)
    assert "trains on one label an example" in said
    assert 'data.partition = "frequent_classes" keeps whole label sets: take another' in said
    assert ("these have one each, but as sets of one" in said) == (source == "digits")
    assert ("these have label sets" in said) == (source != "digits")
