"""Robust rules: each against slow NumPy, whole rounds against a server by hand, every executor."""

import dataclasses
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

import spreadout as so
from spreadout.core.ragged import Ragged
from spreadout.core.rows import Update, sub_model
from spreadout.core.state import ServerState
from spreadout.data.splits import Splits
from spreadout.federated.cohort import draw_cohort
from spreadout.federated.federation import Federation
from spreadout.federated.robust import (
    ROBUST_RULES,
    GeometricMedian,
    Median,
    Spectral,
    TrimmedMean,
    groups,
)
from spreadout.federated.robust.groups import Groups
from spreadout.federated.robust.limits import LIMIT, MOST_GROWTH, PACE, advance_limits_, quantile_of
from spreadout.federated.robust.updates import HeldRows, Updates
from spreadout.federated.round import run_round
from spreadout.runs.build import build_federation
from spreadout.runtime.sequential import train_client
from spreadout.runtime.simulator.executor import Simulator
from toys import HASHED, label_sets, label_sets_config, shop, shop_config, tagged, tagged_config

Array = NDArray[np.float64]
CPU = torch.device("cpu")

# The rules in plain NumPy, one group, one coordinate at a time


def median_by_hand(values: Array, weight: Array) -> Array:
    found = []
    for column in values.T:
        order = np.argsort(column)
        reached = np.cumsum(weight[order]) / weight.sum()
        low = column[order][np.flatnonzero(reached >= 0.5 - 1e-9)[0]]
        high = column[order][np.flatnonzero(reached > 0.5 + 1e-9)[0]]
        found.append((low + high) / 2)
    return np.array(found)


def trimmed_by_hand(values: Array, weight: Array, trim: float) -> Array:
    found = []
    for column in values.T:
        order, total, at, kept = np.argsort(column), 0.0, 0.0, 0.0
        for i in order:
            start, stop = at, at + weight[i] / weight.sum()
            inside = max(0.0, min(stop, 1 - trim) - max(start, trim))
            total, kept, at = total + inside * column[i], kept + inside, stop
        found.append(total / kept)
    return np.array(found)


def geometric_by_hand(values: Array, weight: Array, steps: int = 8, smoothing: float = 1e-6) -> Array:
    centre = np.zeros(values.shape[1])
    for _ in range(steps):
        pull = [
            w / max(smoothing, float(np.linalg.norm(v - centre)))
            for v, w in zip(values, weight, strict=True)
        ]
        centre = sum(p * v for p, v in zip(pull, values, strict=True)) / sum(pull)
    return centre


BY_HAND: dict[str, Callable[[Array, Array], Array]] = {
    "median": median_by_hand,
    "trimmed_mean": lambda values, weight: trimmed_by_hand(values, weight, 0.2),
    "geometric_median": geometric_by_hand,
    "centred_clipping": lambda values, weight: weight @ values / weight.sum(),  # of rows
}


@settings(max_examples=40)
@given(
    lengths=st.lists(st.integers(1, 7), min_size=1, max_size=5),
    width=st.integers(1, 4),
    equal=st.booleans(),
    seed=st.integers(0, 10**6),
    at_once=st.sampled_from([1, 1 << 26]),
)
@pytest.mark.parametrize("name", BY_HAND)
def test_a_rule_is_what_it_is_by_hand(
    name: str, lengths: list[int], width: int, equal: bool, seed: int, at_once: int
) -> None:
    rng = np.random.default_rng(seed)
    n = sum(lengths)
    values = rng.integers(-3, 4, (n, width)) + rng.normal(size=(n, width)) * rng.integers(2)  # ties too
    weight = np.ones(n) if equal else rng.integers(1, 9, n).astype(float)
    before = groups.AT_ONCE
    groups.AT_ONCE = at_once  # one column at a time, or all
    try:
        grouped = Groups.of(torch.tensor(values), torch.tensor(weight), torch.tensor(lengths))
        found = ROBUST_RULES[name]().centre(grouped)  # type: ignore[call-arg]
    finally:
        groups.AT_ONCE = before
    starts = np.cumsum([0, *lengths])
    for group, (start, stop) in enumerate(pairwise(starts)):
        by_hand = BY_HAND[name](values[start:stop], weight[start:stop])
        np.testing.assert_allclose(found[group].numpy(), by_hand, rtol=1e-5, atol=1e-7)


