"""Columns and what clients hold: every gather equals the obvious loop."""

from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import spreadout as so
from spreadout.core.ragged import Ragged
from spreadout.data import dataset as federated
from spreadout.data.columns import Column, Dense, Lists, Sparse
from spreadout.data.dataset import FederatedDataset
from spreadout.data.io import building, stored
from spreadout.federated.batches import cohort_batches, places_in, row_ids
from spreadout.federated.schedule import Schedule, plan

LISTS = [[7, 3], [], [3, 9, 1], [5]]
DENSE_ROWS = [[0.0, 2.0, 0.0], [0.0, 0.0, 0.0], [1.5, 0.0, -3.0], [0.0, 0.0, 4.0]]


def sparse(index: torch.Tensor | None = None) -> Sparse:
    ids, weights = torch.tensor([1, 0, 2, 2], dtype=torch.int32), torch.tensor([2, 1.5, -3, 4])
    return Sparse(ids, weights, torch.tensor([0, 1, 1, 3, 4]), width=3, index=index)


COLUMNS: list[tuple[Column, list[object]]] = [
    (Dense(torch.arange(8.0).view(4, 2)), [[0, 1], [2, 3], [4, 5], [6, 7]]),
    (
        Dense(torch.tensor([[0], [255], [51], [102]], dtype=torch.uint8), scale=2 / 255, shift=-1),
        [[-1], [1], [-0.6], [-0.2]],
    ),
    (
        Lists.of(Ragged.from_lists(LISTS)),
        [[7, 3, -1], [-1, -1, -1], [3, 9, 1], [5, -1, -1]],
    ),
    (
        Lists.of(Ragged.from_lists(LISTS), pad=0, width=4),
        [[7, 3, 0, 0], [0, 0, 0, 0], [3, 9, 1, 0], [5, 0, 0, 0]],
    ),
    (sparse(), DENSE_ROWS),
]


def test_sparse_rows_are_joined_as_they_are_seen() -> None:
    parts = [sparse(), sparse(torch.tensor([3, 3, 0])), sparse(torch.empty(0, dtype=torch.int64))]
    found = Sparse.joined(parts)
    assert len(found) == 7
    expected = [DENSE_ROWS[i] for i in (0, 1, 2, 3, 3, 3, 0)]
    assert found.take(torch.arange(7)).tolist() == expected
    with pytest.raises(ValueError, match="3 and 4 features"):
        Sparse.joined([sparse(), replace(sparse(), width=4)])


@pytest.mark.parametrize(("column", "rows"), COLUMNS, ids=lambda c: getattr(c, "kind", ""))
def test_a_gather_is_the_rows_one_by_one(column: Column, rows: list[object]) -> None:
    at = torch.tensor([[2, 0], [3, 2]])
    expected = torch.tensor([[rows[2], rows[0]], [rows[3], rows[2]]])
    torch.testing.assert_close(column.take(at), expected.to(column.take(at).dtype))
    order = torch.tensor([3, 3, 2, 0])
    chosen = column.select(order).select(torch.tensor([2, 1]))  # examples 2 and 3
    assert len(chosen) == 2
    for some in (chosen, chosen.compact()):
        assert torch.equal(some.take(torch.tensor([1, 0])), column.take(torch.tensor([3, 2])))
    assert column.select(order).compact().index is None


def test_a_compact_column_holds_nothing_of_others() -> None:
    own = Lists.of(Ragged.from_lists(LISTS)).select(torch.tensor([3])).compact()
    assert own.values.tolist() == [5]
    mine = sparse().select(torch.tensor([0])).compact()
    assert (mine.ids.tolist(), mine.weights.tolist()) == ([1], [2.0])
    assert Dense(torch.eye(3)).select(torch.tensor([1])).compact().values.tolist() == [[0, 1, 0]]


@given(
    st.lists(st.lists(st.integers(0, 50), max_size=6), min_size=1, max_size=8),
    st.lists(st.integers(0, 7), min_size=1, max_size=9),
)
def test_lists_gather_like_a_loop(lists: list[list[int]], at: list[int]) -> None:
    places = [i % len(lists) for i in at]
    found = Lists.of(Ragged.from_lists(lists)).take(torch.tensor(places))
    width = max(len(lists[i]) for i in places)
    assert found.tolist() == [lists[i] + [-1] * (width - len(lists[i])) for i in places]


