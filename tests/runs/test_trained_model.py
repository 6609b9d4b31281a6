"""After a run one holds the trained model: in Python, of a folder, and asked with whatever one has."""

from pathlib import Path

import numpy as np
import pandas
import pytest
import scipy.sparse
import torch
from torch import nn
from torch.nn import functional as F

import spreadout as so
from tiny import tiny, tiny_data
from toys import HASHED, label_sets, label_sets_config, shop, shop_config, tagged, tagged_config


def encoder(seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 8))


def blobs(seed: int = 0) -> tuple[so.Splits, np.ndarray, np.ndarray]:
    """Five classes on clients of their own, some much larger than others, so that the prior counts."""
    rng = np.random.default_rng(seed)
    y = np.repeat(np.arange(5), [60, 50, 40, 30, 20])
    x = (rng.normal(size=(len(y), 8)) + 3 * np.eye(5, 8)[y]).astype(np.float32)
    yt = np.repeat(np.arange(5), 30)
    xt = (rng.normal(size=(150, 8)) + 3 * np.eye(5, 8)[yt]).astype(np.float32)
    train = so.FederatedDataset.from_arrays(x, y, client=y)
    return so.Splits("blobs", train, so.Examples.from_arrays(xt, yt)), xt, yt


@pytest.fixture(scope="module")
def trained() -> tuple[so.Result, nn.Module, np.ndarray, np.ndarray]:
    data, x, y = blobs()
    given = encoder()
    experiment = so.Experiment.of({"rounds": 40, "clients": {"lr": 0.2, "row_lr": 1.0}})
    return so.run(experiment, data=data, encoder=given), given, x, y


def by_hand(module: nn.Module, classes: torch.Tensor, prior: object, x: np.ndarray) -> torch.Tensor:
    with torch.no_grad():
        found = F.normalize(module(torch.from_numpy(x))) @ classes.T
    return found if prior is None else found + prior  # type: ignore[operator]


def test_the_reported_score_is_that_of_the_encoder_one_holds(
    trained: tuple[so.Result, nn.Module, np.ndarray, np.ndarray],
) -> None:
    result, given, x, y = trained
    prior = result.predictor.prior
    assert prior is not None
    reported = result.metrics["P@1"]
    for module in (result.encoder, result.federation.model.encoder):
        scores = by_hand(module, result.class_vectors, prior, x)
        assert 100 * float((scores.argmax(1).numpy() == y).mean()) == pytest.approx(reported, abs=1e-9)
    untrained = by_hand(given, result.class_vectors, prior, x)
    assert 100 * float((untrained.argmax(1).numpy() == y).mean()) < reported - 5
    assert [int(each[0].id) for each in result.predict(x, top=1)] == scores.argmax(1).tolist()
    assert torch.allclose(result.predictor.scores(x), scores, atol=1e-6)
    with torch.no_grad():
        assert torch.allclose(result.embed(x), F.normalize(result.encoder(torch.from_numpy(x))))


def test_what_is_saved_is_loaded_with_any_encoder_of_its_form(
    trained: tuple[so.Result, nn.Module, np.ndarray, np.ndarray], tmp_path: Path
) -> None:
    result, _, x, _ = trained
    folder = result.save(tmp_path / "mine")
    other = encoder(seed=9)
    before = {name: value.clone() for name, value in other.state_dict().items()}
    loaded = so.load(folder, encoder=other)
    assert loaded.predict(x, 5) == result.predict(x, 5)
    assert torch.equal(loaded.embed(x), result.embed(x))
    assert torch.equal(loaded.class_vectors, result.class_vectors)
    for name, value in loaded.encoder.state_dict().items():
        assert torch.equal(value, result.encoder.state_dict()[name])
        assert torch.equal(before[name], other.state_dict()[name])
    with pytest.raises(so.UserError, match="exists; choose another"):
        result.save(tmp_path / "mine")
    result.save(tmp_path / "mine", force=True)
    with pytest.raises(so.UserError, match="is finished and has no checkpoint"):
        so.resume(folder)


def test_a_saved_run_is_the_one_that_was_written_all_along(tmp_path: Path) -> None:
    result = so.run(tiny(), data=tiny_data(), out=tmp_path / "run")
    result.save(tmp_path / "saved")
    same = {"config.toml", "metrics.jsonl", "summary.json", "projection.json", "privacy.json"}
    same |= {"model/weights.safetensors", "model/about.json"}
    for name in sorted(same):
        assert (tmp_path / "run" / name).read_bytes() == (tmp_path / "saved" / name).read_bytes(), name


def test_weights_that_are_tied_stay_tied(tmp_path: Path) -> None:
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.one = nn.Linear(8, 8)
            self.two = nn.Linear(8, 8)
            self.two.weight = self.one.weight

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            found: torch.Tensor = self.two(torch.tanh(self.one(x)))
            return found

    data, x, _ = blobs()
    result = so.run(so.Experiment(rounds=3), data=data, encoder=Tied())
    scores = by_hand(result.encoder, result.class_vectors, result.predictor.prior, x)
    assert torch.allclose(scores, result.predictor.scores(x), atol=1e-6)