def one_group(values: Array) -> Groups:
    return Groups.of(torch.tensor(values), torch.ones(len(values)), torch.tensor([len(values)]))


def test_equal_weights_give_the_usual_median_and_trimmed_mean() -> None:
    values = np.random.default_rng(0).normal(size=(10, 50))
    np.testing.assert_allclose(Median().centre(one_group(values))[0].numpy(), np.median(values, 0))
    ordered = np.sort(values, 0)
    np.testing.assert_allclose(TrimmedMean(trim=0.2).centre(one_group(values))[0], ordered[2:8].mean(0))


def test_many_steps_end_where_the_pulls_of_all_clients_balance() -> None:
    values = np.random.default_rng(1).normal(size=(9, 6))
    found = GeometricMedian(iterations=300).centre(one_group(values))[0].numpy()
    away = values - found
    pull = (away / np.linalg.norm(away, axis=1, keepdims=True)).sum(0)
    assert float(np.linalg.norm(pull)) < 1e-5  # the gradient of Σ ‖v − x_i‖


@pytest.mark.parametrize("name", ["median", "trimmed_mean", "geometric_median"])
@pytest.mark.parametrize("far", [10.0, 1e6, 1e18])
def test_three_of_ten_cannot_take_it_far_however_far_they_are(name: str, far: float) -> None:
    honest = np.random.default_rng(2).normal(loc=1.0, size=(10, 20)).astype(np.float32)
    hostile = honest.copy()
    hostile[:3] = -far
    given_to = {"trim": 0.3} if name == "trimmed_mean" else {}
    found = ROBUST_RULES[name](**given_to).centre(one_group(hostile))[0]  # type: ignore[call-arg]
    away = float((found - torch.from_numpy(honest.mean(0))).norm())
    spread = float(np.linalg.norm(honest - honest.mean(0), axis=1).mean())
    assert away < 1.2 * spread
    assert np.linalg.norm(hostile.mean(0) - honest.mean(0)) > 3 * spread  # a mean goes with them


def test_a_spectral_filter_finds_those_who_pull_together_among_clients_that_all_differ() -> None:
    honest = np.linalg.qr(np.random.default_rng(3).normal(size=(60, 20)))[0].T  # every one its own way
    values = torch.from_numpy(
        np.concatenate([honest, [-honest.mean(0) / np.linalg.norm(honest.mean(0))] * 3])
    )
    memory = {LIMIT + "dense": torch.tensor(1.0)}
    rows = {
        "classes": HeldRows(
            torch.tensor([4, 4, 9]), torch.tensor([5, 22, 22]), torch.ones(3), torch.eye(3)
        )
    }
    given = Updates(torch.arange(23), torch.ones(23), values.float(), rows)
    kept = Spectral(trim=0.15).kept(given, memory)
    assert kept.weight.tolist() == [1.0] * 20 + [0.0] * 3
    assert kept.rows["classes"].weight.tolist() == [1.0, 0.0, 1.0]  # row 9 is held by nobody else
    found = Spectral(trim=0.15).dense_change(kept, memory, 0)
    torch.testing.assert_close(found, torch.from_numpy(honest.mean(0)).float())
    assert Spectral(trim=0.04).kept(given, memory).weight.sum() == 23  # less than one of 23


# Limits


