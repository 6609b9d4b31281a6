"""Client-drift correction: the papers' algorithms in plain NumPy, their fixed points, every executor.

Clients have least-squares problems f_i(W) = ‖A_i Wᵀ − B_i‖²/(2 n_i), each with a solution of its own, so
that a step, a round, and the optimum of Σ p_i f_i can all be worked out.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

import spreadout as so
from spreadout.core.client_state import PerClient
from spreadout.core.merging import RowMerge
from spreadout.core.ragged import Ragged
from spreadout.core.state import ServerState
from spreadout.core.types import Batch, Params, RowInfo
from spreadout.data.columns import Dense
from spreadout.data.dataset import FederatedDataset
from spreadout.data.held_out import Examples
from spreadout.data.splits import Splits
from spreadout.federated.cohort import draw_clients
from spreadout.federated.drift import DRIFT_CORRECTIONS
from spreadout.federated.federation import Federation
from spreadout.federated.round import run_round
from spreadout.methods import METHODS
from spreadout.methods.base import Method, RowAccess, every_row
from spreadout.models.embedding import EmbeddingModel
from spreadout.objectives import losses
from spreadout.runs.build import build_federation
from toys import shop, tagged, tagged_config

Array = NDArray[np.float64]
FEATURES, OUTPUTS = 4, 3
SIZES = [6, 3, 9, 4]  # examples of each client
RATE, STEPS = 0.1, 5
CPU = torch.device("cpu")


class InEncoder(Method):
    """Least squares in the encoder, one linear layer; the class table is not looked at."""

    name: Literal["least-squares"] = "least-squares"

    def loss(self, model: EmbeddingModel, params: Params, batch: Batch, info: RowInfo) -> Tensor:
        output = torch.func.functional_call(model.encoder, params.dense, (batch["x"],))
        return losses.masked_mean((output - batch["wanted"]).square().sum(-1) / 2, batch["mask"])


class InTable(Method):
    """The same in a table that every client holds whole."""

    name: Literal["least-squares-table"] = "least-squares-table"

    @property
    def row_access(self) -> RowAccess:
        return "all"

    def row_merge(self) -> dict[str, RowMerge]:
        return {"classes": "weighted-mean" if self.weighting == "examples" else "mean"}

    def request(
        self, data: FederatedDataset, clients: Tensor, *, seed: int, round: int
    ) -> dict[str, Ragged]:
        return every_row(data, clients)

    def loss(self, model: EmbeddingModel, params: Params, batch: Batch, info: RowInfo) -> Tensor:
        output = batch["x"] @ params.rows["classes"].T
        return losses.masked_mean((output - batch["wanted"]).square().sum(-1) / 2, batch["mask"])


@dataclass(frozen=True)
class Problem:
    """Every client's A_i and B_i."""

    inputs: list[Array]
    wanted: list[Array]

    def slope(self, i: int, w: Array) -> Array:
        """∇f_i(W), as loss and masked mean make it."""
        a, b = self.inputs[i], self.wanted[i]
        found: Array = (a @ w.T - b).T @ a / len(a)
        return found

    def optimum(self, share: Array) -> Array:
        """argmin Σ p_i f_i, by the normal equations."""
        pairs = [(p / len(a), a, b) for p, a, b in zip(share, self.inputs, self.wanted, strict=True)]
        left = sum(p * a.T @ a for p, a, _ in pairs)
        right = sum(p * a.T @ b for p, a, b in pairs)
        return np.linalg.solve(np.asarray(left), np.asarray(right)).T


def problem() -> Problem:
    rng = np.random.default_rng(4)
    inputs = [rng.normal(size=(n, FEATURES)) for n in SIZES]
    return Problem(inputs, [a @ rng.normal(size=(FEATURES, OUTPUTS)) for a in inputs])


