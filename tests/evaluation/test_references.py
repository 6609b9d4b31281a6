"""References held to slow, obvious twins, and to what is known of small data sets."""

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
import torch
from sklearn.linear_model import Ridge as SlowRidge

import spreadout as so
from spreadout.core.ragged import Ragged
from spreadout.data import partition
from spreadout.data.columns import Dense, Lists, Sparse
from spreadout.data.load import distribute
from spreadout.data.moments import moments
from spreadout.data.sources.base import Instances, RawDataset
from spreadout.data.tails import shortened, with_roots
from spreadout.evaluation.metrics import METRICS
from spreadout.evaluation.pooled import Pool, pool_of
from spreadout.evaluation.references import (
    Reference,
    best_central,
    compute,
    histories,
    references_of,
    ridge,
    sparse_ridge,
)
from spreadout.evaluation.references.features import Features, Form
from spreadout.evaluation.references.neighbours import Voters
from spreadout.evaluation.references.scoring import Clock, OutOfTime
from toys import label_sets, shop, tagged

CPU = torch.device("cpu")
CLOCK = Clock(1e6)


def every(n: int) -> torch.Tensor:
    return torch.arange(n)


def test_an_instance_on_several_clients_is_one_with_all_its_labels() -> None:
    held = tagged().train
    pool = pool_of(held)
    x = held.columns["x"]
    assert x.index is not None
    owned: dict[int, set[int]] = {}
    for place, label in zip(
        x.index.tolist(), held.columns["y"].take(every(len(x))).tolist(), strict=True
    ):
        owned.setdefault(place, set()).add(label)
    assert [pool.labels[i].tolist() for i in range(len(pool))] == [
        sorted(owned[i]) for i in sorted(owned)
    ]
    stored = (
        x.values if isinstance(x, Dense) else replace(x, index=None).take(torch.tensor(sorted(owned)))
    )
    assert torch.equal(pool.inputs["x"].take(every(len(pool))), stored)


