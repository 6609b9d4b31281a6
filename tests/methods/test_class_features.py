"""Class rows from features of the classes: fitted as the slow twin says, kept within reach, and of use
to classes that nobody has trained on."""

from pathlib import Path

import numpy as np
import pytest
import torch
from torch.nn import functional as F

import spreadout as so
from spreadout.core.errors import UserError
from spreadout.methods.class_features import features_of, of_names, read_features
from spreadout.objectives.class_tower import ClassFeatures, fit, realised


def _features(dense: np.ndarray) -> ClassFeatures:
    rows = [np.flatnonzero(row) for row in dense]
    return ClassFeatures.of(rows, [row[at] for row, at in zip(dense, rows, strict=True)], dense.shape[1])


def _dense(features: ClassFeatures) -> torch.Tensor:
    return features.times(torch.eye(features.width))


def test_the_tower_is_the_ridge_regression_of_the_rows() -> None:
    draw = np.random.default_rng(0)
    features = _features(draw.random((40, 12)) * (draw.random((40, 12)) < 0.4))
    f = _dense(features)
    assert torch.allclose(features.transposed().times(torch.eye(40)), f.T)
    rows = F.normalize(torch.randn(40, 5))
    trust = torch.rand(40)
    exact = torch.linalg.solve(
        f.T @ (trust[:, None] * f) + 0.3 * torch.eye(12), f.T @ (trust[:, None] * rows)
    )
    found = fit(features, rows, trust, torch.zeros(12, 5), ridge=0.3, steps=30)
    assert torch.allclose(found, exact, atol=1e-4)
    # From where it was a few steps are enough, and none of them leads away.
    nearly = fit(features, rows, trust, torch.zeros(12, 5), ridge=0.3, steps=3)
    more = fit(features, rows, trust, nearly, ridge=0.3, steps=3)
    assert (more - exact).norm() < (nearly - exact).norm() < exact.norm()


def test_a_row_is_what_its_features_and_a_gated_free_vector_make() -> None:
    draw = torch.Generator().manual_seed(0)
    rows = F.normalize(torch.randn(50, 6, generator=draw))
    says = F.normalize(torch.randn(50, 6, generator=draw))
    gate = torch.linspace(0, 1.5, 50)
    found = realised(rows, 3 * says, gate)
    assert torch.allclose(found.norm(dim=1), torch.ones(50), atol=1e-5)
    assert torch.allclose(found[0], says[0], atol=1e-6)  # no example: its features alone
    assert torch.equal(found[gate >= 1], rows[gate >= 1])
    cosine = (found * says).sum(1)
    for c in range(50):  # the slow twin: the nearest of many rows normalise(t + g u) with |u| ≤ 1
        within = float(cosine[c]) >= float((1 - gate[c].clamp_max(1) ** 2).sqrt()) - 1e-5
        assert within or gate[c] >= 1
        u = torch.randn(2000, 6, generator=draw)
        u = u / u.norm(dim=1, keepdim=True).clamp_min(1)
        tried = F.normalize(says[c] + gate[c] * u)
        assert float((tried @ rows[c]).max()) <= float(found[c] @ rows[c]) + 1e-5 or gate[c] >= 1
    silent = realised(rows, torch.zeros(50, 6), torch.zeros(50))
    assert torch.equal(silent, rows)  # features that say nothing bind nobody


def test_a_row_opposite_to_its_features_keeps_its_length() -> None:
    east = torch.tensor([[1.0, 0.0]])
    assert realised(-east, east, torch.tensor([0.6])).norm() == pytest.approx(1)


def test_names_share_words_and_pieces() -> None:
    found = _dense(of_names(["TAG_clustering", "TAG_clusters", "TAG_music", "TAG_musical"]))
    near = found @ found.T
    assert near[0, 1] > 0.2
    assert near[2, 3] > 0.2
    assert near[0, 2] == 0  # what all share says nothing