def test_a_limit_runs_after_the_quantile_and_the_longest_do_not_move_it() -> None:
    memory: dict[str, torch.Tensor] = {}
    rounds = [[1.0, 2.0, 3.0, 4.0], [5.0, 6.0, 7.0, -1.0], [-1.0, -1.0], [9.0, 1e30, 8.0, 1e30]]
    by_hand = 0.0
    for round, lengths in enumerate(rounds):
        there = sorted(x for x in lengths if x >= 0)
        if there:
            own = there[int(0.5 * (len(there) - 1))]
            by_hand = (
                own if round == 0 else (1 - PACE) * by_hand + PACE * min(own, MOST_GROWTH * by_hand)
            )
        advance_limits_(memory, {"dense": torch.tensor(lengths)}, 0.5)
        assert float(memory[LIMIT + "dense"]) == pytest.approx(by_hand)
    assert by_hand < 10


def test_a_quantile_is_a_length_that_was_there() -> None:
    assert quantile_of(torch.tensor([3.0, 1.0, 1e30]), 2 / 3) == 3.0
    assert quantile_of(torch.tensor([-1.0]), 0.5) is None


# Whole rounds by hand


def federation(data: Splits, *overrides: str) -> Federation:
    base = {
        "model": {"hidden": [5], "dim": 4},
        "clients": {"per_round": "all", "batch": 3, "lr": 0.3, "local_steps": 2},
        "method": {"name": "baseline-1"},
    }
    return build_federation(so.Experiment.of(base, overrides=overrides), data, CPU)


def train(f: Federation, rounds: int = 4) -> ServerState:
    state = ServerState(0, *f.model.initial(f.seed, f.device))
    for _ in range(rounds):
        run_round(f, state)
    return state


def updates_of(f: Federation, state: ServerState) -> list[Update]:
    """Every client's own update, trained alone."""
    cohort, found = draw_cohort(f, state.round), []
    for i, client in enumerate(cohort.clients.tolist()):
        request = {name: rows[i] for name, rows in cohort.requests.items()}
        sent = sub_model(state.round, state.dense, state.tables, request)
        update, _ = train_client(dataclasses.replace(f, data=f.data.view(client)), sent, {})
        if update.examples:
            found.append(update)
    return found