def federation(method: Method, drift: dict[str, Any] | None, **changes: Any) -> Federation:
    p, owner = problem(), np.repeat(np.arange(len(SIZES)), SIZES)
    columns = {
        "x": Dense(torch.from_numpy(np.concatenate(p.inputs)).float()),
        "wanted": Dense(torch.from_numpy(np.concatenate(p.wanted)).float()),
        "y": Dense(torch.from_numpy(owner % OUTPUTS)),
    }
    held = FederatedDataset.by_owner(columns, torch.from_numpy(owner), OUTPUTS)
    data = Splits("squares", held, Examples({"x": columns["x"]}, Ragged.from_lists([[]] * len(owner))))
    clients = {"local_steps": STEPS, "batch": "full", "lr": RATE, **changes.pop("clients", {})}
    clients |= {} if drift is None else {"drift": drift}
    e = so.Experiment.of({"rounds": 1000, "clients": clients, **changes})
    encoder = nn.Linear(FEATURES, OUTPUTS, bias=False)
    nn.init.zeros_(encoder.weight)
    f = build_federation(e, data, CPU, encoder=encoder, method=method)
    free = replace(f.model.tables["classes"], sphere=False, dim=FEATURES, scale=0.0)
    training = replace(f.clients.training, sphere=frozenset())
    model = replace(f.model, tables={"classes": free})
    return replace(f, model=model, clients=replace(f.clients, training=training))


def fresh(f: Federation) -> ServerState:
    return ServerState(0, *f.model.initial(f.seed, CPU))


def weights_of(f: Federation, state: ServerState) -> Array:
    """The part of the model that was trained, as an array."""
    trained = state.dense["weight"] if isinstance(f.method, InEncoder) else state.tables["classes"]
    assert isinstance(trained, Tensor)
    return trained.double().numpy()


# ---------------------------------------------------------------- the papers' algorithms, step by step


def fedavg(p: Problem, cohorts: Sequence[Sequence[int]], share: Array) -> Array:
    return fedprox(p, cohorts, share, mu=0.0)


def fedprox(p: Problem, cohorts: Sequence[Sequence[int]], share: Array, mu: float) -> Array:
    """Li et al. 2020, Algorithm 2 with a fixed number of gradient steps as its γ-inexact solver."""
    x = np.zeros((OUTPUTS, FEATURES))
    for cohort in cohorts:
        ends = {}
        for i in cohort:
            y = x.copy()
            for _ in range(STEPS):
                y = y - RATE * (p.slope(i, y) + mu * (y - x))
            ends[i] = y
        total = sum(share[i] for i in cohort)
        x = np.asarray(sum(share[i] / total * ends[i] for i in cohort))
    return x


def scaffold(p: Problem, cohorts: Sequence[Sequence[int]], share: Array) -> Array:
    """Karimireddy et al. 2020, Algorithm 1 with option II; what it sends up is kept apart as there."""
    x = np.zeros((OUTPUTS, FEATURES))
    c, own = np.zeros_like(x), [np.zeros_like(x) for _ in SIZES]
    for cohort in cohorts:
        moved, control = {}, {}
        for i in cohort:
            y = x.copy()
            for _ in range(STEPS):
                y = y - RATE * (p.slope(i, y) - own[i] + c)
            new = own[i] - c + (x - y) / (STEPS * RATE)
            moved[i], control[i] = y - x, new - own[i]
            own[i] = new
        total = sum(share[i] for i in cohort)
        x = x + sum(share[i] / total * moved[i] for i in cohort)
        c = c + sum(share[i] * control[i] for i in cohort)
    return x


def feddyn(p: Problem, cohorts: Sequence[Sequence[int]], share: Array, alpha: float) -> Array:
    """Acar et al. 2021, Algorithm 1; the argmin by gradient steps."""
    theta = np.zeros((OUTPUTS, FEATURES))
    h, slope = np.zeros_like(theta), [np.zeros_like(theta) for _ in SIZES]
    for cohort in cohorts:
        ends = {}
        for k in cohort:
            y = theta.copy()
            for _ in range(STEPS):
                y = y - RATE * (p.slope(k, y) - slope[k] + alpha * (y - theta))
            slope[k] = slope[k] - alpha * (y - theta)
            ends[k] = y
        h = h - alpha * sum(share[k] * (ends[k] - theta) for k in cohort)
        total = sum(share[k] for k in cohort)
        theta = np.asarray(sum(share[k] / total * ends[k] for k in cohort)) - h / alpha
    return theta


TWINS: dict[str, tuple[dict[str, Any], Any]] = {
    "fedprox": ({"name": "fedprox", "mu": 0.7}, lambda *a: fedprox(*a, mu=0.7)),
    "scaffold": ({"name": "scaffold"}, scaffold),
    "feddyn": ({"name": "feddyn", "alpha": 0.5}, lambda *a: feddyn(*a, alpha=0.5)),
}