def test_features_are_read_and_what_does_not_fit_is_refused(tmp_path: Path) -> None:
    dense = np.array([[3.0, 4.0], [0, 0], [0, 2]])
    np.save(tmp_path / "a.npy", dense)
    expected = torch.tensor([[0.6, 0.8], [0, 0], [0, 1]])
    assert torch.allclose(_dense(read_features(tmp_path / "a.npy", 3)), expected)
    np.savez(tmp_path / "b.npz", indices=[0, 1, 1], indptr=[0, 2, 2, 3], data=[3.0, 4, 2], shape=[3, 2])
    assert torch.allclose(_dense(read_features(tmp_path / "b.npz", 3)), expected)
    with pytest.raises(UserError, match="has 3 rows; there are 4 classes"):
        read_features(tmp_path / "a.npy", 4)
    with pytest.raises(UserError, match="cannot be read"):
        read_features(tmp_path / "none.npy", 4)
    with pytest.raises(UserError, match="no names of its classes; give a file"):
        features_of("names", [], 4)
    np.save(tmp_path / "c.npy", dense * np.nan)
    with pytest.raises(UserError, match="not finite"):
        read_features(tmp_path / "c.npy", 3)
    (tmp_path / "d.npy").touch()
    (tmp_path / "e.npz").write_bytes(b"PK\x03\x04 torn")
    for torn in ("d.npy", "e.npz"):
        with pytest.raises(UserError, match=f"{torn}'?: cannot be read"):
            read_features(tmp_path / torn, 3)
    np.save(tmp_path / "f.npy", np.array([["a", "b"]] * 3))
    with pytest.raises(UserError, match="values that are no numbers"):
        read_features(tmp_path / "f.npy", 3)
    np.savez(tmp_path / "g.npz", indices=[0, 5], indptr=[0, 1, 1, 2], data=[3.0, 4], shape=[3, 2])
    with pytest.raises(UserError, match="names features beyond the 2"):
        read_features(tmp_path / "g.npz", 3)
    with pytest.raises(so.UserError, match="borrow"):
        so.Experiment.of({"method": {"name": "fedaws", "borrow": 3}})
    method = {"name": "fedaws", "prior": 0, "class_features": str(tmp_path / "a.npy")}
    private = so.Experiment.of({"rounds": 1, "method": method, "privacy": {"clip": 1.0, "noise": 1.0}})
    with pytest.raises(so.UserError, match="class_features: clients would send their label counts"):
        so.run(private)


A, B, UNSEEN = 6, 5, (3, 8, 17, 22, 29)  # kinds of classes; a class is one of each


def _toy() -> so.Splits:
    """Classes made of two parts, and examples that show both; of some classes none is trained on."""
    draw = np.random.default_rng(1)
    parts = draw.normal(size=(A + B, 20))

    def made(each: int, classes: list[int]) -> tuple[np.ndarray, np.ndarray]:
        y = np.repeat(classes, each)
        x = parts[y % A] + parts[A + y // A] + 0.5 * draw.normal(size=(len(y), 20))
        return x.astype(np.float32), y

    every = list(range(A * B))
    x, y = made(20, [c for c in every if c not in UNSEEN])
    train = so.FederatedDataset.from_arrays(x, y, y, classes=A * B)
    x, y = made(10, every)
    return so.Splits("toy", train, so.Examples.from_arrays(x, y))


def _config(tmp_path: Path, rounds: int = 60, **method: object) -> so.Experiment:
    kinds = np.zeros((A * B, A + B))
    kinds[np.arange(A * B), np.arange(A * B) % A] = 1
    kinds[np.arange(A * B), A + np.arange(A * B) // A] = 1
    np.save(tmp_path / "kinds.npy", kinds)
    config = {
        "rounds": rounds,
        "chosen": [],
        "model": {"hidden": [], "dim": 16},
        "method": {"name": "fedaws", "prior": 0.0, **method},
        "clients": {"lr": 0.3, "row_lr": 0.3, "local_steps": 2, "batch": "full"},
        "eval": {"every": rounds, "metrics": ["P@1"]},
    }
    return so.Experiment.of(config)


def _found(result: so.Result, data: so.Splits, k: int = 3) -> float:
    """How often an example of an unseen class has it among its first k, of all classes."""
    x, y = data.test.inputs["x"].take(torch.arange(len(data.test))), data.test.labels.values
    first = result.predictor.scores(x.numpy()).topk(k).indices
    unseen = torch.isin(y, torch.tensor(UNSEEN))
    return float((first[unseen] == y[unseen][:, None]).any(1).float().mean())


def test_unseen_classes_are_ranked_by_what_their_features_say(tmp_path: Path) -> None:
    data = _toy()
    without = so.run(_config(tmp_path), data=data)
    kin = so.run(_config(tmp_path, class_features=str(tmp_path / "kinds.npy"), borrow=5), data=data)
    chance = 3 / (A * B)
    assert _found(without, data) < 2 * chance
    assert _found(kin, data) > 5 * chance
    table = kin.state.tables["classes"]
    assert torch.allclose(table.norm(dim=1), torch.ones(A * B), atol=1e-5)
    assert torch.allclose(kin.predictor.class_vectors, table)  # what is exported is what was realised


def test_a_resumed_run_is_the_run(tmp_path: Path) -> None:
    data = _toy()
    kinds = {"class_features": str(tmp_path / "kinds.npy"), "borrow": 5}
    whole = so.run(_config(tmp_path, 6, **kinds), data=data)
    with pytest.raises(so.Interrupted):
        so.run(_config(tmp_path, 6, **kinds), data=data, out=tmp_path / "run", stop=lambda: True)
    (tmp_path / "kinds.npy").unlink()  # the checkpoint has the features
    resumed = so.resume(tmp_path / "run", data=data)
    assert torch.equal(resumed.state.tables["classes"], whole.state.tables["classes"])
