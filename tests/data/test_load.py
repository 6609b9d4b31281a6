import re
from pathlib import Path
from typing import ClassVar, Literal

import numpy as np
import pytest
import torch

import spreadout as so
from spreadout.core.ragged import Ragged
from spreadout.data.io import stored
from spreadout.data.load import DataConfig, load_data
from spreadout.data.partitions import PARTITIONS
from spreadout.data.sources import SOURCES
from spreadout.data.sources.digits import Digits
from spreadout.data.sources.movielens import MovieLens


def test_from_arrays_groups_by_client_in_the_given_order(toy_arrays) -> None:  # type: ignore[no-untyped-def]
    x, y, client = toy_arrays
    shuffle = np.random.default_rng(1).permutation(len(y))
    data = so.FederatedDataset.from_arrays(x[shuffle], y[shuffle], client[shuffle])
    assert data.sizes.tolist() == [7, 1, 12, 5, 0, 3]
    for c in range(6):
        mine = shuffle[client[shuffle] == c]
        at = torch.arange(int(data.offsets[c]), int(data.offsets[c + 1]))
        assert data.columns["y"].take(at).tolist() == y[mine].tolist()
        assert np.array_equal(data.columns["x"].take(at).numpy(), x[mine])


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"y": [float("nan"), 1.0]}, "y is missing in example 0: fill it in or drop the example"),
        ({"y": [None, "a"]}, "y is missing in example 0"),
        ({"y": [1, "a"]}, "y has text and int in one column: give all of it alike"),
        ({"y": [0, 2000]}, "y goes up to 2000, but only 2 numbers occur: .* as text"),
        (
            {"y": [-1, 0]},
            r"y has the value -1: numbers start at 0; if it is a class, give .* \[str\(one\) for one in y\]",
        ),
        ({"y": [0]}, "x has 2 examples, y has 1"),
        ({"client": [0]}, "client has 1 entries, y has 2"),
        ({"x": [[1.0], [float("nan")]]}, "not finite in example 1"),
        ({"classes": 1}, "y has the class 1, but classes = 1"),
        ({"x": [[1.0], [2.0, 3.0]]}, "x has rows of different lengths"),
        ({"y": [[0, 1], [0.5]]}, "y has 0.5 among its classes: give whole numbers"),
        ({"y": np.eye(2, dtype=int)}, "or a list of them"),
        ({"y": [[0, 1], [2]], "classes": 2}, "y has the class 2, but classes = 2"),
    ],
)
def test_bad_arrays_are_named(change: dict[str, object], complaint: str) -> None:
    arrays = {"x": [[1.0], [2.0]], "y": [0, 1], "client": [0, 0], **change}
    with pytest.raises(so.UserError, match=complaint):
        so.FederatedDataset.from_arrays(**arrays)


def test_lists_of_classes_are_label_sets() -> None:
    x = [[1.0], [2.0], [3.0]]
    data = so.FederatedDataset.from_arrays(x, [[2, 0, 2], [], 0], [1, 0, 1])
    assert data.classes == 3
    held = data.columns["y"]
    assert isinstance(held, so.Lists)
    assert [one.tolist() for one in map(held.ragged().__getitem__, range(3))] == [[], [0, 2], [0]]
    test = so.Examples.from_arrays(x, [[2, 0, 2], [], (1,)])
    assert [test.labels[i].tolist() for i in range(3)] == [[0, 2], [], [1]]
    for sets in (
        [np.array([0, 2]), np.array([], int), np.array([0])],
        [torch.tensor([0, 2]), torch.tensor([], dtype=torch.int64), frozenset([0])],
        np.array([[0, 2], [], [0]], dtype=object),
    ):
        again = so.FederatedDataset.from_arrays(x, sets, [1, 0, 1])
        assert torch.equal(again.columns["y"].values, held.values)
    with pytest.raises(so.UserError, match="no classes at all"):
        so.FederatedDataset.from_arrays(x, [[], [], []], [0, 0, 0])
    tagged = so.Splits("tagged", data, test)
    experiment = so.Experiment.of(
        {
            "rounds": 2,
            "method": {"name": "fedmlh", "hash_tables": 2, "buckets": 2},
            "model": {"hidden": [4]},
        }
    )
    assert so.run(experiment, data=tagged).summary["rounds"] == 2