def shares(weighting: str) -> Array:
    sizes = np.array(SIZES, dtype=np.float64)
    return sizes / sizes.sum() if weighting == "examples" else np.full(len(SIZES), 1 / len(SIZES))


@pytest.mark.parametrize("executor", ["simulator", "sequential"])
@pytest.mark.parametrize("weighting", ["examples", "uniform"])
@pytest.mark.parametrize("per_round", ["all", 2])
@pytest.mark.parametrize("kind", [InEncoder, InTable])
@pytest.mark.parametrize("twin", TWINS)
def test_a_run_is_the_papers_algorithm_in_numpy(
    twin: str, kind: type[Method], per_round: int | str, weighting: str, executor: str
) -> None:
    drift, slow = TWINS[twin]
    method = kind(weighting=weighting)  # type: ignore[arg-type]
    f = federation(method, drift, clients={"per_round": per_round}, run={"executor": executor})
    state = fresh(f)
    rounds = 8
    cohorts = [draw_clients(f, round).tolist() for round in range(rounds)]
    for _ in range(rounds):
        run_round(f, state)
    expected = slow(problem(), cohorts, shares(weighting))
    np.testing.assert_allclose(weights_of(f, state), expected, rtol=2e-4, atol=2e-5)
    plain = fedavg(problem(), cohorts, shares(weighting))
    assert np.abs(expected - plain).max() > 0.01  # the correction is no matter of rounding


@pytest.mark.parametrize("kind", [InEncoder, InTable])
@pytest.mark.parametrize("twin", ["scaffold", "feddyn"])
def test_corrected_clients_meet_at_the_optimum_and_plain_averaging_does_not(
    twin: str, kind: type[Method]
) -> None:
    best = problem().optimum(shares("examples"))
    found = {}
    for drift in (TWINS[twin][0], None):
        f = federation(kind(weighting="examples"), drift)
        state = fresh(f)
        for _ in range(400):
            run_round(f, state)
        found[drift is None] = float(np.abs(weights_of(f, state) - best).max())
    assert found[False] < 2e-3
    assert found[True] > 0.03  # the price of five local steps


def test_fedprox_ends_where_its_pull_and_the_clients_balance() -> None:
    """x = Σ p_i y_i(x), which is linear in x: solved, not iterated."""
    mu, p, share = 0.7, problem(), shares("examples")
    eye = np.eye(FEATURES)
    matrix, vector = np.zeros((FEATURES, FEATURES)), np.zeros((OUTPUTS, FEATURES))
    for i, weight in enumerate(share):
        a, b = p.inputs[i], p.wanted[i]
        step = eye - RATE * (a.T @ a / len(a) + mu * eye)
        y_of_x, y = eye, np.zeros((OUTPUTS, FEATURES))  # y = x·(…) + …
        for _ in range(STEPS):
            y_of_x = y_of_x @ step + RATE * mu * eye
            y = y @ step + RATE * (b.T @ a / len(a))
        matrix, vector = matrix + weight * y_of_x, vector + weight * y
    fixed = vector @ np.linalg.inv(eye - matrix)
    f = federation(InEncoder(weighting="examples"), {"name": "fedprox", "mu": mu})
    state = fresh(f)
    for _ in range(400):
        run_round(f, state)
    np.testing.assert_allclose(weights_of(f, state), fixed, atol=1e-3)


# ---------------------------------------------------------------- with every method

NO_PRIOR = ("method.name=fedaws", "method.prior=0")
BASE = {"model": {"hidden": [5], "dim": 4}, "clients": {"batch": 3, "lr": 0.1, "local_steps": 4}}
METHOD_OPTIONS: dict[str, dict[str, Any]] = {
    "fedss": {"negatives": 2, "scale": 5.0},
    "fedmlh": {"buckets": 4, "hash_tables": 2},
    "fedavg": {"scale": 5.0},
    "centralized": {"scale": 5.0},
    "fedaws-softmax": {"scale": 5.0},
}
DRIFTS = {"fedprox": {"mu": 0.5}, "scaffold": {}, "feddyn": {"alpha": 0.5}}


