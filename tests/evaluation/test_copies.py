"""Rows that are in both the training and the scored part are counted, whatever way they are stored."""

from typing import Any

import numpy as np
import pytest
import scipy.sparse
import torch

import spreadout as so
from spreadout.data.columns import Dense, Sparse
from spreadout.evaluation.config import EvalConfig
from spreadout.evaluation.references import copies
from spreadout.evaluation.references.copies import Copies, copies_in
from spreadout.runs import diagnosis


def stored(x: np.ndarray, kind: str) -> so.Dense | so.Sparse:
    if kind == "bytes":
        return Dense(
            torch.from_numpy(x.astype(np.uint8)).view(len(x), 1, 5, 6), scale=2 / 255, shift=-1.0
        )
    if kind == "dense":
        return Dense(torch.from_numpy(x.astype(np.float32)))
    rows = scipy.sparse.csr_matrix(x.astype(np.float32))
    ids, weights, offsets = (torch.from_numpy(part) for part in (rows.indices, rows.data, rows.indptr))
    return Sparse(ids, weights, offsets.long(), x.shape[1])


@pytest.mark.parametrize("kind", ["bytes", "dense", "sparse"])
@pytest.mark.parametrize("at_once", [1 << 22, 64])
def test_they_are_those_that_a_plain_loop_finds(
    kind: str, at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(copies, "AT_ONCE", at_once)
    rng = np.random.default_rng(0)
    x = rng.integers(0, 9, (300, 30)) * (rng.random((300, 30)) < 0.3)
    x[250:] = x[rng.integers(0, 300, 50)]
    train, test = x[:200], x[200:]
    known = {tuple(row) for row in train.tolist()}
    expected = sum(tuple(row) in known for row in test.tolist())
    assert 20 < expected < 50
    assert copies_in({"x": stored(train, kind)}, {"x": stored(test, kind)}) == Copies(expected, 100)
    # Examples that share their rows, in another order.
    some = torch.from_numpy(rng.permutation(100)[:60])
    chosen = {"x": stored(test, kind).select(some)}
    expected = sum(tuple(row) in known for row in test[some.numpy()].tolist())
    assert copies_in({"x": stored(train, kind)}, chosen) == Copies(expected, 60)


def test_a_sparse_row_is_the_same_dense_one_and_0_is_minus_0() -> None:
    x = np.eye(30)[np.arange(30)] * 2.5
    assert copies_in({"x": stored(x, "dense")}, {"x": stored(x[:9], "sparse")}) == Copies(9, 9)
    assert (
        copies_in({"x": stored(x - 0.0, "dense")}, {"x": stored(np.where(x, x, -0.0), "dense")}).found
        == 30
    )
    assert copies_in({"x": stored(x, "dense")}, {"x": stored(x[:, ::-1][:9] + 1, "dense")}).found == 0


def test_features_of_few_values_are_no_leak_and_what_is_large_is_left(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    x = (np.arange(400) % 8)[:, None].astype(float)
    assert copies_in({"x": stored(x[:300], "dense")}, {"x": stored(x[300:], "dense")}) == Copies(0, 100)
    doubled = np.tile(np.arange(200.0), 2)[:, None]  # every row twice is one
    parts = [{"x": stored(part, "dense")} for part in (doubled[:300], doubled[300:])]
    assert copies_in(*parts) == Copies(100, 100)
    monkeypatch.setattr(copies, "MOST", 399)
    assert copies_in(*parts) == Copies()
    history = {"history": so.Lists.of(so.Ragged.from_lists([[1, 2]] * 20))}
    assert copies_in(history, history) == Copies()


def test_what_is_said_and_from_how_many_on() -> None:
    found = diagnosis.leaked(EvalConfig(), Copies(1234, 10_000))
    assert found is not None
    assert found.sign == (
        "12 % of the test rows are also in the training part (1,234 of 10,000): scores may be too high"
    )
    told = [diagnosis.leaked(EvalConfig(), Copies(*of)) for of in ((9, 20), (10, 20), (99, 10_000))]
    assert [one is not None for one in told] == [False, True, False]
    assert diagnosis.leaked(EvalConfig(), Copies(100, 10_000)) is not None


def parts(leak: int) -> so.Splits:
    """Four classes; so many of the 100 test rows are training rows."""
    rng = np.random.default_rng(2)
    y = np.arange(300) % 4
    x = (np.eye(4, 6)[y] + 0.3 * rng.normal(size=(300, 6))).astype(np.float32)
    x[200 : 200 + leak] = x[:leak]
    train = so.FederatedDataset.from_arrays(x[:200], y[:200])
    return so.Splits("leak", train, so.Examples.from_arrays(x[200:], y[200:]))


@pytest.mark.parametrize(("leak", "told"), [(0, False), (5, False), (40, True)])
def test_a_run_says_so(leak: int, told: bool) -> None:
    config: dict[str, Any] = {"chosen": [], "rounds": 4, "method": {"name": "fedaws"}}
    result = so.run(so.Experiment.of(config), data=parts(leak))
    (first, *_) = [*result.summary["findings"], {"name": "", "sign": ""}]
    assert (first["name"] == "rows in both parts") == told
    assert ("40 % of the test rows are also in the training part (40 of 100)" in first["sign"]) == told
    off = so.run(so.Experiment.of({**config, "eval": {"references": False}}), data=parts(leak))
    assert "rows in both parts" not in [one["name"] for one in off.summary["findings"]]


def test_under_privacy_nobody_looks() -> None:
    config: dict[str, Any] = {
        "chosen": [],
        "rounds": 2,
        "method": {"name": "fedaws"},
        "privacy": {"clip": 1.0, "noise": 1.0},
    }
    result = so.run(so.Experiment.of(config), data=parts(40))
    assert "rows in both parts" not in [one["name"] for one in result.summary["findings"]]


def test_round_numbers_fill_all_bits() -> None:
    """The bits of 0 and 2 end in thirty zeros, and a product would keep these."""
    rng = np.random.default_rng(3)
    x = torch.from_numpy(2.0 * rng.integers(0, 2, (5000, 64))).float()
    factor = torch.from_numpy(rng.integers(0, 2**62, 64)) | 1
    low = copies._digests(Dense(x), factor) & 0xFFFFFFFF
    assert len(torch.unique(low)) > 4990