@dataclasses.dataclass
class ServerByHand:
    """A server in NumPy: SGD of rate 1, one table of classes on the sphere."""

    rule: Any
    weighting: str
    merge: str
    limits: dict[str, float] = dataclasses.field(default_factory=dict)
    centre: Any = 0.0
    momenta: dict[int, Array] = dataclasses.field(default_factory=dict)

    def advance(self, part: str, lengths: list[float]) -> None:
        own = sorted(lengths)[int(self.rule.quantile * (len(lengths) - 1))]
        before = self.limits.get(part)
        seen = own if before is None else min(own, MOST_GROWTH * before)
        self.limits[part] = own if before is None else (1 - PACE) * before + PACE * seen

    def step(self, state: ServerState, updates: list[Update]) -> None:
        dense = [np.concatenate([v.numpy().ravel() for v in u.dense.values()]) for u in updates]
        rows = [u.tables["classes"].values.numpy().astype(float) for u in updates]
        lengths = {
            "dense": [float(np.linalg.norm(v)) for v in dense],
            "rows": [float(np.linalg.norm(v)) for v in rows],
            "row": [float(np.linalg.norm(v, axis=1).max()) for v in rows],
        }
        first = not self.limits
        if self.rule.holds_updates or first:
            for part, some in lengths.items():
                self.advance(part, some)
        if self.rule.limits_updates:
            dense = [v * self.scale("dense", v) for v in dense]
        if self.rule.limits_updates or self.rule.name == "spectral":
            rows = [v * self.scale("rows", v) for v in rows]
        rows = [np.array([row * self.scale("row", row, self.rule.row_limit) for row in v]) for v in rows]
        if self.rule.limits_updates and not first:
            for part, some in lengths.items():
                self.advance(part, some)
        size = np.array([u.examples for u in updates], dtype=float)
        weight = size if self.weighting == "examples" else np.ones_like(size)
        stays = self.stays(np.array(dense), weight)
        moved, at = self.dense_change(updates, np.array(dense), weight * stays), 0
        for value in state.dense.values():
            value.add_(torch.from_numpy(moved[at : at + value.numel()]).view(value.shape).float())
            at += value.numel()
        table = state.tables["classes"]
        assert isinstance(table, torch.Tensor)
        self.move_rows(table, updates, rows, size, weight, stays)
        state.round += 1

    def stays(self, dense: Array, weight: Array) -> Array:
        """Who is not left out by a spectral filter."""
        found = np.ones(len(dense))
        if self.rule.name == "spectral":
            short = np.array([v * self.scale("dense", v) for v in dense])
            away = short - weight @ short / weight.sum()
            first = np.linalg.svd(np.sqrt(weight)[:, None] * away)[2][0]
            order = np.argsort(-np.abs(away @ first))
            found[order[: int(self.rule.trim * len(dense))]] = 0
        return found

    def scale(self, part: str, value: Array, times: float = 1.0) -> float:
        length = float(np.linalg.norm(value))
        if part == "row" and times == 0:
            return 1.0
        return min(1.0, times * self.limits[part] / max(length, 1e-30))

    def dense_change(self, updates: list[Update], dense: Array, weight: Array) -> Array:
        if self.rule.name in ("median", "trimmed_mean", "geometric_median"):
            return BY_HAND[self.rule.name](dense, weight)
        if self.rule.name == "spectral":
            dense = np.array([v * self.scale("dense", v) for v in dense])
        if self.rule.name in ("norm_clipping", "spectral"):
            return np.asarray(weight @ dense / weight.sum())
        beta = self.rule.momentum
        for update, change in zip(updates, dense, strict=True):
            before = self.momenta.get(update.client)
            own = change if before is None or beta == 0 else (1 - beta) * change + beta * before
            self.momenta[update.client] = own
        said = [self.momenta[update.client] for update in updates]
        for step in range(self.rule.iterations):
            away = [v - self.centre for v in said]
            if step == 0 and self.rule.limit is None:
                self.advance("distance", [float(np.linalg.norm(v)) for v in away])
            limit = self.rule.limit or self.limits["distance"]
            share = weight / weight.sum()
            pulls = [
                s * v * min(1.0, limit / max(float(np.linalg.norm(v)), 1e-30))
                for s, v in zip(share, away, strict=True)
            ]
            self.centre = self.centre + sum(pulls)
        return np.asarray(self.centre)

    def move_rows(
        self,
        table: torch.Tensor,
        updates: list[Update],
        rows: list[Array],
        size: Array,
        weight: Array,
        stays: Array,
    ) -> None:
        heard: dict[int, list[tuple[Array, float, float]]] = {}
        for i, (update, values) in enumerate(zip(updates, rows, strict=True)):
            for at, row in enumerate(update.tables["classes"].ids.tolist()):
                own = {
                    "replace": 1.0,
                    "mean": 1.0,
                    "weighted-mean": size[i],
                    "sum": weight[i],
                    "positives": float(update.positives.get("classes", torch.ones(99))[at]),
                }[self.merge]
                heard.setdefault(row, []).append((values[at], own, own * stays[i]))
        for row, said in heard.items():
            values, own_weight = np.array([v for v, _, _ in said]), np.array([w for _, _, w in said])
            if own_weight.sum() == 0:  # nobody who stays holds it
                own_weight = np.array([w for _, w, _ in said])
            if getattr(self.rule, "rows", self.rule.name in BY_HAND) and own_weight.sum() > 0:
                change = BY_HAND[self.rule.name](values, own_weight)
            else:
                change = own_weight @ values / max(own_weight.sum(), 1e-12)
            if self.merge == "sum":
                change = change * own_weight.sum() / (weight * stays).sum()
            moved = table[row] + torch.from_numpy(change).float()
            table[row] = moved / moved.norm()


