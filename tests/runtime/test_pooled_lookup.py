"""Pooled lookups against what they stand for: each client's own rows and feature vectors."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from pydantic import Field

import spreadout as so
from spreadout.core.merging import RowMerge
from spreadout.core.state import ServerState
from spreadout.data.columns import Sparse
from spreadout.data.load import load_data
from spreadout.data.splits import Splits
from spreadout.federated.cohort import draw_cohort
from spreadout.federated.federation import Federation
from spreadout.federated.round import run_round
from spreadout.federated.sampling import sample_clients
from spreadout.methods import FedAwS
from spreadout.models.lookup import Pooling
from spreadout.runs.build import build_federation
from spreadout.runtime.sequential import Sequential
from spreadout.runtime.simulator import executor as simulator
from spreadout.runtime.simulator import segment_sum as bags
from spreadout.runtime.simulator.executor import Simulator
from spreadout.runtime.simulator.pooled_lookup import PooledFeatures
from spreadout.runtime.simulator.prefetch import Prefetcher
from spreadout.runtime.simulator.segment_sum import SegmentSum
from spreadout.runtime.simulator.staging import stage_chunk, stage_round
from toys import tagged, tagged_config

CPU = torch.device("cpu")
MEMORY = 40 * 2**20
STEP = {"per_round": 4, "local_steps": 1, "lr": 0.3, "row_lr": 0.1, "input_lr": 0.7}


def train(experiment: so.Experiment, data: Splits, rounds: int = 3) -> ServerState:
    f = build_federation(experiment, data, CPU)
    state = ServerState(0, *f.model.initial(f.seed, CPU))
    for _ in range(rounds):
        run_round(f, state)
    return state


def assert_same(one: ServerState, other: ServerState) -> None:
    for name, value in one.dense.items():
        torch.testing.assert_close(other.dense[name], value, rtol=1e-4, atol=1e-6)
    for name, table in one.tables.items():
        torch.testing.assert_close(other.tables[name], table, rtol=1e-4, atol=1e-6)
    assert one.traffic == other.traffic


@given(st.lists(st.integers(0, 9), max_size=8), st.integers(1, 3))
def test_bags_are_weighted_sums(lengths: list[int], piece: int) -> None:
    generator = torch.Generator().manual_seed(len(lengths))
    total = sum(lengths)
    rows = torch.randn(5, 3, generator=generator)
    at = torch.randint(0, 5, (total,), generator=generator)
    weights = torch.randn(total, generator=generator)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bags, "PIECE", piece)
        found = SegmentSum.of(at, weights, torch.tensor(lengths, dtype=torch.int64)).sums(rows)
    start = 0
    for one, length in zip(found, lengths, strict=True):
        here = slice(start, start + length)
        torch.testing.assert_close(one, (weights[here, None] * rows[at[here]]).sum(0))
        start += length


class ByRow(FedAwS):
    """Rows of features merged in another way than by their sum."""

    rule: RowMerge = "mean"

    def row_merge(self) -> dict[str, RowMerge]:
        return {**super().row_merge(), "inputs": self.rule}


@pytest.mark.parametrize("rule", ["mean", "weighted-mean", "sum"])
@pytest.mark.parametrize("weighting", ["examples", "uniform"])
def test_rows_of_features_are_merged_as_they_should_be(rule: RowMerge, weighting: str) -> None:
    clients = {**STEP, "batch": 3}
    states = []
    for executor in ("sequential", "simulator"):
        experiment = tagged_config({"name": "fedaws"}, clients=clients, run={"executor": executor})
        method = ByRow(rule=rule, weighting=weighting)  # type: ignore[arg-type]
        f = build_federation(experiment, tagged(), CPU, method=method)
        assert f.rules.rows["inputs"] == rule
        states.append(ServerState(0, *f.model.initial(f.seed, CPU)))
        for _ in range(3):
            run_round(f, states[-1])
    assert_same(*states)


@pytest.mark.parametrize("asks", ["own", "seen"])
@pytest.mark.parametrize("pooling", ["mean", "sqrtn", "sum"])
@pytest.mark.parametrize("merge", ["mean", "weighted-mean", "sum"])
def test_pooled_lookups_equal_copied_rows(
    asks: str, pooling: str, merge: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = {"encoder": "lookup", "width": 8, "hidden": [8], "dim": 6, "init": 0.5, "pooling": pooling}
    method = {"name": "fedaws", "weighting": "examples", "spreadout_form": "hinge", "merge": merge}
    clients = {**STEP, "batch": 3, "request_features": asks}
    data = twice_named(tagged())
    slow = tagged_config(method, model=model, clients=clients, run={"executor": "sequential"})
    reference = train(slow, data)
    calls = []
    true = PooledFeatures.row_sum
    monkeypatch.setattr(PooledFeatures, "row_sum", lambda *a: calls.append(1) or true(*a))
    assert_same(reference, train(tagged_config(method, model=model, clients=clients), data))
    assert len(calls) == 3


def twice_named(data: Splits) -> Splits:
    """The same data with signed weights and one feature of every example named twice."""
    x = data.train.columns["x"]
    assert isinstance(x, Sparse)
    ids, weights, lengths = [], [], []
    for i in range(x.count):
        own = x.ids[x.offsets[i] : x.offsets[i + 1]].tolist()
        ids += [*own, own[0]]
        weights += [0.5 + 0.1 * (i + j) % 3 for j in range(len(own))] + [-0.2]
        lengths.append(len(own) + 1)
    offsets = torch.tensor([0, *torch.tensor(lengths).cumsum(0).tolist()])
    doubled = replace(x, ids=torch.tensor(ids), weights=torch.tensor(weights), offsets=offsets)
    return replace(data, train=replace(data.train, columns={**data.train.columns, "x": doubled}))


def test_a_client_that_breaks_the_sum_is_found_among_copies() -> None:
    data = tagged()
    x = data.train.columns["x"]
    assert isinstance(x, Sparse)
    weights = x.weights.clone()
    stored = int(x.index[0]) if x.index is not None else 0
    weights[x.offsets[stored] : x.offsets[stored + 1]] = float("nan")
    broken = replace(data.train, columns={**data.train.columns, "x": replace(x, weights=weights)})
    data = replace(data, train=broken)
    clients = {**STEP, "per_round": "all", "batch": "full"}
    states = [
        train(tagged_config({"name": "fedaws"}, clients=clients, run={"executor": executor}), data)
        for executor in ("simulator", "sequential")
    ]
    assert_same(states[1], states[0])
    assert states[0].refused == states[1].refused
    assert sum(states[0].refused.values()) > 0


def test_clients_ask_for_the_features_they_are_about_to_see() -> None:
    data = tagged()
    asked = {}
    for asks in ("own", "seen"):
        clients = {**STEP, "batch": 2, "request_features": asks}
        f = build_federation(tagged_config({"name": "fedaws"}, clients=clients), data, CPU)
        asked[asks] = draw_cohort(f, 1)
    assert torch.equal(asked["own"].clients, asked["seen"].clients)
    own, seen = (asked[name].requests["inputs"] for name in ("own", "seen"))
    assert seen.values.numel() < own.values.numel()
    for i in range(len(own)):
        assert set(seen[i].tolist()) <= set(own[i].tolist())
    assert torch.equal(asked["own"].requests["classes"].values, asked["seen"].requests["classes"].values)


@pytest.mark.parametrize("pooling", ["mean", "sqrtn", "sum"])
def test_rows_that_examples_name_are_those_requested(pooling: Pooling) -> None:
    clients = {**STEP, "batch": 3, "request_features": "seen"}
    f = build_federation(tagged_config({"name": "fedaws"}, clients=clients), twice_named(tagged()), CPU)
    cohort = draw_cohort(f, 1)
    x, plan = f.data.columns["x"], cohort.plan
    assert isinstance(x, Sparse)
    assert plan is not None
    at, mask = f.data.offsets[cohort.clients][:, None] + plan.index[:, 0], plan.mask[:, 0]
    examples = torch.arange(1.0, 1 + len(at))
    given, named = (
        PooledFeatures.of(x, at, mask, requested, examples, pooling)
        for requested in (cohort.requests["inputs"], None)
    )
    for part in ("rows", "holders", "examples"):
        assert torch.equal(getattr(given, part), getattr(named, part))
    for segments in ("by_slot", "by_row"):
        for part in ("at", "weights", "piece", "first"):
            one, other = (getattr(getattr(found, segments), part) for found in (given, named))
            assert torch.equal(one, other)


def test_several_steps_see_what_they_asked_for() -> None:
    clients = {**STEP, "local_steps": 3, "batch": 2, "request_features": "seen"}
    states = [
        train(tagged_config({"name": "fedaws"}, clients=clients, run={"executor": executor}), tagged())
        for executor in ("simulator", "sequential")
    ]
    assert_same(states[1], states[0])


def many(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, memory: int) -> Federation:
    """Two hundred clients of one step, whose own rows would take far more than `memory`."""
    source = {"name": "synthetic", "classes": 400, "features": 3000, "examples": 3000}
    experiment = so.Experiment.of(
        {
            "data": {"source": source, "targets": "one"},
            "model": {"encoder": "lookup", "width": 64, "hidden": [16], "dim": 8},
            "method": {"name": "fedaws"},
            "clients": {
                **STEP,
                "per_round": 200,
                "batch": 8,
                "selection": "nonempty",
                "request_features": "seen",
            },
            "run": {"memory_gb": memory / 2**30},
        }
    )
    monkeypatch.setenv("SPREADOUT_CACHE", str(tmp_path))
    return build_federation(experiment, load_data(experiment.data, 0), CPU)


def test_a_cohort_of_many_clients_takes_one_chunk_and_no_copies(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    f = many(tmp_path, monkeypatch, MEMORY)
    state = ServerState(0, *f.model.initial(0, CPU))
    ready = stage_round(f, state, draw_cohort(f, 0), MEMORY, fuses=True)
    assert stage_chunk(f, ready.chunks[0], fuses=True).features is not None
    assert len(stage_round(f, state, draw_cohort(f, 0), MEMORY).chunks) > 1  # with copies
    assert run_round(f, state).accepted == 200


def test_finding_a_broken_client_keeps_to_the_memory_there_is(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    f = many(tmp_path, monkeypatch, MEMORY)
    state = ServerState(0, *f.model.initial(0, CPU))
    cohort = draw_cohort(f, 0)
    largest = max(len(chunk.clients) for chunk in stage_round(f, state, cohort, MEMORY).chunks)
    x = f.data.columns["x"]
    assert isinstance(x, Sparse)
    first = int(f.data.offsets[cohort.clients[7]])
    weights = x.weights.clone()
    for example in range(first, int(f.data.offsets[cohort.clients[7] + 1])):
        stored = example if x.index is None else int(x.index[example])
        weights[x.offsets[stored]] = float("nan")
    f = replace(f, data=replace(f.data, columns={**f.data.columns, "x": replace(x, weights=weights)}))
    seen = []
    true = simulator._stacked
    monkeypatch.setattr(
        simulator, "_stacked", lambda chunk, *a: seen.append(len(chunk.examples)) or true(chunk, *a)
    )
    assert run_round(f, state).accepted == 199
    assert max(seen) <= largest < 200
    assert sum(seen) == 200
    slow = replace(f, executor=Sequential())
    reference = ServerState(0, *f.model.initial(0, CPU))
    run_round(slow, reference)
    assert_same(reference, state)
    assert reference.refused == state.refused


def test_features_are_asked_for_by_lookups_only() -> None:
    clients = {"request_features": "seen"}
    experiment = so.Experiment.of({"model": {"hidden": [4], "dim": 4}, "clients": clients})
    with pytest.raises(so.UserError, match="request_features"):
        build_federation(experiment, tagged(), CPU)


def test_a_round_ahead_is_of_those_who_ask_as_they_do_now() -> None:
    """And a method without a hash can look ahead too."""

    class Listed(FedAwS):
        rare: list[int] = Field(default_factory=list)

    experiment = tagged_config({"name": "fedaws"}, clients={**STEP, "batch": 2})
    f = build_federation(experiment, tagged(), CPU, method=Listed())
    assert isinstance(f.executor, Simulator)
    f = replace(f, executor=replace(f.executor, prefetch=Prefetcher()), rounds=9)
    state = ServerState(0, *f.model.initial(f.seed, CPU))
    run_round(f, state)
    sparing = replace(f, clients=replace(f.clients, requests_seen=True))
    asked = sparing.executor.cohort(sparing, state).requests["inputs"]  # type: ignore[attr-defined]
    assert torch.equal(asked.values, draw_cohort(sparing, 1).requests["inputs"].values)
    run_round(f, state)


def test_clients_without_a_whole_batch_are_as_good_as_empty() -> None:
    x, client = np.zeros((40, 2)), np.repeat([0, 1, 2], [35, 3, 2])
    data = so.Splits(
        "uneven", so.FederatedDataset.from_arrays(x, client, client), so.Examples.from_arrays(x, client)
    )
    clients = {"batch": 16, "drop_remainder": True, "selection": "nonempty", "per_round": 1}
    base = {"model": {"hidden": [4], "dim": 4}, "clients": clients}
    f = build_federation(so.Experiment.of(base), data, CPU)
    assert [draw_cohort(f, round).clients.tolist() for round in range(5)] == [[0]] * 5
    everyone = so.Experiment.of(base, overrides=["clients.per_round=all"])
    assert draw_cohort(build_federation(everyone, data, CPU), 0).clients.tolist() == [0]
    with pytest.raises(so.UserError, match="only 1 clients with examples to train on"):
        build_federation(so.Experiment.of(base, overrides=["clients.per_round=2"]), data, CPU)


def test_empty_clients_are_never_drawn() -> None:
    sizes = np.array([0, 3, 0, 1, 2, 0])
    drawn = [sample_clients("nonempty", sizes, 2, seed=0, round=r).tolist() for r in range(20)]
    assert {client for one in drawn for client in one} == {1, 3, 4}
    assert all(len(set(one)) == 2 for one in drawn)
    assert sample_clients("nonempty", sizes, 3, seed=0, round=0).tolist() == [1, 3, 4]