def test_references_are_the_same_however_labels_are_dealt() -> None:
    """Where each label is an example, no client has an instance without labels."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(90, 6)).astype(np.float32)
    sets = [[c for c in range(3) if x[i, c] > 0.6] for i in range(90)]
    assert 20 < sum(not one for one in sets) < 70
    some = Instances({"x": Dense(torch.from_numpy(x))}, Ragged.from_lists(sets))
    raw = RawDataset(some, classes=3)
    held = so.Examples.from_arrays(x[60:], sets[60:])
    dealt = {
        "each": partition.by_label(partition.each_label(some.labels), 3),
        "all": partition.iid(partition.label_sets(some.labels), clients=4, seed=0),
        "frequent": partition.frequent_classes(some.labels, clients=4, frequent=2, seed=0),
    }
    found = {}
    for name, assignment in dealt.items():
        train = distribute(some, assignment, raw)
        pool = pool_of(train)
        assert [pool.labels[i].tolist() for i in range(len(pool))] == [one for one in sets if one]
        found[name] = references_of(so.Splits("few", train, held), ["P@1", "PSP@1"])
    metrics = {name: {one: own[one].metrics for one in own} for name, own in found.items()}
    assert metrics["each"] == metrics["all"] == metrics["frequent"]
    assert set(metrics["each"]) == {"most frequent", "ridge", "nearest neighbours"}


def test_equally_frequent_classes_are_not_ranked_by_their_numbers() -> None:
    labels = Ragged.from_lists([[c] for c in range(50)] + [[7], [7]])
    pool = Pool({}, labels, classes=60, first_class=1)
    order = pool.prior.argsort(descending=True).tolist()
    assert order[0] == 7
    assert set(order[1:49]) == set(range(1, 50)) - {7}  # seen once
    assert set(order[49:59]) == set(range(50, 60))  # never
    assert order[1:49] != sorted(order[1:49])
    assert pool.prior[0] == -torch.inf
    assert len(pool.prior.unique()) == 60


@pytest.mark.parametrize("n", [40, 12], ids=["by features", "by instances"])
def test_both_forms_of_ridge_are_scikit_learns(n: int) -> None:
    rng = np.random.default_rng(n)
    x = rng.normal(size=(n, 20)).astype(np.float32) + 1
    right = rng.random((n, 5)) < 0.4
    labels = Ragged.from_lists([np.flatnonzero(row).tolist() for row in right])
    features = Features(Dense(torch.from_numpy(x)), CPU, 100)
    classes = torch.tensor([0, 2, 3, 4])
    system = ridge.system_of(features, labels, classes, every(n), CLOCK)
    assert len(system.matrix) == min(n, 20)
    centred = x - x.mean(0)
    strength = 0.3
    slow = SlowRidge(alpha=strength * float((centred**2).sum()) / min(n, 20), solver="cholesky")
    slow.fit(x.astype(np.float64), right[:, classes.numpy()])
    prior = torch.tensor([0.1, 0.5, 0.2, 0.3, 0.4], dtype=torch.float64)
    found = system.solve(strength).scorer(features, prior)(every(n))
    np.testing.assert_allclose(found[:, classes], slow.predict(x), atol=1e-4)
    assert (found[:, 1] < -1e5).all()  # a class that is left out comes last


def worded(n: int = 900, width: int = 1200, classes: int = 4, seed: int = 0) -> so.Splits:
    """Texts of some ten words, frequent and rare ones, a few of them of their class."""
    rng = np.random.default_rng(seed)
    share = 1 / np.arange(1, width + 1)
    y = rng.integers(classes, size=n)
    words = rng.choice(width // 2, size=(n, 9), p=share[: width // 2] / share[: width // 2].sum())
    own = rng.random((n, 9)) < 0.4
    words[own] = ((words + 1) * (y[:, None] + 2) % width)[own]  # may be named twice
    x = Sparse(
        torch.from_numpy(words.reshape(-1)),
        torch.from_numpy(1 + rng.random(9 * n)).float(),
        torch.arange(n + 1) * 9,
        width,
    )
    cut = 3 * n // 4
    sets = Ragged.from_lists([[int(one)] for one in y])
    train = Instances({"x": x.select(every(cut))}, sets.select(every(cut)))
    assignment = partition.iid(partition.label_sets(train.labels), clients=3, seed=0)
    rest = torch.arange(cut, n)
    held = so.Examples({"x": x.select(rest)}, sets.select(rest))
    return so.Splits("words", distribute(train, assignment, RawDataset(train, classes=classes)), held)


@pytest.mark.parametrize("form", ["raw", "unit"])
@pytest.mark.parametrize("most", [5000, 300], ids=["fewer instances", "hashed into fewer features"])
def test_words_have_the_ridge_of_dense_features(form: Form, most: int) -> None:
    pool = pool_of(worded().train)
    x = pool.inputs["x"]
    assert isinstance(x, Sparse)
    features = Features(x, CPU, most).formed(form, every(len(pool)))
    some = torch.arange(0, len(pool), 2).flip(0)
    classes = torch.tensor([0, 1, 3])
    twin = ridge.system_of(features, pool.labels, classes, some, CLOCK)
    system = sparse_ridge.sparse_system_of(features, pool.labels, classes, some, CLOCK)
    assert len(twin.matrix) == min(len(some), most)
    torch.testing.assert_close(system.center, twin.center, atol=1e-7, rtol=0)
    torch.testing.assert_close(system.bias, twin.bias)
    rest = torch.arange(1, len(pool), 2)
    last = None
    for strength in ridge.STRENGTHS:
        slow, last = twin.solve(strength), system.solve(strength, last)
        near = 5e-3 if strength < 1e-2 else 1e-4  # MOST_STEPS end the weakest
        for found in (last, system.solve(strength)):  # from the one before, and from nothing
            own = found.scorer(features, pool.prior)(rest)
            rows = features.rows(rest).double()
            plain = (rows - slow.center) @ slow.weights + slow.bias
            torch.testing.assert_close(own[:, classes], plain, atol=near, rtol=0)
            assert (own[:, 2] < -1e5).all()


def test_the_reference_of_words_is_the_same_solved_densely(monkeypatch: pytest.MonkeyPatch) -> None:
    data = worded(2000)
    made = []
    system_of = sparse_ridge.sparse_system_of
    monkeypatch.setattr(
        sparse_ridge, "sparse_system_of", lambda *given: made.append(1) or system_of(*given)
    )
    fast = references_of(data, ["P@1"])["ridge"]
    assert len(made) == 3  # both forms, and the chosen one of all instances
    monkeypatch.setattr(sparse_ridge, "pays", lambda *_: False)
    slow = references_of(data, ["P@1"])["ridge"]
    assert len(made) == 3
    assert (fast.metrics, fast.note) == (slow.metrics, slow.note)
    assert fast.metrics["P@1"] > 60


def test_words_of_which_there_are_too_many_weights_are_hashed_and_the_note_says_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(compute, "MOST_FEATURES", 800)
    data = worded(2000)
    assert "hashed" not in references_of(data, ["P@1"])["ridge"].note  # dense ones would be
    monkeypatch.setattr(sparse_ridge, "MOST_WEIGHTS", 4 * 1000)
    assert "1,200 features hashed into 1,000" in references_of(data, ["P@1"])["ridge"].note
    monkeypatch.setattr(sparse_ridge, "MOST_WEIGHTS", 4 * 400)  # dense ones are more
    assert "1,200 features hashed into 800" in references_of(data, ["P@1"])["ridge"].note


def test_few_numbers_of_many_are_solved_by_steps_and_others_by_a_factor() -> None:
    words = Features(pool_of(worded(4000, width=6000).train).inputs["x"], CPU, 1 << 20)
    assert sparse_ridge.pays(words, 4, 4096)
    assert not sparse_ridge.pays(words, 4000, 4096)  # each class has steps of its own
    assert not sparse_ridge.pays(words, 4, 100)  # a small matrix is soon factored
    assert not sparse_ridge.pays(replace(words, most=2000), 4, 4096)  # hashed into fewer
    full = words.column.take(every(len(words)))
    assert not sparse_ridge.pays(replace(words, column=Dense(full)), 4, 4096)
    assert not sparse_ridge.pays(words.formed("standard", every(len(words))), 4, 4096)
    some = words.like(words.column.select(every(50)))
    assert not sparse_ridge.pays(some, 4, 6000)  # a matrix of 50 instances is small, too


def test_steps_end_when_time_is_up() -> None:
    pool = pool_of(worded().train)
    features = Features(pool.inputs["x"], CPU, 5000)
    given = (features, pool.labels, every(4), every(len(pool)))
    system = sparse_ridge.sparse_system_of(*given, CLOCK)
    with pytest.raises(OutOfTime):
        replace(system, clock=Clock(0)).solve(1.0)
    with pytest.raises(OutOfTime):
        sparse_ridge.sparse_system_of(*given, Clock(0))


def table_with_tails(sigma: float) -> so.Splits:
    """Six classes by log-normal features; with sigma = 0 by their logarithms."""
    rng = np.random.default_rng(0)
    y = np.tile(np.arange(6), 60)
    x = 1.5 * rng.normal(size=(6, 6))[y] + rng.normal(size=(len(y), 6))
    x = (np.exp(sigma * x) if sigma else x).astype(np.float32)
    train = so.FederatedDataset.from_arrays(x[:240], y[:240], client=y[:240])
    return so.Splits("tails", train, so.Examples.from_arrays(x[240:], y[240:]))


def test_long_tails_are_shortened_for_references_too(monkeypatch: pytest.MonkeyPatch) -> None:
    splits = table_with_tails(2)
    found = references_of(splits, ["P@1"])
    monkeypatch.setattr(compute, "RIDGE_NUMBERS", ("standard", "raw"))
    monkeypatch.setattr(compute, "NEAR_NUMBERS", ("standard, unit", "unit"))
    without = references_of(splits, ["P@1"])
    for name in ("ridge", "nearest neighbours"):
        assert "long tails shortened" in found[name].note
        assert found[name].metrics["P@1"] > without[name].metrics["P@1"] + 5


def test_features_without_long_tails_have_no_further_form() -> None:
    column = table_with_tails(0).train.columns["x"]
    features = Features(column, CPU, 100)
    forms = compute._forms(features, every(len(column)), ("standard", "roots"), ("raw",))
    assert set(forms) == {"standard"}


def test_shortened_features_are_those_of_a_plain_loop() -> None:
    column = table_with_tails(2).train.columns["x"]
    x = column.take(every(len(column))).double().numpy()
    formed = Features(column, CPU, 100).formed("roots", every(len(column)))
    power, _, _ = shortened(*moments(column, every(len(column)), with_roots))
    assert power.max() < 1
    rows = formed.rows(every(len(column)))
    for j, own in enumerate(power.tolist()):
        root = x[:, j] ** own
        np.testing.assert_allclose(rows[:, j], (root - root.mean()) / root.std(), atol=1e-3)


def test_neighbours_vote_as_in_a_plain_loop() -> None:
    data = label_sets()
    pool = pool_of(data.train)
    features = Features(pool.inputs["x"], CPU, 100, form="unit")
    voters = Voters.of(features, pool.labels, every(len(pool)))
    other = features.like(data.test.inputs["x"])
    found = voters.scorer(other, pool.prior, 5)(every(len(data.test)))
    ours, theirs = features.rows(every(len(pool))), other.rows(every(len(data.test)))
    for i, row in enumerate(theirs):
        cosine = (ours @ row).tolist()
        votes = [0.0] * pool.classes
        for j in sorted(range(len(pool)), key=lambda j: -cosine[j])[:5]:
            for label in pool.labels[j].tolist():
                votes[label] += max(cosine[j], 0)
        np.testing.assert_allclose(found[i], votes, atol=1e-6)


def test_successors_and_meetings_are_counted_as_in_a_plain_loop() -> None:
    data = shop(users=12)
    pool = pool_of(data.train)
    ours, theirs = pool.inputs["history"], data.test.inputs["history"]
    assert isinstance(ours, Lists)
    assert isinstance(theirs, Lists)
    windows = [ours.ragged(torch.tensor([i])).values.tolist() for i in range(len(pool))]
    after = [int(pool.labels[i]) for i in range(len(pool))]
    scored = [theirs.ragged(torch.tensor([i])).values.tolist() for i in range(len(theirs))]

    follows = Counter((window[-1], label) for window, label in zip(windows, after, strict=True))
    popular = Counter(after)
    scores = histories.successor_scorer(histories.successors(pool, ours), theirs, pool.prior)(
        every(len(theirs))
    )
    for row, window in zip(scores, scored, strict=True):
        ranked = row.argsort(descending=True).tolist()
        keys = [(follows[window[-1], item], popular[item]) for item in ranked[: pool.classes - 1]]
        assert keys == sorted(keys, reverse=True)
        assert ranked[-1] == 0  # the padding

    together: Counter[tuple[int, int]] = Counter()
    alone: Counter[int] = Counter()
    for window, label in zip(windows, after, strict=True):
        for item in window:
            if item != label:
                together[item, label] += 1
                together[label, item] += 1
                alone[item] += 1
                alone[label] += 1
    met = histories.meetings(pool, ours, CLOCK)
    found = histories.meeting_scorer(replace(met, repeats=1.0), theirs, pool.prior)(every(len(theirs)))
    for row, window in zip(found, scored, strict=True):
        for item in range(1, pool.classes):
            near = sum(
                together[one, item] / (alone[one] * alone[item]) ** 0.5
                for one in window
                if together[one, item]
            )
            assert float(row[item]) == pytest.approx(near, abs=1e-5)
    never = histories.meeting_scorer(replace(met, repeats=0.0), theirs, pool.prior)(every(len(theirs)))
    assert all((row[window] < -1).all() for row, window in zip(never, scored, strict=True))


def test_what_can_be_learned_from_label_sets_beats_the_most_frequent() -> None:
    found = references_of(label_sets(n=200), ["P@1", "mean rank", "mAP", "PSP@3"])
    assert list(found) == ["most frequent", "ridge", "nearest neighbours"]
    assert [one.is_trivial for one in found.values()] == [True, False, False]
    trivial, linear, near = found.values()
    assert list(trivial.metrics) == ["P@1", "mean rank", "PSP@3"]  # mAP needs embeddings
    assert trivial.metrics["P@1"] < 30
    assert linear.metrics["P@1"] > 90
    assert near.metrics["P@1"] > 60
    assert linear.metrics["mean rank"] < 2 < trivial.metrics["mean rank"]
    assert "strength" in linear.note
    assert "neighbours" in near.note


def test_next_items_are_found_by_what_followed() -> None:
    found = references_of(shop(users=40), ["R@1", "MRR"])
    assert list(found) == ["popularity", "successor", "item-kNN"]
    assert found["popularity"].is_trivial
    assert found["successor"].metrics["R@1"] > 80
    assert found["popularity"].metrics["R@1"] < 30
    assert found["item-kNN"].metrics["MRR"] > found["popularity"].metrics["MRR"]


def test_the_split_is_the_one_asked_for() -> None:
    whole = label_sets(n=120)
    right = so.Splits("toy", whole.train, whole.test, validation=whole.test)
    assert (
        references_of(right, ["P@1"], "validation")["ridge"].metrics
        == references_of(right, ["P@1"])["ridge"].metrics
    )
    assert references_of(whole, ["P@1"], "validation") == {}


def test_nothing_is_learned_from_the_scored_part() -> None:
    """Other labels there change the score and nothing that is chosen."""
    data = label_sets(n=120)
    turned = Ragged(data.test.labels.offsets, (data.test.labels.values + 1) % 20)
    other = replace(data, test=replace(data.test, labels=turned))
    one, two = references_of(data, ["P@1"]), references_of(other, ["P@1"])
    assert one["ridge"].note == two["ridge"].note
    assert one["ridge"].metrics["P@1"] > 90
    assert two["ridge"].metrics["P@1"] < 30


def test_what_takes_too_long_is_left_out_and_says_so() -> None:
    found = references_of(label_sets(), ["P@1"], seconds=0)
    assert found["ridge"].metrics == {}
    assert found["ridge"].note == "left out: references may take 0 s in all"


def test_what_is_too_large_is_cut_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compute, "WORK", {"cpu": 100 * 8 * 8})
    monkeypatch.setattr(compute, "MOST_FEATURES", 8)
    monkeypatch.setattr(ridge, "MOST_WEIGHTS", 8 * 15)
    found = references_of(label_sets(n=400), ["P@1"])["ridge"]
    assert "20 features hashed into 8" in found.note
    assert "100 of 237 training instances" in found.note  # 63 have no label
    assert "5 rarest classes left out" in found.note
    assert 0 < found.metrics["P@1"] < 100


@pytest.mark.parametrize("sparse", [True, False])
def test_hashed_features_are_the_same_for_dense_and_sparse(sparse: bool) -> None:
    x = tagged().train.columns["x"]
    assert isinstance(x, Sparse)
    column = x if sparse else Dense(x.take(every(len(x))))
    rows = Features(column, CPU, 8).rows(every(len(x)))
    whole = Features(column, CPU, 100).rows(every(len(x)))
    place, side = Features(Dense(whole), CPU, 8)._sketch
    slow = torch.zeros(len(x), 8)
    for feature in range(whole.shape[1]):
        slow[:, place[feature]] += side[feature] * whole[:, feature]
    assert torch.equal(rows, slow)


def test_classes_nobody_trains_on_have_no_reference() -> None:
    data = label_sets()
    unseen = replace(data.test, labels=Ragged(data.test.labels.offsets, data.test.labels.values + 20))
    assert references_of(replace(data, test=unseen), ["P@1"]) == {}
    assert references_of(data, ["mAP"]) == {}


def test_one_instance_is_enough() -> None:
    train = so.FederatedDataset.from_arrays([[1.0, 0.0]], [1], [0])
    found = references_of(so.Splits("one", train, so.Examples.from_arrays([[0.0, 0.0]], [1])), ["P@1"])
    assert {name: one.metrics for name, one in found.items()} == {
        "most frequent": {"P@1": 100.0},
        "ridge": {"P@1": 100.0},
        "nearest neighbours": {"P@1": 100.0},
    }


def test_the_best_in_one_place_is_the_oracle() -> None:
    ridge_row = Reference("ridge", {"P@1": 64.0, "P@3": 39.0})
    left_out = Reference("nearest neighbours", {}, note="left out")
    both = {"ridge": ridge_row, "nearest neighbours": left_out}
    assert best_central(both, by=("P@1", "P@3")) is ridge_row
    assert best_central(both, {"P@1": 65.0, "P@3": 37.0}, by=("P@1", "P@3")) is ridge_row
    best = best_central(both, {"P@1": 65.0, "P@3": 37.0}, by=("P@1",))
    assert best is not None
    assert best.name == "centralized"
    assert best_central(both, {"P@1": 65.0}, by=("mean rank",)) is None
    lower = {"a": Reference("a", {"mean rank": 3.0}), "b": Reference("b", {"mean rank": 9.0})}
    assert best_central(lower, by=("mean rank",)) is lower["a"]


def test_a_metric_that_fails_costs_the_reference_and_not_the_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(METRICS, "_parts", dict(METRICS._parts))

    @so.register_metric("picky", needs=("ranking",))
    def picky(inputs: so.MetricInputs) -> float:
        raise ValueError("not\nfor me")

    found = references_of(label_sets(), ["picky"])["most frequent"]
    assert (found.metrics, found.note) == ({}, "left out: ValueError: not for me")