RULES: dict[str, list[str]] = {
    "norm_clipping": [],
    "norm_clipping, rows free": ["server.robust.row_limit=0", "server.robust.quantile=0.3"],
    "median": ["server.robust.row_limit=0.8"],
    "trimmed_mean": [],
    "geometric_median": [],
    "geometric_median, rows averaged": ["server.robust.rows=false"],
    "spectral": ["server.robust.trim=0.3"],
    "centred_clipping": ["server.robust.momentum=0.8", "server.robust.iterations=2"],
    "centred_clipping, a limit": ["server.robust.momentum=0", "server.robust.limit=0.1"],
}
METHODS: dict[str, list[str]] = {
    "one owner a row": [],
    "rows of all": ["method.name=fedavg", "method.scale=5"],
    "literal sum": ["method.name=fedavg", "method.merge=sum", "method.scale=5"],
    "counted": ["method.name=flag"],
}


def arm(rule: str) -> list[str]:
    return [f"server.robust={rule.partition(',')[0]}", *RULES[rule]]


@pytest.mark.parametrize(
    ("method", "executor"),
    [*((method, "simulator") for method in METHODS), ("rows of all", "sequential")],
)
@pytest.mark.parametrize("rule", RULES)
def test_rounds_are_those_of_a_server_by_hand(
    toy: Splits, rule: str, method: str, executor: str
) -> None:
    some = [*arm(rule), *METHODS[method], "clients.per_round=4", f"run.executor={executor}"]
    f = federation(toy, *some)
    alone = dataclasses.replace(f, server=dataclasses.replace(f.server, robust=None))
    twin = ServerState(0, *f.model.initial(f.seed, f.device))
    server = ServerByHand(f.server.robust, f.rules.weighting, f.rules.rows["classes"])
    for _ in range(3):
        server.step(twin, updates_of(alone, twin))
    state = train(f, 3)
    torch.testing.assert_close(state.dense, twin.dense, rtol=1e-4, atol=3e-6)
    torch.testing.assert_close(state.tables, twin.tables, rtol=1e-4, atol=3e-6)
    plain = train(alone, 3)
    moved = max(float((plain.dense[n] - state.dense[n]).abs().max()) for n in plain.dense)
    assert moved > 1e-4  # the rule makes a difference


# Executors


def assert_same(a: ServerState, b: ServerState) -> None:
    torch.testing.assert_close(a.dense, b.dense, rtol=1e-4, atol=3e-6)
    torch.testing.assert_close(a.tables, b.tables, rtol=1e-4, atol=3e-6)
    assert a.robust.keys() == b.robust.keys()
    torch.testing.assert_close(a.robust, b.robust, rtol=1e-4, atol=3e-6)
    assert a.traffic == b.traffic
    assert a.refused == b.refused


ARMS: dict[str, list[str]] = {
    "fedaws": ["method.name=fedaws", "method.strength=0.1"],
    "one step": ["clients.local_steps=1"],
    "sampled rows": ["method.name=fedss", "method.negatives=2", "method.scale=5"],
    "some refused": ["clients.max_update_norm=0.9"],
    "clipped and noised": ["privacy.clip=0.1", "privacy.noise=0.5", "method.prior=0"],
    "fedprox": ["clients.drift=fedprox", "clients.drift.mu=0.5"],
    "fixed rows": ["method.name=baseline-2"],
    "adam on the server": ["method.name=fedavg", "server.optimizer=adam", "server.lr=0.1"],
    "claims capped": ["method.name=fedavg", "method.scale=5", "server.claim_quantile=0.5"],
}


@pytest.mark.parametrize("rule", ["norm_clipping", "median", "centred_clipping"])
@pytest.mark.parametrize("method", ARMS)
def test_the_simulator_equals_the_sequential_reference(toy: Splits, method: str, rule: str) -> None:
    some = [*ARMS[method], f"server.robust={rule}"]
    fast = train(federation(toy, *some))
    slow = train(federation(toy, *some, "run.executor=sequential"))
    assert_same(fast, slow)
    if method == "some refused":
        assert slow.refused["norm above limit"] > 0