def arm(method: str, drift: str | None, executor: str, toy: Splits) -> tuple[Federation, ServerState]:
    named = {} if drift is None else {"drift": {"name": drift, **DRIFTS[drift]}}
    own = {"name": method, **METHOD_OPTIONS.get(method, {})}
    if method == "dual_encoder":
        data = shop()
        e = so.Experiment.of({"model": {"encoder": "mean", "dim": 6}, "method": own})
        clients = {"batch": 4, "lr": 0.5, "per_round": 5}
    elif method.startswith("fedalc"):
        data, e, clients = tagged(), tagged_config(own), {"batch": 6, "lr": 0.3, "local_steps": 3}
    else:
        data, e = toy, so.Experiment.of({**BASE, "method": own})
        clients = {"batch": 3, "lr": 0.1, "local_steps": 4}
        clients |= {} if method.startswith("centralized") else {"per_round": 4}
    values = e.model_dump(mode="json", exclude_none=True)
    values |= {"clients": {**clients, **named}, "run": {"executor": executor}}
    f = build_federation(so.Experiment.of(values), data, CPU)
    return f, fresh(f)


@pytest.mark.parametrize("drift", DRIFTS)
@pytest.mark.parametrize("method", list(METHODS))
def test_every_method_takes_every_correction(method: str, drift: str, toy: Splits) -> None:
    states = {}
    for key, (kind, executor) in {
        "fast": (drift, "simulator"),
        "slow": (drift, "sequential"),
        "without": (None, "simulator"),
    }.items():
        f, state = arm(method, kind, executor, toy)
        for _ in range(3):
            run_round(f, state)
        states[key] = state
    fast, slow, without = states["fast"], states["slow"], states["without"]
    torch.testing.assert_close(fast.dense, slow.dense, rtol=1e-4, atol=5e-6)
    torch.testing.assert_close(fast.tables, slow.tables, rtol=1e-4, atol=5e-6)
    torch.testing.assert_close(fast.control, slow.control, rtol=1e-3, atol=5e-5)
    assert fast.traffic == slow.traffic
    if f.method.is_centralized and drift == "scaffold":  # one client's control is the mean of all
        torch.testing.assert_close(fast.dense, without.dense, rtol=1e-4, atol=5e-6)
        return
    assert any(not torch.equal(fast.dense[name], without.dense[name]) for name in fast.dense)


# ---------------------------------------------------------------- what travels, what stays, what is refused


def test_scaffold_sends_its_control_down_and_nothing_more_up(toy: Splits) -> None:
    ledger = {}
    for drift in ("scaffold", "feddyn", "fedprox", None):
        f, state = arm("fedavg", drift, "simulator", toy)
        run_round(f, state)
        ledger[drift] = state.traffic, state
    plain, with_control = ledger[None][0], ledger["scaffold"][0]
    state = ledger["scaffold"][1]
    corrected = sum(value.numel() for value in state.dense.values()) + state.tables["classes"].numel()  # type: ignore[union-attr]
    clients = plain.participations
    assert with_control.down - plain.down == 4 * corrected * clients
    assert with_control.up == plain.up
    assert ledger["feddyn"][0] == ledger["fedprox"][0] == plain


@pytest.mark.parametrize("drift", ["scaffold", "feddyn"])
def test_what_stays_with_clients_survives_a_checkpoint(drift: str, toy: Splits, tmp_path: Path) -> None:
    values = {**BASE, "rounds": 6, "method": {"name": "fedavg", "scale": 5.0}, "eval": {"every": 3}}
    values["clients"] = {**BASE["clients"], "per_round": 3, "drift": drift}
    whole = so.run(so.Experiment.of(values), data=toy, device="cpu")
    asked = iter([False, False, False, True])
    with pytest.raises(so.Interrupted):
        so.run(
            so.Experiment.of(values),
            data=toy,
            device="cpu",
            out=tmp_path / "run",
            stop=lambda: next(asked),
        )
    resumed = so.resume(tmp_path / "run", data=toy, device="cpu")
    assert all(torch.equal(whole.state.dense[n], resumed.state.dense[n]) for n in whole.state.dense)
    assert resumed.summary["client_state_bytes"] == whole.summary["client_state_bytes"] > 0