@given(st.data())
def test_a_compact_column_of_lists_keeps_what_its_lists_cover_once(data: st.DataObject) -> None:
    n = data.draw(st.integers(0, 12))
    bounds = data.draw(st.lists(st.tuples(st.integers(0, n), st.integers(0, n)), min_size=1, max_size=6))
    first, end = (torch.tensor(side) for side in zip(*(sorted(b) for b in bounds), strict=True))
    index = torch.tensor(
        data.draw(st.lists(st.integers(0, len(bounds) - 1), max_size=6)), dtype=torch.int64
    )
    whole = Lists(torch.arange(n) * 3, first, end - first, index=index)
    own = whole.compact()
    assert torch.equal(own.ragged().values, whole.ragged().values)
    assert torch.equal(own.ragged().offsets, whole.ragged().offsets)
    assert sorted(own.values.tolist()) == sorted(set(whole.ragged().values.tolist()))


def test_overlapping_windows_share_one_timeline() -> None:
    timeline = torch.tensor([10, 11, 12, 13], dtype=torch.int32)
    windows = Lists(timeline, torch.tensor([0, 0, 1]), torch.tensor([1, 2, 2]), pad=0, width=2)
    assert windows.take(torch.arange(3)).tolist() == [[10, 0], [10, 11], [11, 12]]
    assert windows.nbytes == 4 * 4 + 2 * 3 * 8


def shop() -> FederatedDataset:
    """Three clients with histories, several labels an example, and sparse inputs; client 1 is empty."""
    columns = {
        "history": Lists.of(Ragged.from_lists(LISTS), pad=0),
        "x": sparse(),
        "y": Lists.of(Ragged.from_lists([[2], [2, 4], [], [8]])),
    }
    row_columns = {"history": "items", "y": "items"}
    return FederatedDataset(columns, torch.tensor([0, 2, 2, 4]), classes=10, row_columns=row_columns)


def test_a_view_has_one_clients_examples_and_no_others() -> None:
    data = shop()
    view = data.view(2)
    assert (view.clients, view.examples, view.number_of(torch.tensor([0])).tolist()) == (1, 2, [2])
    assert view.columns["history"].take(torch.arange(2)).tolist() == [[3, 9, 1], [5, 0, 0]]
    everything = torch.cat(
        [t.flatten().float() for c in view.columns.values() for t in c.tensors().values()]
    )
    assert 7 not in everything  # an item only client 0 knows
    assert data.view(1).examples == 0


