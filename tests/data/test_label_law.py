"""Made-up labels with exact numbers: asked statistics are reached, whatever the size, as a stream."""

import tracemalloc

import numpy as np
import pytest

import spreadout as so
from spreadout.core import randomness
from spreadout.data.sources.label_law import LabelLaw, fitted, statistics_of
from spreadout.data.sources.label_slots import LabelSlots
from spreadout.data.sources.shapes import SHAPES
from spreadout.data.sources.synthetic import Synthetic


@pytest.mark.parametrize(
    ("exponent", "head", "least"), [(1.0, 1, 1), (0.4, 50, 1), (1.6, 5, 2), (0, 1, 0)]
)
def test_a_law_has_all_positives_and_leaves_no_label_out(
    exponent: float, head: float, least: float
) -> None:
    law = LabelLaw(3000, 9000, exponent, head, least)
    counts = law.counts()
    assert counts.sum() == 9000
    assert counts.min() >= least
    assert counts[:10].sum() >= counts[-10:].sum()
    # The slow twin of a place's label: a table of where labels begin.
    place = np.arange(9000)
    assert np.array_equal(law.label_at(place), np.searchsorted(np.cumsum(counts), place, side="right"))


def test_fewer_positives_than_labels_are_spread_over_labels() -> None:
    counts = LabelLaw(100, 40, 0.5, 3).counts()
    assert counts.sum() == 40
    assert counts.max() <= 1


def _slots(classes: int = 700, instances: int = 3000, mean: float = 2.7, seed: int = 0) -> LabelSlots:
    return LabelSlots(classes, instances, mean, exponent=0.8, head=10, least=1, seed=seed)


def test_every_place_is_taken_once() -> None:
    slots = _slots()
    _, label = slots.training(np.arange(3000))
    assert np.array_equal(np.bincount(label, minlength=700), slots.law.counts())


def test_instances_have_distinct_labels_and_the_asked_mean() -> None:
    slots, number = _slots(), np.arange(3000)
    owner, label = slots.distinct("train", number, *slots.training(number))
    assert len(np.unique(owner * 700 + label)) == len(owner)
    assert len(owner) / 3000 == pytest.approx(2.7, rel=0.01)
    assert np.bincount(owner).min() == 1