def test_a_client_that_breaks_keeps_its_state_and_the_others_go_on() -> None:
    f = federation(InEncoder(), {"name": "scaffold"}, clients={"per_round": "all"})
    state = fresh(f)
    run_round(f, state)
    before = state.clients["weight"].of(torch.tensor([1]), like=state.dense["weight"]).clone()
    x = f.data.columns["x"]
    assert isinstance(x, Dense)
    x.values[SIZES[0] : SIZES[0] + SIZES[1]] = float("nan")
    run_round(f, state)
    assert state.refused == {"not finite": 1}
    assert torch.equal(state.clients["weight"].of(torch.tensor([1]), like=state.dense["weight"]), before)
    assert bool(state.dense["weight"].isfinite().all())
    assert bool(state.control["weight"].isfinite().all())


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        (["clients.drift=scaffold", "clients.momentum=0.9"], "plain SGD on clients"),
        (["clients.drift=scaffold", "clients.optimizer=adam"], "plain SGD on clients"),
        (["clients.drift=feddyn", "server.lr=0.5"], "sets the server's model itself"),
        (["clients.drift=feddyn", "server.optimizer=adam"], "sets the server's model itself"),
        (
            ["clients.drift=scaffold", "privacy.clip=1", "privacy.noise=1", *NO_PRIOR],
            "keeps states that noise would drive off their mean",
        ),
        (
            ["clients.drift=feddyn", "privacy.clip=1", "privacy.noise=1", *NO_PRIOR],
            "keeps states that noise would drive off their mean",
        ),
    ],
)
def test_optimisers_that_do_not_go_with_a_correction_are_refused(
    overrides: list[str], said: str, toy: Splits
) -> None:
    with pytest.raises(so.UserError, match=said):
        build_federation(so.Experiment.of(BASE, overrides=overrides), toy, CPU)


def test_a_correction_that_keeps_a_state_must_say_what_it_does_with_it() -> None:
    class Forgetful(so.DriftCorrection):
        keeps_state: ClassVar[bool] = True
        name: Literal["forgetful"] = "forgetful"

    with pytest.raises(so.UserError, match="Forgetful: keeps_state, but has no offset"):
        so.register_drift_correction(Forgetful)
    assert "forgetful" not in DRIFT_CORRECTIONS


def test_a_correction_is_named_like_any_other_part() -> None:
    assert list(DRIFT_CORRECTIONS) == ["feddyn", "fedprox", "scaffold"]
    e = so.Experiment.of(BASE, overrides=["clients.drift=fedprox", "clients.drift.mu=0.3"])
    assert e.clients.drift is not None
    assert e.clients.drift.pull == 0.3
    assert so.Experiment.of(e.model_dump(mode="json", exclude_none=True)) == e
    with pytest.raises(so.UserError, match=r"clients.drift = 'fedprx': unknown; did you mean 'fedprox'"):
        so.Experiment.of(BASE, overrides=["clients.drift=fedprx"])


@pytest.mark.parametrize("executor", ["simulator", "sequential"])
@pytest.mark.parametrize("twin", ["scaffold", "feddyn"])
def test_refused_updates_leave_the_control_the_mean_of_the_states(twin: str, executor: str) -> None:
    """Nobody keeps what the server refused: a control off the mean would never come back to it."""
    f = federation(
        InEncoder(weighting="examples"),
        TWINS[twin][0],
        clients={"max_update_norm": 1.4},
        run={"executor": executor},
    )
    state = fresh(f)
    for _ in range(12):
        run_round(f, state)
    assert 0 < sum(state.refused.values()) < 12 * len(SIZES)
    kept = state.clients["weight"].of(torch.arange(len(SIZES)), like=state.dense["weight"])
    mean = torch.einsum("k,kij->ij", torch.from_numpy(shares("examples")).float(), kept)
    torch.testing.assert_close(mean, state.control["weight"], atol=1e-5, rtol=1e-4)


def test_states_are_kept_by_client_and_replaced_by_newer_ones() -> None:
    rng = np.random.default_rng(0)
    kept: PerClient | None = None
    expected: dict[int, float] = {}
    for _ in range(20):
        clients = np.sort(rng.choice(30, size=4, replace=False))
        values = rng.normal(size=(4, 1))
        new = PerClient(torch.from_numpy(clients), torch.from_numpy(values))
        kept = new if kept is None else kept.updated(new)
        expected |= dict(zip(clients.tolist(), values[:, 0].tolist(), strict=True))
    assert kept is not None
    assert kept.clients.tolist() == sorted(expected)
    found = kept.of(torch.arange(30), like=torch.zeros(1, dtype=torch.float64))[:, 0].tolist()
    assert found == [expected.get(i, 0.0) for i in range(30)]
