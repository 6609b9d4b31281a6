"""Small data sets whose answers are known."""

from dataclasses import replace

import numpy as np
import torch

import spreadout as so
from spreadout.core.ragged import Ragged, offsets_from_lengths
from spreadout.data.columns import Dense, Lists, Sparse
from spreadout.data.dataset import FederatedDataset
from spreadout.data.held_out import Examples
from spreadout.data.load import distribute
from spreadout.data.partition import by_user, each_label
from spreadout.data.sources.timeline import Windows
from spreadout.data.splits import Splits


def shop(users: int = 8, items: int = 12, seed: int = 0) -> so.Splits:
    """Users who walk around a ring of items, mostly one step at a time: what comes next can be learned."""
    rng = np.random.default_rng(seed)
    user, item = [], []
    for u in range(users):
        at = int(rng.integers(items))
        for _ in range(int(rng.integers(6, 12))):
            user.append(u)
            item.append(at + 1)
            at = (at + (1 if rng.random() < 0.9 else int(rng.integers(items)))) % items
    train, seen = _next_items(np.array(user), np.array(item), items)
    return so.Splits("ring", train, seen)


def staples(users: int = 60, items: int = 40, seed: int = 0) -> so.Splits:
    """Users who all buy what is popular, in any order. Half of them train; the others are both held-out parts."""
    rng = np.random.default_rng(seed)
    chance = 1 / np.arange(1, items + 1)
    user = np.repeat(np.arange(users), 10)
    item = 1 + rng.permutation(items)[rng.choice(items, len(user), p=chance / chance.sum())]
    trains = user < users // 2
    train, _ = _next_items(user[trains], item[trains], items)
    _, others = _next_items(user[~trains], item[~trains], items)
    return so.Splits("staples", train, others, others)


def _next_items(user: np.ndarray, item: np.ndarray, items: int) -> tuple[FederatedDataset, Examples]:
    """What a log of events in order is to train on, a client for each user, and to be judged by."""
    found = Windows(window=4, numbering="published").examples(user, item, np.arange(len(user)))
    found = replace(found, classes=items + 1)
    part = found.train
    assert part.user is not None
    train = distribute(part, by_user(each_label(part.labels), part.user), found)
    return train, so.Examples(part.columns, part.labels)


def tagged(n: int = 90, classes: int = 6, features: int = 24, seed: int = 0) -> Splits:
    """Instances with a few of `features` words; labels come in pairs (0, 1), (2, 3), … that often meet."""
    rng = np.random.default_rng(seed)
    words, sets = [], []
    for _ in range(n):
        label = int(rng.integers(classes))
        sets.append(sorted({label, label ^ 1} if rng.random() < 0.6 else {label}))
        own = [4 * one + int(rng.integers(4)) for one in sets[-1]]  # every label has words of its own
        words.append(sorted({*own, int(rng.integers(features))}))
    lengths = torch.tensor([len(w) for w in words])
    ids = torch.tensor([f for w in words for f in w])
    x = Sparse(ids, torch.ones(len(ids)), offsets_from_lengths(lengths), features)
    train, test = range(2 * n // 3), range(2 * n // 3, n)
    pairs = [(label, i) for i in train for label in sets[i]]  # one client per label
    pairs.sort()
    y = torch.tensor([label for label, _ in pairs])
    held = FederatedDataset(
        {"x": x.select(torch.tensor([i for _, i in pairs])), "y": Dense(y)},
        offsets_from_lengths(torch.bincount(y, minlength=classes)),
        classes,
    )
    scored = Examples({"x": x.select(torch.tensor(test))}, Ragged.from_lists([sets[i] for i in test]))
    return Splits("tagged", held, scored)


def tagged_config(method: dict[str, object], **sections: object) -> so.Experiment:
    base: dict[str, object] = {
        "model": {"encoder": "lookup", "width": 8, "hidden": [8], "dim": 6, "init": 0.5},
        "method": method,
        "clients": {"per_round": "all", "local_steps": 1, "batch": "full", "lr": 0.3},
        "eval": {"metrics": ["P@1"]},
    }
    return so.Experiment.of({**base, **sections})


def several_classes() -> Splits:
    """Six clients with one to three of eight classes each, all of them with examples."""
    rng = np.random.default_rng(1)
    client = np.repeat(np.arange(6), [7, 4, 12, 5, 6, 3])
    y = (client + rng.integers(0, 3, len(client))) % 8
    x = rng.normal(size=(len(y), 6)).astype(np.float32) + 2 * np.eye(8, 6, dtype=np.float32)[y]
    train = so.FederatedDataset.from_arrays(x, y, client, classes=8)
    return Splits("toy", train, so.Examples.from_arrays(x, y))


def shop_config(**changes: object) -> so.Experiment:
    values = {
        "rounds": 3,
        "model": {"encoder": "mean", "dim": 6, "init": 0.5},
        "method": {"name": "dual_encoder"},
        "clients": {"batch": 4, "lr": 0.5, "per_round": 5},
        "server": {"optimizer": "sgd", "lr": 1.0},
        "eval": {"metrics": ["R@1"]},
    }
    for key, change in changes.items():
        values[key] = {**values.get(key, {}), **change} if isinstance(change, dict) else change  # type: ignore[dict-item]
    return so.Experiment.of(values)


def label_sets(n: int = 80, classes: int = 20, seed: int = 0) -> Splits:
    """Label sets of up to three of `classes`; every label shows in a feature of its own."""
    rng = np.random.default_rng(seed)
    sets = [sorted(set(rng.integers(0, classes, size=rng.integers(0, 4)).tolist())) for _ in range(n)]
    x = rng.normal(0, 0.1, size=(n, classes)).astype(np.float32)
    for i, one in enumerate(sets):
        x[i, one] += 1
    cut = 3 * n // 4
    labels = Ragged.from_lists(sets[:cut])
    columns = {"x": Dense(torch.from_numpy(x[:cut])), "y": Lists.of(labels)}
    offsets = offsets_from_lengths(torch.tensor([cut // 4] * 3 + [cut - 3 * (cut // 4)]))
    test = Examples({"x": Dense(torch.from_numpy(x[cut:]))}, Ragged.from_lists(sets[cut:]))
    return Splits("tagged", FederatedDataset(columns, offsets, classes), test)


def label_sets_config(method: dict[str, object], **sections: object) -> so.Experiment:
    base: dict[str, object] = {
        "model": {"hidden": [16, 16]},
        "method": method,
        "clients": {"per_round": 2, "batch": 8, "optimizer": "adam", "lr": 0.01, "eps": 1e-8},
        "eval": {"metrics": ["P@1"]},
    }
    return so.Experiment.of({**base, **sections})


HASHED: dict[str, object] = {"name": "fedmlh", "hash_tables": 3, "buckets": 8}
LABEL_ARMS: dict[str, dict[str, object]] = {
    "fedalc": {"name": "fedalc", "strength": 3.0},
    "mined": {"name": "fedalc", "spreadout_form": "topk", "k": 2, "strength": 3.0},
    "sigma": {"name": "fedalc", "normalize": False, "strength": 30.0},
    "fixed": {"name": "fedalc-fixed", "table_steps": 20},
    "private": {"name": "fedalc", "normalize": False, "table_clip": 0.1, "table_noise": 0.5},
    "oracle": {"name": "fedavg"},
    "flag": {"name": "flag"},
}
