"""Noise on the server's sum: on every row, in every round, of the size that is claimed; and attacked."""

import dataclasses
import itertools

import numpy as np
import pytest
import torch
from torch import Tensor

import spreadout as so
from spreadout.core.state import ServerState
from spreadout.data.splits import Splits
from spreadout.federated import central
from spreadout.federated.aggregate import Aggregate, total
from spreadout.federated.cohort import Cohort
from spreadout.federated.federation import Federation
from spreadout.federated.round import run_round
from spreadout.privacy.canary import least_epsilon
from spreadout.privacy.lazy_noise import OwedNoise
from spreadout.runs.build import build_federation
from toys import several_classes, shop, shop_config

PRIVATE = {"model": "central", "clip": 0.3, "noise": 1.0}


def federation(data: Splits | None = None, **changes: object) -> Federation:
    values: dict[str, object] = {
        "model": {"hidden": [5], "dim": 4},
        "clients": {"per_round": 3, "batch": 3, "lr": 0.3},
        "server": {"optimizer": "sgd", "lr": 1.0},
        "method": {"name": "fedss", "negatives": 2},
        "privacy": PRIVATE,
        "chosen": [],
    }
    return build_federation(
        so.Experiment.of({**values, **changes}), data or several_classes(), torch.device("cpu")
    )


def fresh(f: Federation) -> ServerState:
    return ServerState(0, *f.model.initial(0, f.device))


def raw(f: Federation, state: ServerState) -> Tensor:
    """All rows as they add up, with all their noise."""
    central.settle_all_(f, state)
    owed = OwedNoise.of(state.tables["classes"], state.central, "classes", sphere=True)  # type: ignore[arg-type]
    return owed.raw(owed.every)


def summed(f: Federation, state: ServerState, cohort: Cohort) -> Aggregate:
    return total(f.executor.train(f, state, cohort))


def trained(f: Federation, rounds: int, *, settled: bool = False) -> ServerState:
    state = fresh(f)
    for _ in range(rounds):
        run_round(f, state)
        if settled:
            central.settle_all_(f, state)
    return state