def test_rows_of_some_clients_are_those_their_columns_name(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = torch.tensor([2, 0])
    remembered = shop().rows_of(asked)["items"]
    monkeypatch.setattr(federated, "REMEMBERED", 0)
    monkeypatch.setattr(federated, "AT_ONCE", 3)  # runs of few clients
    worked_out = shop().rows_of(asked)["items"]
    for rows in (remembered, worked_out):
        assert [rows[i].tolist() for i in range(2)] == [[1, 3, 5, 8, 9], [2, 3, 4, 7]]


def test_a_client_with_more_ids_than_are_held_at_once_is_a_run_of_its_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(federated, "AT_ONCE", 3)
    data = FederatedDataset.from_arrays(np.zeros((12, 1)), [*range(11), 4], [0] * 11 + [1])
    rows = data.rows_of(torch.arange(2))["classes"]
    assert [rows[i].tolist() for i in range(2)] == [[*range(11)], [4]]


def test_batches_of_a_part_equal_those_of_the_whole() -> None:
    data = shop()
    schedule = Schedule(steps=2, batch=1)
    both = torch.tensor([0, 2])
    part = data.part(both)

    def batches(of: FederatedDataset, clients: torch.Tensor) -> dict[str, torch.Tensor]:
        steps = plan(schedule, of.sizes[clients.numpy()], of.number_of(clients), seed=3, round=5)
        ids = row_ids(of.rows_of(clients), torch.device("cpu"))
        return cohort_batches(of, clients, steps, ids, torch.device("cpu"))

    for one, other in zip(
        batches(data, both).values(), batches(part, torch.arange(2)).values(), strict=True
    ):
        assert one.shape == other.shape
        for step in range(2):  # sparse features become dense step by step
            assert torch.equal(one[:, step], other[:, step])
            assert torch.equal(one[1][step], other[:, step][1])


def test_padding_has_no_place_among_a_clients_rows() -> None:
    rows = torch.tensor([[0, 4, 9, -1]])
    ids = torch.tensor([[[[9, 4, -1]]]])
    assert places_in(rows, ids, torch.ones(1, 1, 1), ids >= 0).tolist() == [[[[2, 1, -1]]]]
    with pytest.raises(ValueError, match="leaves out rows"):
        places_in(rows, torch.tensor([[[[5]]]]), torch.ones(1, 1, 1))


def test_saved_data_is_opened_as_it_was_and_read_where_it_is_touched(tmp_path: Path) -> None:
    data = shop()
    stored.save(data, tmp_path / "shop")
    again = stored.open_federated(tmp_path / "shop")
    assert again.fingerprint == data.fingerprint
    assert again.row_columns == data.row_columns
    assert again.columns["history"].options() == {"pad": 0}
    with pytest.raises(so.UserError, match="exists already"):
        stored.save(data, tmp_path / "shop")
    (tmp_path / "shop" / "offsets.npy").write_bytes(b"")
    with pytest.raises(so.UserError, match="no whole federated data set"):
        stored.open_federated(tmp_path / "shop")


def test_an_array_file_grows_and_is_plain_numpy(tmp_path: Path) -> None:
    file = stored.ArrayFile(tmp_path / "a.npy", np.dtype(np.int32), (2,))
    parts = [np.arange(4).reshape(2, 2), np.arange(0).reshape(0, 2), np.arange(6).reshape(3, 2)]
    for part in parts:
        file.append(part)
    file.close()
    assert np.array_equal(np.load(tmp_path / "a.npy"), np.concatenate(parts))


def test_a_stream_is_sorted_to_its_clients_in_its_own_order(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    client = rng.integers(0, 7, 100)
    y = rng.integers(0, 20, 100)
    lists = [rng.integers(0, 50, rng.integers(0, 4)).tolist() for _ in range(100)]

    def stream() -> list[building.Chunk]:
        cuts = [0, 13, 13, 60, 100]
        return [
            building.Chunk(
                client[a:b],
                {
                    "x": np.arange(a, b, dtype=np.float32)[:, None],
                    "y": y[a:b],
                    "h": Ragged.from_lists(lists[a:b]),
                },
            )
            for a, b in pairwise(cuts)
        ]

    data = building.build(tmp_path / "big", stream, clients=8, classes=20)
    order = np.argsort(client, kind="stable")
    every = torch.arange(100)
    assert data.sizes.tolist() == np.bincount(client, minlength=8).tolist()
    assert data.columns["x"].take(every)[:, 0].tolist() == order.tolist()
    assert data.columns["y"].take(every).tolist() == y[order].tolist()
    column = data.columns["h"]
    assert isinstance(column, Lists)
    held = column.ragged()
    assert [held[i].tolist() for i in range(100)] == [lists[i] for i in order]


@pytest.mark.parametrize(
    ("chunk", "complaint"),
    [
        (
            building.Chunk(np.array([0, 9]), {"y": np.array([0, 0])}),
            "chunk 0 names client 9, but clients = 3",
        ),
        (
            building.Chunk(np.array([0, 1]), {"y": np.array([0])}),
            "chunk 0: column y has 1 examples, there are 2 clients",
        ),
    ],
)
def test_a_bad_stream_leaves_nothing_behind(
    tmp_path: Path, chunk: building.Chunk, complaint: str
) -> None:
    with pytest.raises(so.UserError, match=complaint):
        building.build(tmp_path / "big", lambda: [chunk], clients=3, classes=2)
    assert list(tmp_path.iterdir()) == []


def test_a_feature_named_twice_counts_twice() -> None:
    twice = Sparse(torch.tensor([1, 1]), torch.tensor([2.0, 3.0]), torch.tensor([0, 2]), width=3)
    assert twice.take(torch.tensor(0)).tolist() == [0, 5, 0]


def test_padding_is_what_lies_beyond_a_list_not_a_value() -> None:
    columns = {"y": Lists.of(Ragged.from_lists([[0, 2], [0]]), pad=0)}
    data = FederatedDataset(columns, torch.tensor([0, 2]), classes=3)
    steps = plan(Schedule(steps=1, batch=None), data.sizes, np.array([0]), seed=0, round=0)
    only, cpu = torch.tensor([0]), torch.device("cpu")
    batches = cohort_batches(data, only, steps, row_ids(data.rows_of(only), cpu), cpu)
    assert batches["y"].tolist() == [[[[0, 1], [0, -1]]]]


def test_a_fingerprint_of_seventeen_million_examples() -> None:
    n = (1 << 24) + 4  # float32 cannot count so far
    columns = {
        "x": Dense(torch.zeros(1, 1).expand(n, 1)),
        "y": Dense(torch.zeros(1, dtype=torch.uint8).expand(n)),
    }
    data = FederatedDataset(columns, torch.tensor([0, n]), classes=1)
    other = FederatedDataset(columns, torch.tensor([0, 5, n]), classes=1)
    assert data.fingerprint != other.fingerprint


def test_every_kind_of_column_can_be_streamed_with_its_options(tmp_path: Path) -> None:
    data = shop()
    pixels = Dense(torch.arange(4, dtype=torch.uint8)[:, None], scale=0.5, shift=1.0)
    columns = {**data.columns, "picture": pixels}
    order = torch.tensor([3, 0, 2, 1])

    def stream() -> list[building.Chunk]:
        client = np.array([0, 0, 2, 2])
        return [
            building.Chunk(client[some.numpy()], {n: c.select(some) for n, c in columns.items()})
            for some in (order[:1], order[1:])
        ]

    built = building.build(tmp_path / "d", stream, clients=3, classes=10, row_columns=data.row_columns)
    expected = torch.tensor([0, 1, 3, 2])  # each client's own, in the stream's order
    for name, column in columns.items():
        assert torch.equal(built.columns[name].take(torch.arange(4)), column.take(expected)), name
        assert built.columns[name].options() == column.options()


@pytest.mark.parametrize(
    ("chunks", "complaint"),
    [
        ([], "the stream has no chunks"),
        ([{"y": np.array([1])}, {"z": np.array([1])}], "chunk 1: has columns .* the first chunk"),
        ([{"y": np.array([1], np.uint8)}, {"y": np.array([300])}], "chunk 1: has columns"),
        ([{"a.b": np.array([1])}], "column 'a.b': name it with letters"),
    ],
)
def test_a_stream_that_changes_its_mind_is_refused(
    tmp_path: Path, chunks: list[dict[str, np.ndarray]], complaint: str
) -> None:
    stream = [building.Chunk(np.array([0]), columns) for columns in chunks]
    with pytest.raises(so.UserError, match=complaint):
        building.build(tmp_path / "d", lambda: stream, clients=1, classes=2)
    with pytest.raises(so.UserError, match="names client -1"):
        building.build(
            tmp_path / "d",
            lambda: [building.Chunk(np.array([-1]), {"y": np.array([0])})],
            clients=1,
            classes=2,
        )


def test_indicators_do_not_make_words_of_numbers() -> None:
    from spreadout.data.moments import are_numbers

    rng = torch.Generator().manual_seed(0)
    numbers = torch.randn(200, 3, generator=rng)
    towns = torch.eye(60)[torch.randint(60, (200,), generator=rng)]
    words = (torch.rand(200, 300, generator=rng) < 0.03) * torch.randint(1, 4, (200, 300), generator=rng)
    assert are_numbers(Dense(torch.cat([numbers, towns], 1)))
    assert not are_numbers(Dense(towns))
    assert not are_numbers(Dense(words.float()))