def test_numbers_are_taken_in_every_form(
    trained: tuple[so.Result, nn.Module, np.ndarray, np.ndarray],
) -> None:
    result, _, x, _ = trained
    x = np.round(x[:6], 2)
    right = result.predict(x, 3)
    frame = pandas.DataFrame(x, columns=[f"c{i}" for i in range(8)])
    forms = [
        x.tolist(),
        x.astype(np.float64),
        frame,
        torch.from_numpy(x).requires_grad_(),
        torch.from_numpy(x).to_sparse(),
        scipy.sparse.csr_matrix(x),
        scipy.sparse.coo_array(x),
    ]
    for form in forms:
        found = result.predict(form, 3)
        assert [[g.id for g in each] for each in found] == [[g.id for g in each] for each in right]
        assert found[0][0].score == pytest.approx(right[0][0].score, abs=1e-6)


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        ([], r"there are no inputs|x has shape"),
        ([1.0] * 8, r"x has shape \(8,\)"),
        ([[1.0] * 8, [1.0]], "rows of different lengths"),
        ([["a"] * 8], "this run takes 8 numbers an example"),
        ([[float("nan")] * 8], "not finite in example 0"),
        ([[1e300] * 8], "not finite in example 0"),
        (np.zeros((2, 7)), r"x has shape \(2, 7\): this run takes 8 numbers"),
        (scipy.sparse.eye_array(7).tocsr(), "x has 7 features: this run takes 8 numbers"),
        (pandas.DataFrame({"name": ["a", "b"]}), "column 'name' holds"),
        (["no.png"], r"no.png: no such file"),
        ("nowhere.npy", "nowhere.npy: no such file or folder"),
        (np.zeros((0, 8)), "there are no inputs"),
    ],
)
def test_inputs_that_do_not_fit_are_one_line(
    trained: tuple[so.Result, nn.Module, np.ndarray, np.ndarray], given: object, complaint: str
) -> None:
    with pytest.raises(so.UserError, match=complaint):
        trained[0].predict(given)
    assert len(trained[0].predict(trained[2][:1], top=np.int64(2))[0]) == 2  # type: ignore[arg-type]
    for top in (0, -1, True, 1.5):
        with pytest.raises(so.UserError, match="top = "):
            trained[0].predict(trained[2][:1], top=top)  # type: ignore[arg-type]


def test_sparse_inputs_of_a_lookup_are_those_given_densely() -> None:
    data = tagged()
    result = so.run(tagged_config({"name": "fedaws"}, rounds=5), data=data)
    x = data.test.inputs["x"].take(torch.arange(10)).numpy()
    dense, sparse = result.predict(x, 4), result.predict(scipy.sparse.csr_array(x), 4)
    assert [[g.id for g in each] for each in dense] == [[g.id for g in each] for each in sparse]


def test_histories_are_lists_or_events_in_a_data_frame() -> None:
    result = so.run(shop_config(rounds=10), data=shop())
    right = result.predict([["1", "2", "3"], ["7"]], top=2)
    assert result.predict([[1, 2, 3], [7]], top=2) == right
    events = pandas.DataFrame({"user": ["u", "v", "u", "u"], "item": [3, 7, 1, 2], "time": [9, 1, 4, 5]})
    assert result.predict(events, top=2) == right
    for time in (["10", "1", "8", "9"], ["2024-05-31", "2024-01-01", "2024-01-02", "2024-03-01"]):
        found = result.predict(events.assign(time=time), top=2)  # in order of time, not of text
        assert [[guess.id for guess in each] for each in found] == [
            [g.id for g in each] for each in right
        ]
    mixed = events.assign(user=pandas.Series(["u", 7, "u", "u"], dtype=object))
    assert {each[0].id for each in result.predict(mixed, top=2)} == {each[0].id for each in right}
    with pytest.raises(so.UserError, match="time 'noon' is neither a number nor an ISO date"):
        result.predict(events.assign(time="noon"))
    for given in ([1, 2], ["1", "2"], "12"):
        with pytest.raises(so.UserError, match=r"each a list of items|no such file"):
            result.predict(given)
    with pytest.raises(so.UserError, match="a data frame of events has the columns 'user' and 'item'"):
        result.predict(events[["item"]])
    with pytest.raises(so.UserError, match="a history is empty"):
        result.predict([[]])
    vectors = result.class_vectors
    assert vectors.shape == (13, 6)  # twelve items and the padding
    scores = result.embed([[1, 2, 3]]) @ vectors[1:].T
    assert torch.allclose(scores, result.predictor.scores([[1, 2, 3]]), atol=1e-6)


def test_buckets_have_scores_and_no_vectors() -> None:
    data = label_sets()
    result = so.run(label_sets_config(HASHED, rounds=3), data=data)
    x = data.test.inputs["x"].take(torch.arange(5)).numpy()
    scores = result.predictor.scores(x)
    assert scores.shape == (5, 20)
    assert [int(each[0].id) for each in result.predict(x, 1)] == scores.argmax(1).tolist()
    for ask in (lambda: result.class_vectors, lambda: result.embed(x)):
        with pytest.raises(so.UserError, match="scores classes by buckets"):
            ask()
    logits = result.encoder(torch.from_numpy(x))
    assert logits.shape == (3, 5, 8)
    assert not logits.is_meta


def test_metrics_by_hand_agree_for_label_sets_too() -> None:
    data = tagged()
    result = so.run(tagged_config({"name": "fedaws"}, rounds=10), data=data)
    count = len(data.test)
    x = data.test.inputs["x"].take(torch.arange(count)).numpy()
    ranking = result.predictor.scores(x).argmax(1)
    right = [int(best) in data.test.labels[i].tolist() for i, best in enumerate(ranking)]
    assert 100 * sum(right) / count == pytest.approx(result.metrics["P@1"], abs=1e-6)