def test_lazy_noise_read_in_every_round_is_noise_on_the_whole_table(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    f = federation()
    lazy = trained(f, 5, settled=True)

    def whole(f: Federation, state: ServerState, name: str, rate: float, *rest: object) -> None:
        central._whole_step_(f, state, name, f.optimizers_at(0).tables[name], *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(central, "_lazy_step_", whole)
    slow = trained(f, 5)
    torch.testing.assert_close(lazy.tables, slow.tables, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(lazy.dense, slow.dense, rtol=1e-4, atol=1e-5)
    assert float(slow.central["owed/classes"]) == 0.0  # it owes nothing: noise is there at once


def test_unread_rows_are_owed_the_variance_of_every_round() -> None:
    f = federation()
    state, start = fresh(f), fresh(f)
    for _ in range(4):
        run_round(f, state)
    deviation = PRIVATE["noise"] * PRIVATE["clip"] / 3  # type: ignore[operator]
    assert float(state.central["owed/classes"]) == pytest.approx(4 * deviation**2)
    assert bool((raw(f, state) != start.tables["classes"]).all())  # not one number without noise


def test_a_round_with_nobody_releases_noise() -> None:
    f = federation(clients={"per_round": 1, "batch": 3, "lr": 0.3})
    state = fresh(f)
    sizes = []
    for _ in range(8):
        before = {name: value.clone() for name, value in state.dense.items()}
        report = run_round(f, state)
        sizes.append(report.clients)
        assert all(bool((state.dense[name] != value).any()) for name, value in before.items())
    assert 0 in sizes
    assert max(sizes) > 1  # their number varies, as Poisson's does
    assert central.releases_of(state) == 8


@pytest.mark.parametrize("dropped", [0, 3])
def test_without_noise_one_client_moves_the_sum_by_its_clip_and_no_more(dropped: int) -> None:
    """Dense part and rows together, whatever the client has: that is what the noise is measured by."""
    clients = {"per_round": "all", "batch": 3, "lr": 30.0}
    f = federation(privacy={**PRIVATE, "noise": 0.0, "clip": 0.3}, clients=clients)
    state, other = fresh(f), fresh(f)
    whole = f.executor.cohort(f, state)
    rest = whole.select(np.flatnonzero(np.arange(6) != dropped))
    for one, cohort in ((state, whole), (other, rest)):
        central.settle_requested_(f, one, cohort)
        central.step_(f, one, summed(f, one, cohort))
    moved = [(state.dense[name] - other.dense[name]).flatten() for name in state.dense]
    moved.append((raw(f, state) - raw(f, other)).flatten())
    length = float(torch.cat(moved).norm())
    assert 0.2 / 6 < length <= 0.3 / 6 * (1 + 1e-5)


@pytest.mark.parametrize(
    ("method", "server"),
    [
        ({"name": "fedaws"}, {"optimizer": "sgd"}),
        ({"name": "fedavg"}, {"optimizer": "adam", "lr": 0.1}),
        ({"name": "fedss", "negatives": 2}, {"optimizer": "sgd", "momentum": 0.9}),
        ({"name": "fedavg"}, {"optimizer": "sgd", "lr_decay": "cosine"}),
    ],
    ids=["spreadout reads all rows", "adam", "momentum", "falling rate"],
)
def test_methods_and_server_optimisers_train_under_it(
    method: dict[str, object], server: dict[str, object]
) -> None:
    f = federation(method=method, server=server)
    state = trained(f, 3)
    rows = state.tables["classes"]
    central.settle_all_(f, state)
    assert bool(rows.isfinite().all())  # type: ignore[union-attr]
    torch.testing.assert_close(rows.norm(dim=1), torch.ones(8))  # type: ignore[union-attr]
    if not f.optimizers_at(0).tables["classes"].is_plain:
        assert float(state.central["owed/classes"]) == 0.0  # noise on the whole table


def test_a_table_off_the_sphere_is_noised_too() -> None:
    config = shop_config(
        privacy=PRIVATE, method={"name": "dual_encoder", "loss_form": "sampled_softmax"}
    )
    f = build_federation(config, shop(), torch.device("cpu"))
    state, start = fresh(f), fresh(f)
    run_round(f, state)
    central.settle_all_(f, state)
    assert "length/classes" not in state.central or "classes" in f.model.sphere
    assert bool((state.tables["classes"] != start.tables["classes"]).any(dim=1).all())  # type: ignore[union-attr]


# --- attacks: a membership test over many runs of a tiny problem -------------------------------------

TRIALS = 150  # of each world: half choose the threshold, half show at most ε = 2.3
DELTA = 1e-6


def shown(f: Federation, *, real: bool = False) -> float:
    """ε at least, by how far the last client's own row went, and how far the model went its way.

    real: whether noise is that of a deployment's server.
    """
    begun = fresh(f)
    start, everyone = _flat(f, begun), f.executor.cohort(f, begun)
    sums = [summed(f, begun, everyone.select(np.arange(members))) for members in (6, 5)]
    quiet = [_released(_noised(f, 0.0), begun, aggregate) for aggregate in sums]
    way, row = quiet[0] - quiet[1], slice(6 * 4, 7 * 4)
    if real:
        server = dataclasses.replace(f.server, real_noise=True)
        f = dataclasses.replace(f, server=server, executor=so.Sequential())  # update by update, as there
        sums = [summed(f, begun, everyone.select(np.arange(members))) for members in (6, 5)]
    scores = []
    for aggregate in sums:
        seeds = (dataclasses.replace(f, seed=trial) for trial in range(TRIALS))
        moved = [_released(one, begun, aggregate) - start for one in seeds]
        scores.append(np.array([(float(one[row].norm()), float(one @ way)) for one in moved]).T)
    return max(least_epsilon(one, other, DELTA) for one, other in zip(*scores, strict=True))


def _noised(f: Federation, noise: float) -> Federation:
    assert f.clients.privacy is not None
    privacy = f.clients.privacy.model_copy(update={"noise": noise})
    return dataclasses.replace(f, clients=dataclasses.replace(f.clients, privacy=privacy))


def _released(f: Federation, begun: ServerState, aggregate: Aggregate) -> Tensor:
    """The whole model after one round that came to this sum."""
    dense, tables = ({n: v.clone() for n, v in part.items()} for part in (begun.dense, begun.tables))  # type: ignore[union-attr]
    state = ServerState(0, dense, tables)  # type: ignore[arg-type]
    central.step_(f, state, aggregate)
    return _flat(f, state)


def _flat(f: Federation, state: ServerState) -> Tensor:
    """Rows first."""
    return torch.cat([raw(f, state).flatten(), *(value.flatten() for value in state.dense.values())])


@pytest.fixture
def attacked() -> Federation:
    """Class 6 is the last client's alone. One round of everyone with noise 5: ε = 0.83 at δ = 1e-6."""
    data = several_classes()
    y = np.array([0] * 7 + [1] * 4 + [2] * 12 + [3] * 5 + [4] * 6 + [6] * 3)
    x = np.random.default_rng(0).normal(size=(37, 6)).astype(np.float32)
    client = np.repeat(np.arange(6), [7, 4, 12, 5, 6, 3])
    train = so.FederatedDataset.from_arrays(x, y, client, classes=8)
    return federation(
        Splits("attacked", train, data.test),
        method={"name": "fedaws", "spreadout_form": "hinge"},
        clients={"per_round": "all", "local_steps": 1, "batch": "full", "lr": 0.3},
        privacy={**PRIVATE, "noise": 5.0, "delta": DELTA},
    )


def test_an_attack_on_who_was_there_stays_under_the_claim(attacked: Federation) -> None:
    assert shown(attacked) <= central.rounds_of(attacked).spent(5.0, 1, DELTA).epsilon


def test_the_same_attack_catches_noise_on_touched_rows_alone(
    attacked: Federation, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rows that moved are the rows of those who came: as many deviations of noise hide nothing."""
    sound = central._lazy_step_

    def touched_only(f: Federation, state: ServerState, name: str, rate: float, *rest: object) -> None:
        sound(f, state, name, rate, *rest)  # type: ignore[arg-type]
        owed = central._owed(f, state, name)
        untouched = torch.ones(len(owed.values), dtype=torch.bool)
        untouched[rest[0].ids] = False  # type: ignore[attr-defined]
        owed.paid[untouched] = owed.owed

    monkeypatch.setattr(central, "_lazy_step_", touched_only)
    assert shown(attacked) > 2 * central.rounds_of(attacked).spent(5.0, 1, DELTA).epsilon


def test_the_same_attack_catches_noise_that_is_too_small(attacked: Federation) -> None:
    claim = central.rounds_of(attacked).spent(5.0, 1, DELTA).epsilon
    assert shown(_noised(attacked, 0.3)) > claim


@pytest.mark.parametrize("noise", [5.0, 0.3])
def test_the_same_attack_on_a_real_servers_noise(
    attacked: Federation, noise: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Under the claim where there is as much noise as was claimed; and it would be found if there were less."""
    keystream = pytest.importorskip("spreadout.privacy.keystream")
    keys = (number.to_bytes(keystream.KEY_BYTES, "big") for number in itertools.count())
    made = keystream.KeyStream
    monkeypatch.setattr(keystream, "KeyStream", lambda: made(next(keys)))  # the same in every test run
    claim = central.rounds_of(attacked).spent(5.0, 1, DELTA).epsilon
    assert (shown(_noised(attacked, noise), real=True) <= claim) == (noise == 5.0)