@pytest.mark.parametrize("rule", ["norm_clipping", "geometric_median"])
def test_every_kind_of_model_has_a_rule(rule: str) -> None:
    made = {
        "lookup": (tagged(), tagged_config({"name": "fedalc"}, server={"robust": rule})),
        "hashed": (label_sets(), label_sets_config(HASHED, server={"robust": rule})),
        "two towers": (shop(), shop_config(server={"robust": rule})),
    }
    for data, e in made.values():
        fast, slow = (
            train(build_federation(by_executor(e, executor), data, CPU), 2)
            for executor in ("simulator", "sequential")
        )
        assert_same(fast, slow)


def by_executor(e: so.Experiment, executor: str) -> so.Experiment:
    return e.model_copy(update={"run": e.run.model_copy(update={"executor": executor})})


@pytest.mark.parametrize("rule", RULES)
def test_chunks_of_any_size_give_the_same_model(toy: Splits, rule: str) -> None:
    f = federation(toy, *arm(rule))
    whole = train(f, 2)
    for memory in (1, 20_000):
        assert_same(whole, train(dataclasses.replace(f, executor=Simulator(memory)), 2))


def test_buckets_are_means_of_some_clients_drawn_anew_each_round(toy: Splits) -> None:
    seen: list[torch.Tensor] = []

    class Recorded(Median):
        def centre(self, groups: Groups) -> torch.Tensor:
            seen.append(groups.values) if groups.values.shape[1] > 4 else None
            return super().centre(groups)

    f = federation(toy, "method.weighting=uniform")
    rule = Recorded(bucket=2)
    f = dataclasses.replace(f, server=dataclasses.replace(f.server, robust=rule))
    train(f, 2)
    assert [len(values) for values in seen] == [3, 3]  # of five clients with examples
    alone = dataclasses.replace(f, server=dataclasses.replace(f.server, robust=None))
    first = ServerState(0, *f.model.initial(f.seed, f.device))
    each = [torch.cat([v.flatten() for v in u.dense.values()]) for u in updates_of(alone, first)]
    both = 2 * seen[0][:2].sum(0) + seen[0][2]  # two buckets of two clients, one of one
    torch.testing.assert_close(both, torch.stack(each).sum(0), rtol=1e-3, atol=1e-5)


def test_a_hostile_owner_moves_its_row_no_further_than_others_move_theirs(toy: Splits) -> None:
    """Of a row that one client holds there is no second opinion: how far it goes is all there is."""
    f = federation(toy, "server.robust=median", "server.robust.row_limit=1")
    state = train(f, 1)
    before = state.tables["classes"].clone()
    limit = float(state.robust["limit/row/classes"])
    run_round(f, state)
    moved = (state.tables["classes"] - before).norm(dim=1)
    limit = max(limit, float(state.robust["limit/row/classes"]))
    assert float(moved.max()) <= 1.05 * limit  # and projecting onto the sphere moves it less still
    assert float((train(federation(toy), 2).tables["classes"] - before).norm(dim=1).max()) > 0


# What is kept, and what is refused