def test_the_held_out_digits_are_stratified_and_disjoint() -> None:
    config = DataConfig(validation_fraction=0.2)
    data = load_data(config, seed=0)
    counts = torch.bincount(data.test.labels.values, minlength=10)
    total = torch.bincount(Digits().read(None).train.labels.values, minlength=10)
    assert bool(((counts - total * 0.3).abs() < 1).all())
    assert len(data.test) == 540
    assert data.validation is not None
    parts = [
        data.train.columns["x"].take(torch.arange(data.train.examples)),
        data.validation.inputs["x"].take(torch.arange(len(data.validation))),
        data.test.inputs["x"].take(torch.arange(len(data.test))),
    ]
    assert sum(map(len, parts)) == 1797
    # Every image is in one part: together they are the whole set, image by image.
    every = Digits().read(None).train.columns["x"].take(torch.arange(1797))
    assert sorted(map(tuple, torch.cat(parts).tolist())) == sorted(map(tuple, every.tolist()))


@pytest.mark.parametrize(("split_seed", "same"), [("run", False), (3, True)])
def test_a_run_seed_draws_the_held_out_part_unless_a_split_seed_fixes_it(
    split_seed: int | None, same: bool
) -> None:
    first, second = (load_data(DataConfig(split_seed=split_seed), seed=seed) for seed in (0, 1))
    some = torch.arange(540)
    one, other = (held.test.inputs["x"].take(some) for held in (first, second))
    assert torch.equal(one, other) is same


def test_your_own_npz_trains_end_to_end(tmp_path: Path, toy_arrays) -> None:  # type: ignore[no-untyped-def]
    x, y, client = toy_arrays
    np.savez(tmp_path / "mine.npz", x=x, y=y, client=client, x_test=x, y_test=y)
    config = {
        "rounds": 30,
        "data": {"source": "npz", "path": str(tmp_path / "mine.npz"), "partition": "given"},
        "model": {"hidden": [16], "dim": 8},
        "clients": {
            "lr": 0.3,
            "local_epochs": 1,
            "batch": 4,
            "selection": "uniform",
            "input_dropout": 0.0,
        },
        "server": {"optimizer": "sgd"},
        "method": {"name": "fedaws", "strength": 0.1},
    }
    result = so.run(so.Experiment.of(config))
    assert result.summary["clients"] == 6
    assert result.summary["refused_updates"] == {"no examples": 30}  # client 4 holds nothing
    assert result.metrics["P@1"] > 90


@pytest.mark.parametrize(
    ("arrays", "complaint"),
    [
        ({"client": np.array([0, -1])}, "client has the value -1"),
        ({"client": np.array([[0], [1]])}, r"client has shape \(2, 1\): give one value per example"),
        ({"client": np.array([0])}, "client has 1 entries, y has 2"),
        ({"clients": np.array([0, 1])}, "array 'clients' is unknown; known: client,"),
        ({"x": np.array([[1j], [2j]])}, "x has shape .* and type complex128"),
        ({"x": np.array([1.0, 2.0])}, r"x has shape \(2,\)"),
        ({"x": np.array([["a"], ["b"]])}, "x has shape .* and type <U1"),
        ({"x": np.zeros((0, 3)), "y": np.zeros(0, int)}, "are empty"),
        (
            {"x_test": np.zeros((1, 5)), "y_test": np.zeros(1, int)},
            r"x_test has examples of shape \(5,\), x of \(1,\)",
        ),
        ({"x_test": np.zeros((1, 1))}, "x_test and y_test come together; 'y_test' is missing"),
        ({"y_test": np.zeros(1, int)}, "x_test and y_test come together; 'x_test' is missing"),
        ({"x": np.array([[1.0], [1e39]])}, "not finite in example 1"),
        ({"y": np.array([0, 2**63], np.uint64)}, "y has the value 9223372036854775808"),
    ],
)
def test_a_bad_npz_is_named(tmp_path: Path, arrays: dict[str, np.ndarray], complaint: str) -> None:
    np.savez(tmp_path / "mine.npz", **{"x": np.array([[1.0], [2.0]]), "y": np.array([0, 1]), **arrays})
    with pytest.raises(so.UserError, match=complaint):
        load_data(
            DataConfig(
                source="npz",
                path=tmp_path / "mine.npz",
                partition="given" if "client" in arrays else "by_label",
            ),
            seed=0,
        )


