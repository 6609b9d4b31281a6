"""Words are features by a public hash: who has a dictionary reads them off an update without noise."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import spreadout as so
from spreadout.core.rows import sub_model
from spreadout.data.words import hashed_words, words_of
from spreadout.federated.cohort import draw_cohort
from spreadout.federated.federation import Federation
from spreadout.runs.build import build_federation, pick_device
from spreadout.runtime.sequential import train_client

WIDTH = 8192
SYLLABLES = [one + other for one in "bdfgklmnrst" for other in "aeiou"]
DICTIONARY = [
    "".join(pair) for pair in itertools.product(SYLLABLES[::2], SYLLABLES[1::3])
]  # some hundred
CLIENTS, TEXTS, WORDS = 6, 4, 5
CLIP, NOISE = 0.5, 5.0


def texts(seed: int = 0) -> list[list[str]]:
    """Of each client: a few short texts, of words that it draws from the dictionary."""
    drawn = np.random.default_rng(seed)
    return [
        [" ".join(drawn.choice(DICTIONARY, WORDS, replace=False)) for _ in range(TEXTS)]
        for _ in range(CLIENTS)
    ]


def federation(held: list[list[str]], **changes: Any) -> Federation:
    """As `[data.source] name = "texts"` gives it: all clients have texts of both classes."""
    table = {
        "text": [text for own in held for text in own],
        "label": [f"c{i % 2}" for own in held for i in range(len(own))],
        "client": [str(number) for number, own in enumerate(held) for _ in own],
    }
    train = so.FederatedDataset.from_frame(table, label="label", client="client", features="text")
    test = so.Examples.from_frame(
        {"text": ["ba"], "label": ["c0"]}, label="label", features="text", like=train
    )
    values = {
        "method": {"name": "fedavg"},
        "model": {"encoder": "mlp", "hidden": [4], "dim": 4},
        "clients": {"local_steps": 2, "batch": TEXTS, "lr": 0.5},
        **changes,
    }
    return build_federation(
        so.Experiment.of(values), so.Splits("texts", train, test), pick_device("cpu")
    )


def moved(f: Federation, client: int) -> Tensor:
    """How far a client's update moves the weights of each feature: (hidden, WIDTH)."""
    dense, tables = f.model.initial(0, f.device)
    request = {name: rows[client] for name, rows in draw_cohort(f, 0).requests.items()}
    own = replace(f, data=f.data.view(client))
    update = train_client(own, sub_model(0, dense, tables, request), {})[0]
    (first,) = (value for value in update.dense.values() if value.shape == (4, WIDTH))
    return first


def guessed(update: Tensor, count: int | None = None) -> set[str]:
    """The words of the dictionary whose features moved; or the `count` that moved farthest."""
    length = update.norm(dim=0)
    features = [int(hashed_words([word], WIDTH).ragged().values[0]) for word in DICTIONARY]
    far = {word: float(length[at]) for word, at in zip(DICTIONARY, features, strict=True)}
    if count is None:
        return {word for word, size in far.items() if size > 0}
    return set(sorted(far, key=lambda word: -far[word])[:count])


def vocabulary(own: Iterable[str]) -> set[str]:
    return {word for text in own for word in words_of(text)}


def precision_and_recall(found: set[str], true: set[str]) -> tuple[float, float]:
    right = len(found & true)
    return right / len(found), right / len(true)


def test_a_dictionary_reads_the_words_of_one_client_off_its_plain_update() -> None:
    held = texts()
    f = federation(held)
    for client, own in enumerate(held):
        precision, recall = precision_and_recall(guessed(moved(f, client)), vocabulary(own))
        assert recall == 1.0
        assert (
            precision > 0.75
        )  # the others share a feature with a word or a pair of words of the client
    assert len(vocabulary(held[0])) / len(DICTIONARY) < 0.05  # so much a guess would have


SUMS = {"clip": CLIP, "noise": 0, "model": "distributed"}


def test_a_sum_tells_the_words_of_its_clients_and_not_whose_they_are() -> None:
    """As the pages promise of secure aggregation: single updates are hidden, and nothing else is."""
    held = texts()
    swapped = [held[1], held[0], *held[2:]]
    sums = [
        torch.stack([moved(f, client) for client in range(CLIENTS)]).sum(0)
        for f in (federation(some, privacy=SUMS) for some in (held, swapped))
    ]
    every = vocabulary(itertools.chain(*held))
    precision, recall = precision_and_recall(guessed(sums[0]), every)
    assert recall == 1.0
    assert precision > 0.7
    torch.testing.assert_close(*sums, rtol=0, atol=1e-6)  # so whose is whose cannot be said
    single = federation(held, privacy=SUMS), federation(swapped, privacy=SUMS)
    assert not torch.allclose(moved(single[0], 0), moved(single[1], 0), atol=1e-6)


def test_noise_hides_them() -> None:
    """μ = 2/5: whoever sees one update guesses hardly better than by chance; the best guess is tried."""
    right = found = 0
    for seed in range(5):
        held = texts(seed)
        f = federation(held, privacy={"clip": CLIP, "noise": NOISE}, seed=seed)
        for client, own in enumerate(held):
            true = vocabulary(own)
            best = guessed(moved(f, client), len(true))
            right, found = right + len(best & true), found + len(best)
    by_chance = len(vocabulary(texts()[0])) / len(DICTIONARY)
    assert right / found < 2 * by_chance + 0.02
    plain = federation(texts())
    true = vocabulary(texts()[0])
    assert precision_and_recall(guessed(moved(plain, 0), len(true)), true)[0] > 0.75


@pytest.mark.parametrize("privacy", [None, {"clip": CLIP, "noise": NOISE}], ids=["plain", "private"])
def test_a_lookup_names_them_in_its_requests_whatever_the_noise(privacy: dict[str, Any] | None) -> None:
    """Rows that are requested are disclosed: the features of a lookup, and with them words."""
    held = texts()
    values = {"model": {"encoder": "lookup", "dim": 4, "width": 4, "hidden": []}}
    f = federation(held, **values, **({} if privacy is None else {"privacy": privacy}))
    asked = draw_cohort(f, 0).requests["inputs"]
    for client, own in enumerate(held):
        wanted = torch.zeros(1, WIDTH).index_fill_(1, asked[client], 1.0)
        precision, recall = precision_and_recall(guessed(wanted), vocabulary(own))
        assert recall == 1.0
        assert precision > 0.75
