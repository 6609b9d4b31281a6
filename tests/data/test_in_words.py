"""Data prints as one short line, and arrays without clients have a client for every class."""

import numpy as np
import pytest
import torch

import spreadout as so

X, Y = np.zeros((110, 13)), np.arange(110) % 3


def test_data_prints_as_a_line_of_what_is_in_it() -> None:
    train = so.FederatedDataset.from_arrays(X, Y, np.arange(110) % 12)
    test = so.Examples.from_arrays(X[:1], Y[:1])
    assert repr(train) == "<FederatedDataset: 110 examples, 12 clients, 3 classes, x: 13 numbers>"
    assert repr(test) == "<Examples: 1 example, x: 13 numbers>"
    assert repr(so.Splits("wine", train, test)) == f"<Splits wine: train {train}, test {test}>"


def test_pictures_lists_and_sparse_rows_print_too() -> None:
    labels = so.Ragged.from_lists([[0]])
    words = so.Sparse(torch.tensor([3]), torch.tensor([1.0]), torch.tensor([0, 1]), 5000)
    columns = {
        "image": so.Dense(torch.zeros(1, 3, 8, 8)),
        "history": so.Lists.of(so.Ragged.from_lists([[4, 7]]), pad=0),
        "words": words,
    }
    said = "<Examples: 1 example, image: 3×8×8, history: ids, words: 5,000 numbers, few not 0>"
    assert repr(so.Examples(columns, labels)) == said


def test_without_clients_every_class_is_one() -> None:
    kinds = np.array(["fir", "ash", "yew"])[Y]
    train = so.FederatedDataset.from_arrays(X, kinds)
    assert (train.clients, train.class_names) == (3, ("ash", "fir", "yew"))
    for client in range(3):
        assert set(train.view(client).columns["y"].take(torch.arange(36)).tolist()) == {client}
    with pytest.raises(so.UserError, match="client: examples have several labels each; say whose"):
        so.FederatedDataset.from_arrays(X[:2], [[0, 1], [1]])