def test_your_own_encoder_and_arrays_in_python(toy: so.Splits) -> None:
    torch.manual_seed(0)
    encoder = torch.nn.Sequential(torch.nn.Linear(6, 12), torch.nn.Tanh(), torch.nn.Linear(12, 64))
    start = [p.detach().clone() for p in encoder.parameters()]
    experiment = so.Experiment.of(
        {
            "rounds": 30,
            "method": {"name": "fedaws", "strength": 0.1},
            "clients": {"lr": 0.3},
            "server": {"optimizer": "sgd"},
        }
    )
    result = so.run(experiment, data=toy, encoder=encoder)
    assert result.metrics["P@1"] > 75  # six classes; chance is 17
    assert all(
        torch.equal(a, b) for a, b in zip(start, encoder.parameters(), strict=True)
    )  # yours is not changed


class Remembers(torch.nn.Module):
    """Keeps the mean of what it has seen, which no noise would protect and every export would contain."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("seen", torch.zeros(()))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.seen = 0.9 * self.seen + 0.1 * x.detach().mean()
        return x - self.seen


class RemembersSome(torch.nn.Module):
    """Keeps an example of batches of some sizes, in a buffer and in a frozen parameter."""

    def __init__(self, sizes: range) -> None:
        super().__init__()
        self.sizes, self.layer = sizes, torch.nn.Linear(6, 4)
        self.register_buffer("seen", torch.zeros(6))
        self.frozen = torch.nn.Parameter(torch.zeros(6), requires_grad=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if len(x) in self.sizes:
            self.seen.copy_(x.detach()[0])
            self.frozen.data.copy_(x.detach()[0])
        return self.layer(x)  # type: ignore[no-any-return]


def remembering(executor: str) -> so.Experiment:
    clients = {"batch": 3, "lr": 0.3, "local_steps": 1, "input_dropout": 0.0}
    return so.Experiment.of(
        {"rounds": 1, "run": {"executor": executor}, "clients": clients, "chosen": []}
    )


def test_what_an_encoder_writes_while_it_trains_is_thrown_away(toy: so.Splits) -> None:
    """A batch of three left a raw example in the exported model, under [privacy] too."""
    encoder = RemembersSome(range(3, 4)).requires_grad_(True)
    encoder.frozen.requires_grad_(False)
    trained = so.run(remembering("sequential"), data=toy, encoder=encoder).predictor.encoder
    assert not bool(trained.seen.any())
    assert not bool(trained.frozen.any())


class Grows(RemembersSome):
    """Makes the buffer only when it has something to keep."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if len(x) in self.sizes:
            self.register_buffer("kept", x.detach()[0])
        return self.layer(x)  # type: ignore[no-any-return]


@pytest.mark.parametrize("executor", ["sequential", "simulator"])
def test_an_encoder_gets_no_buffer_while_it_trains(toy: so.Splits, executor: str) -> None:
    with pytest.raises(so.UserError, match="gets another buffer or parameter while it computes"):
        so.run(remembering(executor), data=toy, encoder=Grows(range(3, 99)))


def test_what_an_encoder_keeps_of_two_examples_is_found(toy: so.Splits) -> None:
    with pytest.raises(so.UserError, match="its buffer seen changes with the inputs"):
        so.run(remembering("sequential"), data=toy, encoder=RemembersSome(range(2, 3)))
    with pytest.raises(so.UserError, match="where clients that train at once would mix"):
        so.run(remembering("simulator"), data=toy, encoder=RemembersSome(range(3, 99)))


@pytest.mark.parametrize(
    ("layer", "complaint"),
    [
        (torch.nn.BatchNorm1d(12), "is a BatchNorm1d"),
        (torch.nn.Dropout(), "is a Dropout"),
        (torch.nn.Unflatten(1, (3, 4)), r"gives shape \(1, 3, 4\) for one example"),
        (torch.nn.Linear(5, 5), r"fails on an input of shape \(1, 6\)"),
        (Remembers(), r"its buffer 1\.seen changes with the inputs"),
    ],
)
def test_an_encoder_that_cannot_be_federated_is_refused(
    toy: so.Splits, layer: torch.nn.Module, complaint: str
) -> None:
    encoder = torch.nn.Sequential(torch.nn.Linear(6, 12), layer)
    with pytest.raises(so.UserError, match=complaint):
        so.run(so.Experiment(rounds=1), data=toy, encoder=encoder)


