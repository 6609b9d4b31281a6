"""Four small federations that are attacked: who holds what, and how each method trains.

Of every data set some examples are held out for testing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import torch

from benchmarks.common.paths import CONFIGS
from spreadout.config.experiment import Experiment
from spreadout.core.ragged import Ragged
from spreadout.core.randomness import generator
from spreadout.data.columns import Lists
from spreadout.data.dataset import FederatedDataset
from spreadout.data.held_out import Examples
from spreadout.data.load import DataConfig, distribute, load_data
from spreadout.data.partition import by_user, each_label
from spreadout.data.sources.timeline import Windows
from spreadout.data.splits import Splits

CLIENTS = 30  # of the digits
USERS, WALKERS = 60, 160  # of the ring: those who train, and with those held out
ITEMS, WALK = 40, 24  # its items, and how many of them a user goes through
CLASSES, WIDTH, SPREAD = 40, 32, 1.0  # of the owners: a client a class, features, noise
TRAIN, TEST = 20, 25  # examples of each of their classes
TARGET = 1  # the class, or item, that a backdoor is to lead to


@dataclass(frozen=True)
class Scenario:
    """A method, its data, and the metric it is judged by."""

    name: str
    data: Callable[[int], Splits]  # by seed
    metric: str

    def tuning_data(self, seed: int) -> Splits:
        """The same without the test part: every fifth example that clients hold is what is judged."""
        held = self.data(seed)
        every = torch.arange(held.train.examples)
        owner = torch.repeat_interleave(
            torch.arange(held.train.clients), torch.from_numpy(held.train.sizes)
        )
        judged = every % 5 == 4
        rest, out = every[~judged], every[judged]
        columns = {name: column.select(rest) for name, column in held.train.columns.items()}
        train = FederatedDataset.by_owner(columns, owner[rest], held.train.classes)
        inputs = {n: c.select(out) for n, c in held.train.columns.items() if n != "y"}
        labels = held.train.columns["y"].take(out)
        return replace(
            held,
            train=replace(train, row_columns=held.train.row_columns),
            test=Examples(inputs, Ragged(torch.arange(len(labels) + 1), labels)),
        )

    def experiment(self, seed: int, *overrides: str) -> Experiment:
        """From configs/attacks."""
        path = CONFIGS / "attacks" / f"{self.name}.toml"
        return Experiment.load(path, [f"seed={seed}", *overrides])


def digits(seed: int, labels: int) -> Splits:
    """Digits on thirty clients: of so many labels each, or with 0 at random. Every label has several."""
    loaded = load_data(
        DataConfig.model_validate({"source": "digits", "partition": "by_label", "split_seed": 0})
    )
    every = torch.arange(loaded.train.examples)
    x, label = (loaded.train.columns[name].take(every).numpy() for name in ("x", "y"))
    rng = generator(seed, "attack data")
    owner = rng.permutation(len(label)) % CLIENTS
    for one in range(10) if labels else ():
        own = np.flatnonzero(label == one)
        holders = [c for c in range(CLIENTS) if one in {(c + 3 * turn) % 10 for turn in range(labels)}]
        owner[own] = rng.permutation(np.arange(len(own)) % len(holders))
        owner[own] = np.array(holders)[owner[own]]
    train = FederatedDataset.from_arrays(x, label, owner, classes=10)
    return replace(loaded, train=train)


def owners(seed: int) -> Splits:
    """Forty classes, each of one client alone: vectors around a direction of their own."""
    rng = generator(seed, "attack data")
    middle = rng.normal(size=(CLASSES, WIDTH))
    label, judged = (np.repeat(np.arange(CLASSES), each) for each in (TRAIN, TEST))
    x, seen = (
        (middle[some] + SPREAD * rng.normal(size=(len(some), WIDTH))).astype(np.float32)
        for some in (label, judged)
    )
    held = FederatedDataset.from_arrays(x, label, label, classes=CLASSES)
    return Splits("owners", held, Examples.from_arrays(seen, judged))


def ring(seed: int) -> Splits:
    """Users who walk around a ring of items, mostly one step at a time; a hundred are held out."""
    rng = generator(seed, "attack data")
    user, item = [], []
    for one in range(WALKERS):
        at = int(rng.integers(ITEMS))
        for _ in range(WALK):
            user.append(one)
            item.append(at + 1)
            at = (at + (1 if rng.random() < 0.85 else int(rng.integers(ITEMS)))) % ITEMS
    found = Windows(window=4, numbering="published").examples(
        np.array(user), np.array(item), np.arange(len(user))
    )
    found = replace(found, classes=ITEMS + 1)
    part = found.train
    assert part.user is not None
    held = distribute(part, by_user(each_label(part.labels), part.user), found)
    history = held.columns["history"]
    assert isinstance(history, Lists)
    held = replace(held, columns={**held.columns, "history": replace(history, width=history.longest)})
    test = torch.arange(USERS, WALKERS)
    where = held.places_of(test)
    labels = held.columns["y"].take(where)
    judged = Examples(
        {"history": held.columns["history"].select(where)},
        Ragged(torch.arange(len(labels) + 1), labels),
    )
    return Splits("ring", held.part(torch.arange(USERS)), judged)


SCENARIOS = {
    one.name: one
    for one in (
        Scenario("fedaws", owners, "P@1"),
        Scenario("fedss", lambda seed: digits(seed, 2), "P@1"),
        Scenario("fedmlh", lambda seed: digits(seed, 0), "P@1"),
        Scenario("dual_encoder", ring, "R@1"),
    )
}
