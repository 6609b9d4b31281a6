"""Classes and clients as users call them: numbered, training and test together, names kept."""

from pathlib import Path

import numpy as np
import pytest

import spreadout as so
from spreadout.data.naming import numbered

X = np.eye(3, 4).repeat(8, axis=0)
NUMBERS = np.repeat(np.arange(3), 8)
CALLED = {
    "text": (np.array(["ash", "beech", "cedar"])[NUMBERS], ("ash", "beech", "cedar")),
    "one-based": (NUMBERS + 1, ("1", "2", "3")),
    "gaps": (NUMBERS * 1000, ("0", "1000", "2000")),
    "negative": (NUMBERS - 1, ("-1", "0", "1")),
    "floats": (NUMBERS + 1.0, ("1", "2", "3")),
    "fractions": (NUMBERS + 0.5, ("0.5", "1.5", "2.5")),
}


@pytest.mark.parametrize("kind", CALLED)
def test_labels_of_a_file_are_numbered_together_with_the_test_part_and_keep_their_names(
    kind: str, tmp_path: Path
) -> None:
    y, names = CALLED[kind]
    # The test part lacks the first class: numbered alone it would get other numbers.
    np.savez(tmp_path / "a.npz", x=X, y=y, x_test=X[8:], y_test=y[8:])
    config = {"data": {"source": "npz", "path": str(tmp_path / "a.npz")}, "rounds": 30}
    found = so.load_data(so.Experiment.of(config).data)
    assert found.class_names == names
    assert found.train.classes == 3
    assert sorted(set(found.test.labels.values.tolist())) == [1, 2]
    result = so.run(config, out=tmp_path / "run")
    assert result.metrics["P@1"] == 100.0
    guesses = so.load(tmp_path / "run").predict(X[[0, 8, 16]].astype(np.float32), 1)
    assert [one[0].name for one in guesses] == list(names)
    assert [one[0].id for one in guesses] == list(names)


def test_bools_are_two_classes(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", x=X[:16], y=NUMBERS[:16] == 1)
    found = so.load_data(so.DataConfig(source="npz", path=tmp_path / "a.npz"))
    assert found.class_names == ("False", "True")


def test_a_part_with_whole_numbers_alone_is_numbered_with_one_that_has_fractions() -> None:
    (train, test), names = numbered("y", [0.5, 1.5, 1.0], [1.0])
    assert (train.tolist(), test.tolist(), names) == ([0, 2, 1], [1], ("0.5", "1", "1.5"))
    (later,), same = numbered("y", [1.0, 1.0], known=names)
    assert (later.tolist(), same) == ([1, 1], names)
    with pytest.raises(so.UserError, match="y is text in one part and numbers in another"):
        numbered("y", [0.5], ["a"])


def test_numbers_from_zero_are_left_as_they_are(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", x=X, y=NUMBERS)
    assert so.load_data(so.DataConfig(source="npz", path=tmp_path / "a.npz")).class_names == ()


def test_a_quantity_is_no_class(tmp_path: Path) -> None:
    with pytest.raises(so.UserError, match="60 different numbers with fractions: that is a quantity"):
        numbered("y", np.linspace(0, 1, 60))


@pytest.mark.parametrize("client", [NUMBERS * 1000, np.array(["x", "y", "z"])[NUMBERS]])
def test_clients_with_gaps_or_names_are_as_many_as_there_are(client: np.ndarray, tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", x=X, y=NUMBERS, client=client)
    for partition in ("by_user", "given"):
        data = so.DataConfig(source="npz", path=tmp_path / "a.npz", partition=partition)
        found = so.load_data(data).train
        assert found.clients == 3
        assert found.client_names == tuple(map(str, np.unique(client)))
    train = so.FederatedDataset.from_arrays(X, NUMBERS, client)
    assert train.clients == 3
    assert train.client_names == tuple(map(str, np.unique(client)))


def test_text_in_python_needs_the_training_data_to_number_the_test_part_by() -> None:
    y = CALLED["text"][0]
    train = so.FederatedDataset.from_arrays(X, y, NUMBERS)
    test = so.Examples.from_arrays(X[8:], y[8:], like=train)
    assert sorted(set(test.labels.values.tolist())) == [1, 2]
    data = so.Splits("trees", train, test)
    assert data.class_names == ("ash", "beech", "cedar")
    result = so.run(so.Experiment(rounds=30), data=data)
    assert result.metrics["P@1"] == 100.0
    for wrong in (so.Examples.from_arrays(X[8:], y[8:]), so.Examples.from_arrays(X, NUMBERS)):
        with pytest.raises(so.UserError, match="not numbered as those of the training data"):
            so.Splits("trees", train, wrong)
    sets = so.FederatedDataset.from_arrays(X[:2], [["b", "a"], ["c"]], [0, 1])
    assert sets.class_names == ("a", "b", "c")
    assert sets.columns["y"].ragged()[0].tolist() == [0, 1]


def test_a_test_class_that_no_client_has_comes_after_theirs() -> None:
    train = so.FederatedDataset.from_arrays(X, CALLED["text"][0], NUMBERS)
    test = so.Examples.from_arrays(X[:2], ["acacia", "beech"], like=train)
    assert test.labels.values.tolist() == [3, 1]
    assert so.Splits("trees", train, test).class_names == ("ash", "beech", "cedar", "acacia")


def test_new_classes_of_test_and_validation_are_numbered_together() -> None:
    train = so.FederatedDataset.from_arrays(X, CALLED["text"][0], NUMBERS)
    test = so.Examples.from_arrays(X[:2], ["acacia", "fig"], like=train)
    plain = so.Examples.from_arrays(X[:2], ["ash", "cedar"], like=train)
    data = so.Splits("trees", train, test, plain)  # its classes are those of the training data
    assert data.class_names == ("ash", "beech", "cedar", "acacia", "fig")
    assert data.validation is plain
    other = so.Examples.from_arrays(X[:3], [["fig", "elm"], ["ash"], ["elm"]], like=train)
    data = so.Splits("trees", train, test, other)
    assert data.class_names == ("ash", "beech", "cedar", "acacia", "fig", "elm")
    assert data.test.labels.values.tolist() == [3, 4]
    assert data.validation is not None
    assert data.validation.class_names == data.class_names
    assert [one.tolist() for one in map(data.validation.labels.__getitem__, range(3))] == [
        [4, 5],
        [0],
        [5],
    ]
    twice = so.Splits("trees", train, data.test, data.validation)  # as `replace` makes it
    assert twice.validation is data.validation
    assert twice.class_names == data.class_names
    with pytest.raises(so.UserError, match="validation: its classes are not numbered"):
        so.Splits("trees", train, test, so.Examples.from_arrays(X[:1], ["elm"]))