@pytest.mark.parametrize("rule", ["norm_clipping", "centred_clipping"])
def test_a_stopped_run_goes_on_with_its_limits_and_momenta(rule: str, tmp_path: Path) -> None:
    robust = {"name": rule, **({"momentum": 0.5} if rule == "centred_clipping" else {})}
    e = so.Experiment.of({"rounds": 4, "clients": {"per_round": 6}, "server": {"robust": robust}})
    whole = so.run(e)
    stops = iter([False, True])
    with pytest.raises(so.Interrupted):
        so.run(e, out=tmp_path / "run", stop=lambda: next(stops))
    again = so.resume(tmp_path / "run")
    assert all(torch.equal(value, again.state.dense[name]) for name, value in whole.state.dense.items())
    assert all(
        torch.equal(value, again.state.robust[name]) for name, value in whole.state.robust.items()
    )
    assert again.summary["robust"]["name"] == rule
    assert again.summary["robust"]["limits"]["dense"] > 0


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (
            ["clients.drift=scaffold"],
            r"server.robust = 'median': clients.drift = 'scaffold' has a control",
        ),
        (["method.name=centralized"], r"method.name = 'centralized' pools the data"),
    ],
)
def test_what_does_not_go_together_is_refused(toy: Splits, overrides: list[str], message: str) -> None:
    with pytest.raises(so.UserError, match=message):
        federation(toy, "server.robust=median", *overrides)


def test_too_many_updates_to_hold_are_refused_with_the_remedy(toy: Splits) -> None:
    f = federation(toy, "server.robust=median", "run.memory_gb=0.000002")
    with pytest.raises(so.UserError, match=r"holds all 6 updates of a round.*take \"norm_clipping\""):
        train(f, 1)
    train(federation(toy, "server.robust=norm_clipping", "run.memory_gb=0.000002"), 1)


def test_a_plain_mean_is_no_rule(toy: Splits) -> None:
    assert federation(toy, "server.robust=mean").server.robust is None
    with pytest.raises(so.UserError, match="limits nothing"):
        federation(toy, "server.robust=mean", "server.robust.quantile=0.9")


def test_an_unknown_rule_is_named(toy: Splits) -> None:
    with pytest.raises(so.UserError, match=r"server.robust.*krum"):
        federation(toy, "server.robust=krum")


def test_nobody_left_changes_nothing(toy: Splits) -> None:
    for rule in ("norm_clipping", "median", "centred_clipping"):
        f = federation(toy, f"server.robust={rule}", "clients.max_update_norm=1e-9")
        start = ServerState(0, *f.model.initial(f.seed, f.device))
        state = train(f, 2)
        assert all(torch.equal(state.dense[name], value) for name, value in start.dense.items())
        assert state.robust == {}


def test_a_table_nobody_requests_rows_of_has_no_limit() -> None:
    from spreadout.core.types import Params
    from spreadout.federated.robust.limits import lengths_of

    change = Params({"w": torch.ones(2, 3)}, {"classes": torch.zeros(2, 0, 4)})
    empty = Ragged.from_lists([torch.empty(0, dtype=torch.int64)] * 2)
    ids = {"classes": torch.full((2, int(empty.lengths.max())), -1)}
    found = lengths_of(change, ids)
    assert found["row/classes"].tolist() == [-1, -1]
    assert found["dense"].tolist() == pytest.approx([3**0.5] * 2)


def test_one_unlucky_cohort_does_not_lift_a_limit_for_good() -> None:
    """Small cohorts drawn at random: now and then most of one are hostile, with lengths of any size."""
    draw = torch.Generator().manual_seed(0)
    memory: dict[str, torch.Tensor] = {}
    worst = 0.0
    for _ in range(300):
        hostile = torch.rand(10, generator=draw) < 0.2
        honest = 0.5 + torch.rand(10, generator=draw)
        advance_limits_(memory, {"dense": torch.where(hostile, torch.full((10,), 1e30), honest)}, 2 / 3)
        worst = max(worst, float(memory[LIMIT + "dense"]))
    assert worst < 4  # honest updates are at most 1.5 long


def test_lengths_beyond_float32_leave_no_limit_that_is_not_finite() -> None:
    memory: dict[str, torch.Tensor] = {LIMIT + "dense": torch.tensor(1.0)}
    for length in (torch.inf, 1e38, 1.0):
        advance_limits_(memory, {"dense": torch.full((10,), length)}, 2 / 3)
        assert memory[LIMIT + "dense"].isfinite()
