"""The same claims on a GPU; skipped where there is none."""

import gc

import numpy as np
import pytest
import torch

import spreadout as so
from spreadout.core.rows import project_to_sphere
from spreadout.core.state import ServerState
from spreadout.core.types import Params
from spreadout.data.splits import Splits
from spreadout.federated.round import run_round
from spreadout.objectives.regularizers import FarPenalty, HingePenalty, all_pairs, mined_pairs
from spreadout.runs.build import build_federation
from spreadout.runtime.simulator.executor import Simulator
from spreadout.runtime.simulator.graphs import _Captured
from toys import (
    HASHED,
    LABEL_ARMS,
    label_sets,
    label_sets_config,
    shop,
    shop_config,
    tagged,
    tagged_config,
)

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device here")

ARMS = {
    "fedaws": ["clients.local_steps=4"],
    "fused": ["clients.local_steps=1"],
    "sees rows": ["method.negatives=2", "clients.local_steps=4"],
    "sees rows, fused": ["method.negatives=2", "clients.local_steps=1"],
    "topk": ["method.spreadout_form=topk", "method.k=2", "clients.local_steps=2"],
    "fedavg": ["method.name=fedavg", "method.scale=5", "server.optimizer=adam", "server.lr=0.1"],
    "in one place": [  # Adam goes on from round to round, through the graph's own copies too
        "method.name=centralized",
        "method.scale=5",
        "clients.local_steps=3",
        "clients.optimizer=adam",
        "clients.lr=0.01",
    ],
    "private": ["privacy.clip=0.1", "privacy.noise=0.5"],
    "fedprox": ["clients.local_steps=4", "clients.drift=fedprox", "clients.drift.mu=0.5"],
    "scaffold": ["clients.local_steps=4", "clients.drift=scaffold"],
    "scaffold, fedavg": [
        "method.name=fedavg",
        "method.scale=5",
        "clients.local_steps=3",
        "clients.drift=scaffold",
    ],
    "feddyn": ["clients.local_steps=4", "clients.drift=feddyn", "clients.drift.alpha=0.5"],
}


def train(data: Splits, device: str, arm: list[str]) -> ServerState:
    base = {
        "model": {"hidden": [5], "dim": 4},
        "clients": {"per_round": 4, "batch": 3, "lr": 0.3},
        "method": {"name": "fedaws", "strength": 0.1},
    }
    f = build_federation(so.Experiment.of(base, overrides=arm), data, torch.device(device))
    state = ServerState(0, *f.model.initial(f.seed, f.device))
    for _ in range(4):
        run_round(f, state)
    return state


@pytest.mark.parametrize("steps", [1, 3])
@pytest.mark.parametrize("arm", ["fedalc", "mined", "sigma", "fixed", "private", "flag"])
def test_label_correlations_and_lookups_on_the_gpu(arm: str, steps: int) -> None:
    clients = {"per_round": 4, "batch": 8, "lr": 0.3, "local_steps": steps, "input_dropout": 0.3}
    states = {}
    for device, executor in (("cpu", "sequential"), ("cuda", "simulator"), ("cuda:0", "simulator")):
        experiment = tagged_config(LABEL_ARMS[arm], clients=clients, run={"executor": executor})
        f = build_federation(experiment, tagged(), torch.device(device))
        state = ServerState(0, *f.model.initial(f.seed, f.device))
        for _ in range(3):
            run_round(f, state)
        states[device] = state
    for name, table in states["cpu"].tables.items():
        torch.testing.assert_close(states["cuda"].tables[name].cpu(), table, rtol=1e-3, atol=1e-5)
        assert torch.equal(states["cuda"].tables[name], states["cuda:0"].tables[name])
    assert states["cuda"].traffic == states["cpu"].traffic


