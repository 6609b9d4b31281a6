"""Made-up extremes: power-law labels that can be learned, of any size, as a stream."""

import numpy as np
import pytest
import torch

import spreadout as so
from spreadout.data.columns import Sparse
from spreadout.data.sources.synthetic import Synthetic


def test_label_frequencies_follow_the_power_law() -> None:
    source = Synthetic(classes=1000, labels_per_example=1, exponent=1.0)
    chunk = source.chunk("train", np.arange(200_000))
    assert (chunk.label_counts == 1).all()
    count = np.bincount(chunk.labels, minlength=1000)
    # Rank r is drawn with the integral of 1/x over [r, r + 1): log(1 + 1/r) / log(C + 1).
    for rank in (1, 2, 5, 20, 100):
        expected = 200_000 * np.log(1 + 1 / rank) / np.log(1001)
        assert abs(count[rank - 1] - expected) < 5 * np.sqrt(expected)
    even = Synthetic(classes=50, labels_per_example=1, exponent=0).chunk("train", np.arange(50_000))
    assert np.bincount(even.labels, minlength=50).std() < 5 * np.sqrt(1000)


def test_the_mean_number_of_labels_is_about_what_was_asked_for() -> None:
    chunk = Synthetic(classes=100_000, labels_per_example=5).chunk("train", np.arange(20_000))
    assert 4.0 < chunk.label_counts.mean() <= 5.1  # repeated draws fall together
    assert chunk.label_counts.min() == 1


def test_a_part_does_not_depend_on_how_it_is_cut_and_parts_differ() -> None:
    source = Synthetic(classes=300, features=500)
    whole = source.chunk("train", np.arange(100))
    pieces = list(source.chunks("train", 100, size=33))
    assert np.array_equal(np.concatenate([p.labels for p in pieces]), whole.labels)
    assert np.array_equal(np.concatenate([p.features for p in pieces]), whole.features)
    assert np.array_equal(np.concatenate([p.weights for p in pieces]), whole.weights)
    assert not np.array_equal(source.chunk("test", np.arange(100)).features[:50], whole.features[:50])
    other = Synthetic(classes=300, features=500, seed=1).chunk("train", np.arange(100))
    assert not np.array_equal(other.features[:50], whole.features[:50])


def test_companions_come_together_far_more_often_than_chance() -> None:
    source = Synthetic(classes=1000, labels_per_example=3)
    chunk = source.chunk("train", np.arange(30_000))
    owner = np.repeat(np.arange(30_000), chunk.label_counts)
    label = 40  # of middling frequency
    friend = int(source.companions(np.full(8, label), np.arange(8)).max())  # its rarest companion
    with_label = np.isin(np.arange(30_000), owner[chunk.labels == label])
    with_friend = np.isin(np.arange(30_000), owner[chunk.labels == friend])
    assert with_friend[with_label].mean() > 5 * with_friend.mean()


def test_ten_million_classes_need_no_memory_of_their_size() -> None:
    import tracemalloc

    source = Synthetic(classes=10_000_000, features=1_000_000)
    source.chunk("train", np.arange(10))
    tracemalloc.start()
    chunk = source.chunk("train", np.arange(1000))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert chunk.labels.max() > 100_000
    assert peak < 30 << 20


def test_it_can_be_learned(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A centralised softmax on it is far above chance and above always naming the commonest label."""
    monkeypatch.setenv("SPREADOUT_CACHE", str(tmp_path_factory.mktemp("cache")))
    config = {
        "rounds": 150,
        "data": {"source": {"name": "synthetic", "classes": 60, "features": 400, "examples": 3000, "test_examples": 500}},
        "model": {"hidden": [], "dim": 64},
        "method": {"name": "centralized"},
        "clients": {"lr": 0.5, "local_steps": 4, "batch": 64},
    }  # fmt: skip
    experiment = so.Experiment.of(config)
    result = so.run(experiment)
    data = so.load_data(experiment.data)
    common = torch.bincount(
        data.train.columns["y"].take(torch.arange(data.train.examples)), minlength=60
    )
    always = float((data.test.labels.values == int(common.argmax())).sum()) / len(data.test) * 100
    assert result.metrics["P@1"] > always + 20


def test_stored_and_streamed_are_the_same(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPREADOUT_CACHE", str(tmp_path_factory.mktemp("cache")))
    source = Synthetic(classes=30, features=50, examples=70, test_examples=20)
    found = source.read(None)
    chunk = source.chunk("train", np.arange(70))
    assert found.train.labels.values.tolist() == chunk.labels.tolist()
    assert found.train.labels.lengths.tolist() == chunk.label_counts.tolist()
    x = found.train.columns["x"]
    assert isinstance(x, Sparse)
    assert x.ids.tolist() == chunk.features.tolist()
    assert x.offsets.diff().tolist() == chunk.feature_counts.tolist()
    assert len(found.test or []) == 20