class Odd(torch.nn.Module):
    """A frozen layer, a scalar that is trained, and a parameter nothing uses."""

    def __init__(self) -> None:
        super().__init__()
        self.frozen = torch.nn.Linear(6, 16).requires_grad_(False)
        self.layer = torch.nn.Linear(16, 8)
        self.gain = torch.nn.Parameter(torch.tensor(0.5))
        self.idle = torch.nn.Parameter(torch.ones(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(torch.tanh(self.gain * self.frozen(x)))


@pytest.mark.parametrize("steps", [1, 3])
def test_frozen_scalar_and_unused_parameters(toy: so.Splits, steps: int) -> None:
    encoder, states = Odd(), []
    for executor in ("simulator", "sequential"):
        config = {
            "rounds": 3,
            "clients": {"local_steps": steps, "lr": 0.5},
            "run": {"executor": executor},
        }
        states.append(so.run(so.Experiment.of(config), data=toy, encoder=encoder).state)
    assert sorted(states[0].dense) == [
        "gain",
        "idle",
        "layer.bias",
        "layer.weight",
    ]  # frozen: does not travel
    assert float(states[0].dense["gain"]) != 0.5
    assert states[0].dense["idle"].tolist() == [1, 1, 1]
    torch.testing.assert_close(states[0].dense, states[1].dense, rtol=1e-4, atol=1e-6)


def test_what_is_held_out_is_not_behind_the_training_columns(tmp_path: Path) -> None:
    data = load_data(DataConfig(validation_fraction=0.2), seed=0)
    column = data.train.columns["x"]
    assert isinstance(column, so.Dense)
    assert len(column.values) == data.train.examples
    stored.save(data.train, tmp_path / "train")
    again = stored.open_federated(tmp_path / "train")
    saved = {tuple(row) for row in again.columns["x"].take(torch.arange(again.examples)).tolist()}
    held = data.test.inputs["x"].take(torch.arange(len(data.test))).tolist()
    assert not saved & {tuple(row) for row in held}


def test_a_split_seed_of_any_size_will_do_and_a_negative_one_will_not() -> None:
    assert len(load_data(DataConfig(split_seed=2**40), seed=0).test) == 540
    with pytest.raises(so.UserError, match="split_seed = -1: must be at least 0"):
        DataConfig(split_seed=-1)


def test_a_source_brings_its_nature_however_it_is_given() -> None:
    given = [
        DataConfig(source=s)
        for s in ("movielens-1m", {"name": "movielens-1m"}, MovieLens(name="movielens-1m"))
    ]
    assert [config.partition.name for config in given] == ["by_user"] * 3
    assert DataConfig(source="movielens-1m", partition="by_label").partition.name == "by_label"


def test_labels_that_are_not_all_trained_are_scored_where_they_are(toy: so.Splits) -> None:
    labels = Ragged.from_lists([[0, 99], [77], *[[1]] * (len(toy.test) - 2)])
    odd = so.Splits("odd", toy.train, so.Examples(toy.test.inputs, labels))
    result = so.run(so.Experiment(rounds=1), data=odd)
    assert 0 <= result.metrics["P@1"] <= 100


@pytest.mark.parametrize("kind", [">f8", np.longdouble, np.float16, np.uint8, bool])
def test_any_kind_of_number_will_do(kind: object) -> None:
    x = np.array([[0], [1]]).astype(kind)  # type: ignore[call-overload]
    data = so.FederatedDataset.from_arrays(x, [0, 1], [0, 1])
    assert data.columns["x"].take(torch.arange(2)).tolist() == [[0.0], [1.0]]


@pytest.mark.parametrize("content", [b"", b"PK", b"\x93NUMPY"])
def test_what_is_no_npz_is_one_line(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "e.npz").write_bytes(content)
    with pytest.raises(so.UserError, match=r"e.npz: not a readable .npz file"):
        load_data(DataConfig(source="npz", path=tmp_path / "e.npz"))
    np.save(tmp_path / "array.npy", np.zeros(3))
    with pytest.raises(so.UserError, match=r"array.npy: not a readable .npz file"):
        load_data(DataConfig(source="npz", path=tmp_path / "array.npy"))


def test_options_alone_are_of_the_sources_own_partition() -> None:
    config = DataConfig.model_validate({"source": "omniglot", "partition": {"classes": 10}})
    assert config.partition.model_dump() == {
        "name": "few_classes",
        "seed": "run",
        "examples": 100,
        "classes": 10,
    }


# ---------------------------------------------------------------- parts by name


def test_instances_of_arrays_hold_one_class_or_several() -> None:
    x = np.arange(6.0).reshape(3, 2)
    one = so.Instances.of(x, [2, 0, 1], user=[5, 5, 9])
    assert one.labels.values.tolist() == [2, 0, 1]
    assert one.user is not None
    assert one.user.tolist() == [5, 5, 9]
    assert one.columns["x"].take(torch.tensor([1])).tolist() == [[2.0, 3.0]]
    several = so.Instances.of(x, [[2, 0], [], [1]]).labels
    assert (several.lengths.tolist(), several.values.tolist()) == ([2, 0, 1], [0, 2, 1])
    with pytest.raises(so.UserError, match="user has 2 entries, y has 3"):
        so.Instances.of(x, [2, 0, 1], user=[5, 5])


def test_a_source_without_users_cannot_hold_out_users() -> None:
    with pytest.raises(so.UserError, match=r'data.hold_out = "users": the source does not say whose'):
        load_data(DataConfig.model_validate({"source": "digits", "hold_out": "users"}))


def test_a_partition_says_whether_it_deals_labels_or_whole_instances(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Two instances with three labels: three examples, or two."""
    monkeypatch.setattr(SOURCES, "_parts", dict(SOURCES._parts))
    monkeypatch.setattr(PARTITIONS, "_parts", dict(PARTITIONS._parts))

    @so.register_source
    class Two(so.Source):
        name: Literal["two"] = "two"

        def read(self, path: Path | None) -> so.RawDataset:
            both = so.Instances.of(np.eye(2), [[0, 1], [1]])
            return so.RawDataset(both, classes=2, test=both)

    class Everyone(so.Partition):
        def assign(
            self, instances: so.Instances, pairs: so.Pairs, classes: int, seed: int
        ) -> so.Assignment:
            return pairs.by_owner(torch.zeros(len(pairs), dtype=torch.int64), 1)

    @so.register_partition
    class Labels(Everyone):
        name: Literal["labels"] = "labels"

    @so.register_partition
    class Whole(Everyone):
        default_targets: ClassVar[Literal["each", "all"]] = "all"
        name: Literal["whole"] = "whole"

    def dealt(**keys: str) -> list[int]:
        config = DataConfig.model_validate({"source": "two", **keys})
        return load_data(config).train.sizes.tolist()

    assert dealt(partition="labels") == [3]
    assert dealt(partition="whole") == [2]
    assert dealt(partition="labels", targets="all") == [2]


@pytest.mark.parametrize(
    ("data", "says"),
    [
        ({"partition": {"name": ["iid"]}}, "data.partition = ['iid']: unknown; did you mean 'iid'?"),
        ({"source": 3}, "data.source = 3: must be a section"),
        ({"source": {"window": 3}}, "data.source.name: is required"),
        ({"source": {"name": "movielens-1m", "windw": 3}}, "data.source.windw: unknown key; did you mean 'window'?"),
        ({"source": "movielens-2m"}, "data.source = 'movielens-2m': unknown; did you mean 'movielens-"),
    ],
)  # fmt: skip
def test_a_wrong_section_is_answered_by_its_key(data: dict[str, object], says: str) -> None:
    with pytest.raises(so.UserError, match=re.escape(says)):
        so.Experiment.of({"data": data})


def test_a_name_is_given_to_one_source_only() -> None:
    class Other(so.Source):
        name: Literal["digits"] = "digits"

        def read(self, path: Path | None) -> so.RawDataset:
            raise AssertionError

    with pytest.raises(
        so.UserError, match=r"source 'digits': spreadout.data.sources.digits.Digits has that"
    ):
        so.register_source(Other)
    assert so.DataConfig().source == so.Experiment.of({"data": {"source": "digits"}}).data.source