@pytest.mark.parametrize("asks", ["own", "seen"])
def test_pooled_lookups_on_the_gpu(asks: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from spreadout.runtime.simulator.pooled_lookup import PooledFeatures

    calls: list[int] = []
    true = PooledFeatures.row_sum
    monkeypatch.setattr(PooledFeatures, "row_sum", lambda *a: calls.append(1) or true(*a))
    clients = {"per_round": 10, "batch": 4, "lr": 0.3, "local_steps": 1, "request_features": asks}
    states = []
    for device, executor in (("cpu", "sequential"), ("cuda", "simulator"), ("cuda", "simulator")):
        experiment = tagged_config(
            {"name": "fedaws"}, clients=clients, run={"executor": executor}, rounds=6
        )
        f = build_federation(experiment, tagged(180, classes=12, features=60), torch.device(device))
        states.append(ServerState(0, *f.model.initial(f.seed, f.device)))
        for _ in range(6):
            run_round(f, states[-1])
    assert len(calls) == 12
    for name, table in states[0].tables.items():
        torch.testing.assert_close(states[1].tables[name].cpu(), table, rtol=1e-3, atol=1e-5)
        assert torch.equal(states[1].tables[name], states[2].tables[name])
    assert states[0].traffic == states[1].traffic


@pytest.mark.parametrize("method", ["fedmlh", "fedavg-bce"])
def test_bucket_networks_on_the_gpu(method: str) -> None:
    chosen = HASHED if method == "fedmlh" else {"name": method}
    results = [
        so.run(label_sets_config(chosen, rounds=4), data=label_sets(), device=d) for d in ("cpu", "cuda")
    ]
    for name, value in results[0].state.dense.items():
        torch.testing.assert_close(results[1].state.dense[name].cpu(), value, rtol=1e-2, atol=1e-4)


@pytest.mark.parametrize("arm", ARMS.values(), ids=ARMS.keys())
def test_the_gpu_trains_what_the_cpu_reference_trains_and_repeats_itself(
    toy: Splits, arm: list[str]
) -> None:
    slow = train(toy, "cpu", [*arm, "run.executor=sequential"])
    fast, again = train(toy, "cuda", arm), train(toy, "cuda", arm)
    for name, value in slow.dense.items():
        torch.testing.assert_close(fast.dense[name].cpu(), value, rtol=1e-3, atol=1e-5)
        assert torch.equal(fast.dense[name], again.dense[name])
    torch.testing.assert_close(
        fast.tables["classes"].cpu(), slow.tables["classes"], rtol=1e-3, atol=1e-5
    )
    assert torch.equal(fast.tables["classes"], again.tables["classes"])
    assert fast.traffic == slow.traffic


def test_spreadout_gradients_equal_the_cpus_in_float64() -> None:
    w = project_to_sphere(torch.randn(300, 16, dtype=torch.float64))
    anchors = torch.arange(0, 300, 7)
    for found, expected in [
        (all_pairs(w.cuda(), HingePenalty(1.1)), all_pairs(w, HingePenalty(1.1))),
        (
            mined_pairs(w.cuda(), anchors.cuda(), 9, FarPenalty()),
            mined_pairs(w, anchors, 9, FarPenalty()),
        ),
    ]:
        torch.testing.assert_close(found.value.cpu(), expected.value)
        assert torch.equal(found.gradient.ids.cpu(), expected.gradient.ids)
        torch.testing.assert_close(found.gradient.values.cpu(), expected.gradient.values)


def test_a_whole_run_on_the_gpu(tmp_path) -> None:  # type: ignore[no-untyped-def]
    """Digits learn to the same accuracy, and a resumed run ends bit-identical there too."""
    settings = ["rounds=40", "eval.every=10", "run.checkpoint_every=7"]
    whole = so.run(so.Experiment.load("digits-fedaws", settings), device="cuda", out=tmp_path / "whole")
    assert whole.metrics["P@1"] > 93
    rounds = iter(range(1, 100))
    with pytest.raises(so.Interrupted):
        so.run(
            so.Experiment.load("digits-fedaws", settings),
            device="cuda",
            out=tmp_path / "cut",
            stop=lambda: next(rounds) == 16,
        )
    resumed = so.resume(tmp_path / "cut", device="cuda")
    for name, value in whole.state.dense.items():
        assert torch.equal(resumed.state.dense[name], value)
    assert torch.equal(resumed.state.tables["classes"], whole.state.tables["classes"])


REPLAYED = [
    ("batch_softmax", {"lr": 0.1}, {}),
    ("hinge", {"lr": 0.1, "momentum": 0.9, "lr_decay": "cosine"}, {}),
    ("global_softmax", {"lr": 0.01, "optimizer": "adam", "lr_decay": "linear"}, {}),
    ("sampled_softmax", {"lr": 0.1}, {"memory_gb": 1e-5}),  # several chunks
]


@pytest.mark.parametrize(("loss", "clients", "run"), REPLAYED, ids=[case[0] for case in REPLAYED])
def test_replayed_steps_are_the_steps_themselves(
    loss: str, clients: dict[str, object], run: dict[str, object]
) -> None:
    states = []
    for graphs in (False, True):
        experiment = shop_config(
            rounds=4, method={"loss_form": loss}, clients=clients, run={**run, "graphs": graphs}
        )
        states.append(so.run(experiment, data=shop(users=30), device="cuda").state)
    torch.testing.assert_close(states[0].tables, states[1].tables, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(states[0].dense, states[1].dense, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("method", ["fedaws", "baseline-2", "centralized"])
@pytest.mark.parametrize("norm", ["batch", "group"])
def test_a_replayed_encoder_is_the_encoder_itself(norm: str, method: str) -> None:
    rng = np.random.default_rng(0)
    y = np.repeat(np.arange(4), 12)
    x = rng.integers(0, 256, (48, 3, 16, 16)).astype(np.uint8)
    train = so.FederatedDataset.from_arrays(x, y, client=y)
    data = Splits("pictures", train, so.Examples.from_arrays(x, y))
    states = []
    for graphs in (False, True):
        values = {
            "rounds": 6,
            "model": {"encoder": "resnet8", "norm": norm, "dim": 8},
            "method": {"name": method},
            "clients": {"local_steps": 1, "batch": 6, "lr": 0.5, "image_shift": 2},
            "server": {"lr": 0.05, "momentum": 0.9, "weight_decay": 1e-3},
            "run": {"graphs": graphs},
        }
        f = build_federation(so.Experiment.of(values), data, torch.device("cuda"))
        state = ServerState(0, *f.model.initial(f.seed, f.device))
        for _ in range(6):
            assert run_round(f, state).accepted == (1 if method == "centralized" else 4)
        states.append(state)
        assert isinstance(f.executor, Simulator)
        replays = f.executor.fused
        assert (replays is not None and replays._captured is not None) == graphs
    torch.testing.assert_close(states[0].dense, states[1].dense, rtol=1e-2, atol=1e-3)
    torch.testing.assert_close(states[0].tables, states[1].tables, rtol=1e-2, atol=1e-3)


def test_graphs_left_in_cycles_do_not_end_a_capture() -> None:
    inputs = {"dense": {"x": torch.ones(3, device="cuda")}}

    def work(given: dict[str, dict[str, torch.Tensor]]) -> tuple[Params, torch.Tensor]:
        kept = [[] for _ in range(1000)]  # type: ignore[var-annotated]  # the collector would set to work
        doubled = given["dense"]["x"] * (len(kept) // 500)
        return Params({"x": doubled}, {}), doubled.sum()

    class Left:
        def __init__(self) -> None:
            self.graph, self.me = _Captured(work, inputs), self

    before = gc.get_threshold()
    gc.set_threshold(1)
    try:
        for _ in range(3):
            Left()
        assert float(_Captured(work, inputs)(inputs)[1]) == 6
    finally:
        gc.set_threshold(*before)