def test_kin_meet_far_more_often_than_chance() -> None:
    slots, number = _slots(mean=4.0), np.arange(3000)
    owner, label = slots.distinct("train", number, *slots.training(number))
    same = owner[1:] == owner[:-1]
    together = (label[1:] // slots.group == label[:-1] // slots.group)[same].mean()
    rng = np.random.default_rng(0)
    chance = (label // slots.group == rng.permutation(label) // slots.group).mean()
    assert together > 2 * chance


def test_other_parts_follow_the_same_law() -> None:
    slots = _slots(classes=50, mean=1.5)
    owner, label = slots.others("test", np.arange(20_000))
    expected = slots.law.counts() / slots.law.positives
    found = np.bincount(label, minlength=50) / len(label)
    assert np.abs(found - expected).max() < 0.01
    assert len(owner) / 20_000 == pytest.approx(1.5, rel=0.03)


@pytest.mark.parametrize("name", SHAPES)
def test_a_small_set_of_each_shape_has_what_was_asked(name: str) -> None:
    shape = SHAPES[name]
    source = Synthetic(shape=name, scale=min(1.0, 2e4 / shape.train))
    number = np.arange(source.examples)
    counts = np.bincount(source.labels("train", number)[1], minlength=source.classes)
    found = statistics_of(counts, source.examples, shape.upto)
    assert found.labels_per_instance == pytest.approx(shape.labels, rel=0.02)
    assert found.with_an_example > 0.995
    assert found.most_frequent < 0.6
    if shape.few is not None:  # 60 to 80 % where it is 0.7
        assert found.few_share == pytest.approx(shape.few, abs=0.1)


@pytest.mark.parametrize("name", [name for name, shape in SHAPES.items() if shape.rare is not None])
def test_the_share_of_rare_classes_is_what_was_asked_at_full_size(name: str) -> None:
    shape = SHAPES[name]
    law = LabelLaw(shape.classes, round(shape.train * shape.labels), shape.exponent, shape.head)
    found = statistics_of(law.counts(), shape.train, shape.upto)
    assert found.rare_share == pytest.approx(shape.rare or 0, abs=0.05)


def test_a_law_is_fitted_to_the_shares_it_has() -> None:
    true = LabelLaw(2000, 20_000, 0.8, 20)
    asked = statistics_of(true.counts(), 40_000)
    exponent, head = fitted(2000, 40_000, 20_000, rare=asked.rare_share, few=asked.few_share)
    found = statistics_of(LabelLaw(2000, 20_000, exponent, head).counts(), 40_000)
    assert found.rare_share == pytest.approx(asked.rare_share, abs=0.03)
    assert found.few_share == pytest.approx(asked.few_share, abs=0.03)


def test_a_matched_set_is_a_function_of_its_seed_however_it_is_cut() -> None:
    source = Synthetic(law="matched", classes=300, features=500, examples=100, labels_per_example=5)
    whole = source.chunk("train", np.arange(100))
    for part in ("train", "test"):
        pieces = list(source.chunks(part, 100, size=33))
        again = source.chunk(part, np.arange(100))
        assert np.array_equal(np.concatenate([p.labels for p in pieces]), again.labels)
        assert np.array_equal(np.concatenate([p.features for p in pieces]), again.features)
    other = source.model_copy(update={"seed": 1}).chunk("train", np.arange(100))
    assert not np.array_equal(other.labels[:50], whole.labels[:50])


def test_670_thousand_classes_need_no_memory_of_their_size() -> None:
    source = Synthetic(shape="amazon-670k")
    source.chunk("train", np.arange(10))
    tracemalloc.start()
    chunk = source.chunk("train", np.arange(1000))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert chunk.labels.max() > 500_000
    assert peak < 30 << 20


def test_what_is_given_beside_a_shape_counts() -> None:
    source = Synthetic(shape="eurlex-4k", classes=77, noise=3)
    assert (source.classes, source.noise, source.examples, source.law) == (77, 3, 15_539, "matched")
    assert Synthetic(**source.model_dump()) == source
    with pytest.raises(so.UserError, match="shape = 'eurlex': unknown; known: amazoncat-13k, "):
        Synthetic(shape="eurlex")
    with pytest.raises(so.UserError, match=r"scale = 0\.5: is of a shape"):
        Synthetic(scale=0.5)


def test_places_of_runs_of_any_length_are_permuted_each_by_itself() -> None:
    lengths = np.array([1, 2, 5, 64, 1000])
    key = np.arange(5).astype(np.uint64)
    n = np.repeat(lengths, lengths)
    place = np.concatenate([np.arange(m) for m in lengths])
    found = randomness.permute(place, n, np.repeat(key, lengths))
    for m, k in zip(lengths, key, strict=True):
        alone = randomness.permute(np.arange(m), int(m), np.full(m, k))
        assert np.array_equal(found[n == m], alone)
        assert sorted(alone) == list(range(m))


def test_label_sets_have_the_sizes_that_were_asked_for() -> None:
    asked = (0.0, 0.25, 0.5, 0.25)  # none with one label, half with three
    source = Synthetic(law="matched", classes=500, examples=2048, labels_per_example=3, sizes=asked)
    owner, _ = source.labels("train", np.arange(2048))
    shares = np.bincount(np.bincount(owner), minlength=5)[1:] / 2048
    assert shares == pytest.approx(asked, abs=0.01)
    with pytest.raises(so.UserError, match="sizes: shares of instances"):
        Synthetic(law="matched", sizes=(0.5, -0.5, 1.0))


def test_sizes_say_how_many_labels_there_are_in_the_mean() -> None:
    alone = Synthetic(law="matched", classes=100, examples=1024, sizes=(0.0, 1.0))
    assert alone.labels_per_example == 2
    assert len(alone.labels("train", np.arange(1024))[0]) == 2 * 1024
    with pytest.raises(so.UserError, match=r"sizes: 2 labels an instance in the mean, and "):
        Synthetic(law="matched", sizes=(0.0, 1.0), labels_per_example=3)
    with pytest.raises(so.UserError, match="sizes: go up to 4 labels, and there are 3 classes"):
        Synthetic(law="matched", sizes=(0.7, 0.1, 0.1, 0.1), classes=3)
    with pytest.raises(so.UserError, match="sizes: go up to 300 labels, and 256 are the most"):
        Synthetic(law="matched", sizes=(0.9, *298 * [0.0], 0.1), classes=1000)


def test_the_fewer_labels_are_kin_the_more_often_two_of_them_meet() -> None:
    def firmest(kin: int) -> float:
        """The mean over frequent labels of how often another one is there too, at most."""
        source = Synthetic(law="matched", classes=200, examples=4000, labels_per_example=3, kin=kin)
        owner, label = source.labels("train", np.arange(4000))
        held = np.zeros((4000, 200))
        held[owner, label] = 1
        together = held.T @ held
        counts = np.diag(together).copy()
        np.fill_diagonal(together, 0)
        return float((together.max(1) / counts)[counts >= 20].mean())

    assert firmest(8) > 1.3 * firmest(64)
