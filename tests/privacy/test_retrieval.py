"""Private retrieval of rows from two servers: the right rows, and nothing to see for one server."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chi2_contingency

pytest.importorskip("cryptography")

import spreadout as so
from spreadout.privacy import retrieval
from spreadout.privacy.keystream import KeyStream
from spreadout.privacy.retrieval import Layout, RowServer, queries, retrieved
from toys import several_classes


def fetched(table: np.ndarray, rows: np.ndarray, layout: Layout) -> np.ndarray:
    servers = RowServer(table, layout), RowServer(table, layout)
    asked = queries(layout, rows, KeyStream())
    answers = (server.answers(one) for server, one in zip(servers, asked, strict=True))
    found = retrieved(layout, rows, *answers)
    return np.ascontiguousarray(found).view(table.dtype).reshape(len(rows), *table.shape[1:])


@settings(max_examples=30, deadline=None)
@given(
    rows=st.integers(1, 90),
    width=st.integers(1, 9),
    group=st.integers(1, 12),
    seed=st.integers(0, 99),
    piece=st.sampled_from([1, 700, 1 << 19]),
)
def test_what_comes_is_what_a_plain_gather_gives(
    rows: int, width: int, group: int, seed: int, piece: int
) -> None:
    """piece: bytes of the table that are gone through at a time."""
    rng = np.random.default_rng(seed)
    table = rng.normal(size=(rows, width)).astype(np.float32)
    table[0] = [np.nan] * width  # bytes are bytes
    wanted = rng.integers(0, rows, 5)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(retrieval, "PIECE", piece)
        found = fetched(table, wanted, Layout(rows, 4 * width, group))
    np.testing.assert_array_equal(found.view(np.uint32), table[wanted].view(np.uint32))


def test_a_servers_query_is_every_set_alike_whatever_row_is_wanted() -> None:
    """Exactly: over all random words, each server sees each of the 2^5 sets of blocks equally often."""
    layout = Layout(rows=10, row_bytes=4, group=2)
    assert layout.blocks == 5
    for row in range(10):
        seen: tuple[list[int], list[int]] = ([], [])
        for word in range(32):
            words = lambda count, word=word: np.full(count, word, np.uint64)  # noqa: E731
            for views, asked in zip(seen, queries(layout, np.array([row]), words), strict=True):
                views.append(int(asked[0, 0]))
        assert sorted(seen[0]) == sorted(seen[1]) == list(range(32))


def test_one_servers_queries_of_two_rows_cannot_be_told_apart() -> None:
    """The same for real words and a larger table: counts of bits by block, for two rows."""
    layout = Layout(rows=64, row_bytes=4, group=1)
    for server in (0, 1):
        counts = []
        for row in (3, 40):
            asked = queries(layout, np.full(4000, row), KeyStream())[server]
            counts.append(np.unpackbits(asked, axis=1, bitorder="little").sum(0))
        assert chi2_contingency(np.array(counts)).pvalue > 1e-6
        assert all(abs(one / 4000 - 0.5).max() < 0.05 for one in counts)


def test_no_query_comes_twice_and_both_together_name_the_row() -> None:
    """Which is why the two servers must not talk to each other."""
    layout = Layout(rows=600, row_bytes=4, group=1)
    one, other = queries(layout, np.array([5, 5, 77]), KeyStream())
    assert not np.array_equal(one[0], one[1])
    differ = np.unpackbits(one ^ other, axis=1, bitorder="little")
    assert [np.flatnonzero(bits).tolist() for bits in differ] == [[5], [5], [77]]


def test_queries_and_answers_grow_with_the_root_of_the_table() -> None:
    small, large = Layout.balanced(10_000, 256), Layout.balanced(1_000_000, 256)
    for layout in (small, large):
        both = layout.query_bytes + layout.answer_bytes
        for group in (layout.group - 1, layout.group + 1):
            if group:
                other = Layout(layout.rows, 256, group)
                assert both <= 1.05 * (other.query_bytes + other.answer_bytes)
    grown = (large.query_bytes + large.answer_bytes) / (small.query_bytes + small.answer_bytes)
    assert grown == pytest.approx(10, rel=0.1)


@pytest.mark.parametrize("rows", [np.array([-1]), np.array([10])])
def test_rows_that_there_are_not_are_refused(rows: np.ndarray) -> None:
    with pytest.raises(ValueError, match="beyond"):
        queries(Layout(10, 4, 1), rows, KeyStream())


def test_queries_and_answers_of_another_layout_are_refused() -> None:
    layout, table = Layout(10, 4, 1), np.zeros((10, 1), np.float32)
    with pytest.raises(ValueError, match="a table of"):
        RowServer(table[:9], layout)
    with pytest.raises(ValueError, match="another layout"):
        RowServer(table, layout).answers(np.zeros((1, 9), np.uint8))
    with pytest.raises(ValueError, match="another layout"):
        retrieved(layout, np.array([1]), np.zeros((1, 4), np.uint8), np.zeros((2, 4), np.uint8))


BASE = {
    "rounds": 2,
    "chosen": [],
    "model": {"hidden": [5], "dim": 4},
    "method": {"name": "fedss", "negatives": 2, "merge": "sum", "prior": 0},
    "clients": {"batch": 3, "lr": 0.3, "local_steps": 3},
    "privacy": {"model": "distributed", "clip": 0.5, "noise": 0},
    "eval": {"metrics": ["P@1"], "references": False},
}


def experiment(executor: str, *changes: str) -> so.Experiment:
    return so.Experiment.of(BASE, overrides=[f"run.executor={executor}", *changes])


def test_a_run_with_private_retrieval_is_the_plain_run_and_costs_what_it_costs() -> None:
    plain = so.run(experiment("sequential"), data=several_classes())
    hidden = so.run(experiment("private-retrieval"), data=several_classes())
    torch.testing.assert_close(hidden.state.dense, plain.state.dense, rtol=0, atol=0)
    torch.testing.assert_close(hidden.state.tables, plain.state.tables, rtol=0, atol=1e-7)
    data = several_classes().train
    layout = Layout.balanced(data.classes, 16)
    own = int(data.rows_of(torch.arange(data.clients))["classes"].lengths.sum())
    wanted = 2 * (own + 2 * data.clients)  # two rounds, two negatives each
    moved, visits = hidden.state.traffic, 2 * data.clients
    assert moved.rows_down == 2 * wanted * layout.answer_bytes
    assert moved.requests_up == 2 * wanted * layout.query_bytes
    assert moved.rows_up == visits * data.classes * 4 * 4
    assert moved.dense_down == plain.state.traffic.dense_down


def test_noise_is_on_every_row_whoever_wants_it() -> None:
    """Or the rows that move would be those that were asked for."""
    quiet = experiment("private-retrieval", "clients.per_round=1", "rounds=1", "privacy.noise=5")
    start = so.run(experiment("sequential", "clients.lr=1e-30", "rounds=1"), data=several_classes())
    moved = so.run(quiet, data=several_classes()).state.tables["classes"] - start.state.tables["classes"]
    assert (moved.norm(dim=1) > 0).all()


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (["privacy.model=local"], "would name the rows"),
        (["method.merge=mean"], "to divide by"),
        (["method.name=fedaws", "method.negatives=0"], 'method.name = "fedss"'),
    ],
)
def test_what_would_name_rows_after_all_is_refused(changes: list[str], said: str) -> None:
    with pytest.raises(so.UserError, match=said):
        so.run(experiment("private-retrieval", *changes), data=several_classes())


def test_evidence_says_which_rows_are_not_seen(tmp_path: Path) -> None:
    out = tmp_path / "run"
    logged = experiment("private-retrieval", "privacy.noise=2", "run.log_requests=true")
    so.run(logged, data=several_classes(), out=out)
    assert not (out / "requests.jsonl").exists() or not (out / "requests.jsonl").read_text()
    found = json.loads((out / "privacy.json").read_text())
    told = found["channels"]["rows"]
    assert told["status"] == "protected"
    assert "two servers" in told["what"]
    # How many queries come tells how many classes are a client's own.
    assert found["channels"]["number of rows"]["status"] == "disclosed"
    assert "requests equally many rows" in found["adjacency"]
    open_still = json.loads((out / "summary.json").read_text())["privacy"]["not_protected"]
    assert "how many rows are asked for" in open_still
    assert "rows asked for" not in open_still
