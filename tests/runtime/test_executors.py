"""The fast executor is held to the plain one: same model, same bytes, same refusals."""

import dataclasses
import functools
from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import spreadout as so
from spreadout.core.ragged import Ragged, offsets_from_lengths
from spreadout.core.state import ServerState
from spreadout.core.types import Batch, Params, RowInfo, Tensors
from spreadout.data.columns import Dense, Sparse
from spreadout.data.dataset import FederatedDataset
from spreadout.data.held_out import Examples
from spreadout.data.splits import Splits
from spreadout.federated.cohort import draw_cohort
from spreadout.federated.federation import Federation
from spreadout.federated.round import run_round
from spreadout.methods import DualEncoder, FedAvg, FedAwS
from spreadout.methods.base import reads_params_via_model
from spreadout.models.embedding import EmbeddingModel
from spreadout.runs.build import build_federation
from spreadout.runtime.sequential import Sequential
from spreadout.runtime.simulator import fused
from spreadout.runtime.simulator.executor import Simulator
from spreadout.runtime.simulator.graphs import GraphCache, _update
from spreadout.runtime.simulator.implicit_first_layer import ImplicitOutputs
from spreadout.runtime.simulator.shared_encoder import Shared
from spreadout.runtime.simulator.staging import bytes_per_client, stage_round

NO_ROWS = RowInfo({}, {}, {}, {})  # of a model without tables


def federation(data: Splits, *overrides: str) -> Federation:
    base = {
        "model": {"hidden": [5], "dim": 4},
        "clients": {"per_round": "all", "batch": 3, "lr": 0.3},
        "method": {"name": "fedaws", "strength": 0.1},
    }
    return build_federation(so.Experiment.of(base, overrides=overrides), data, torch.device("cpu"))


def train(f: Federation, rounds: int = 4) -> tuple[ServerState, list[float]]:
    state = ServerState(0, *f.model.initial(f.seed, f.device))
    return state, [run_round(f, state).loss for _ in range(rounds)]


def assert_same(a: ServerState, b: ServerState) -> None:
    torch.testing.assert_close(a.dense, b.dense, rtol=1e-4, atol=2e-6)
    torch.testing.assert_close(a.tables, b.tables, rtol=1e-4, atol=2e-6)
    torch.testing.assert_close(a.method_tensors(), b.method_tensors(), rtol=1e-4, atol=2e-6)
    torch.testing.assert_close(a.control, b.control, rtol=1e-4, atol=2e-6)
    assert a.clients.keys() == b.clients.keys()
    for part, kept in a.clients.items():
        assert torch.equal(kept.clients, b.clients[part].clients)
        torch.testing.assert_close(kept.values, b.clients[part].values, rtol=1e-4, atol=2e-6)
    torch.testing.assert_close(vars(a.records), vars(b.records))
    torch.testing.assert_close(a.central, b.central, rtol=1e-4, atol=2e-6)
    assert a.traffic == b.traffic
    assert a.refused == b.refused


ARMS = {
    "fedaws, one epoch of ragged clients": [],
    "fedaws, five steps": ["clients.local_steps=5"],
    "fused: one step": ["clients.local_steps=1"],
    "fused: one full-batch step (FedSGD)": ["clients.local_steps=1", "clients.batch=full"],
    "fused: square loss, row rate of its own": ["clients.local_steps=1", "method.loss_form=square", "clients.row_lr=0.7"],
    "fused: momentum on clients is at rest": ["clients.local_steps=1", "clients.momentum=0.9"],
    "momentum on clients": ["clients.local_steps=4", "clients.momentum=0.9"],
    "adam on clients": ["clients.local_steps=3", "clients.optimizer=adam", "clients.lr=0.05"],
    "adam on clients, one step": ["clients.local_steps=1", "clients.optimizer=adam", "clients.lr=0.05"],
    "baseline-1": ["method.name=baseline-1"],
    "baseline-2, fused": ["method.name=baseline-2", "clients.local_steps=1"],
    "baseline-2": ["method.name=baseline-2"],
    "weighted by examples": ["method.weighting=examples"],
    "fedavg, all rows, softmax": ["method.name=fedavg", "method.scale=5"],
    "fedavg, one step": ["method.name=fedavg", "clients.local_steps=1"],
    "literal sum of rows": ["method.name=fedavg", "method.merge=sum", "server.momentum=0.9"],
    "rows through server adam": ["method.merge=weighted-mean", "server.optimizer=adam", "server.lr=0.1"],
    "absent clients": ["clients.per_round=2"],
    "weighted selection": ["clients.per_round=3", "clients.selection=weighted"],
    "fixed cohort": ["clients.per_round=2", "clients.selection=fixed"],
    "drop remainder leaves small clients out": ["clients.drop_remainder=true"],
    "norm limit refuses some": ["clients.max_update_norm=0.9"],
    "clipped and noised": ["privacy.clip=0.1", "privacy.noise=0.5", "method.prior=0"],
    "noise on the sum": ["privacy.model=central", "privacy.clip=0.1", "privacy.noise=0.5", "privacy.clip_quantile=0.5", "clients.per_round=3"],
    "noise on examples": ["privacy.model=example", "privacy.clip=0.5", "privacy.noise=0.5", "clients.local_steps=3", "method.prior=0"],
    "top-k spreadout": ["method.spreadout_form=topk", "method.k=2", "method.candidates=4"],
    "inputs corrupted": ["clients.input_noise=0.3", "clients.input_dropout=0.2"],
    "rates that fall": ["clients.lr_decay=cosine", "rounds=8"],
    "inputs corrupted, fused": ["clients.local_steps=1", "clients.input_noise=0.3"],
    "centralized": ["method.name=centralized", "method.scale=5"],
    "margins by frequency": ["method.margin=0.5", "method.margin_by_frequency=0.4", "clients.local_steps=3"],
    "margins by frequency, fused": ["method.margin=0.5", "method.margin_by_frequency=0.4", "clients.local_steps=1"],
    "adjusted logits": ["method.name=fedavg", "method.scale=5", "method.logit_adjustment=1"],
    "adjusted logits of a sample": ["method.name=fedss", "method.negatives=2", "method.scale=5", "method.logit_adjustment=1"],
    "sampled rows with spreadout": ["method.name=fedaws-softmax", "method.negatives=2", "method.scale=5", "clients.local_steps=1"],
    "fedaws sees rows": ["method.negatives=2", "clients.local_steps=3"],
    "fedaws sees rows, fused": ["method.negatives=2", "clients.local_steps=1", "method.weighting=examples"],
    "fedaws sees rows, a row's positives": ["method.negatives=2", "method.merge=positives"],
    "fedaws sees rows, clipped and noised": ["method.negatives=2", "privacy.clip=0.1", "privacy.noise=0.5", "method.prior=0"],
    "fedaws sees rows, noise on the sum": ["method.negatives=2", "method.merge=sum", "privacy.model=central", "privacy.clip=0.1", "privacy.noise=0.5", "clients.per_round=3"],
    "fedaws sees rows, norm limit": ["method.negatives=2", "method.negative_weight=0.02", "clients.max_update_norm=0.9"],
    "fedaws sees rows, median": ["method.negatives=2", "server.robust=median"],
    "adjusted logits of own rows": ["method.name=fedaws-softmax", "method.scale=5", "method.logit_adjustment=1", "clients.local_steps=1"],
    "adjusted logits, centralized": ["method.name=centralized", "method.scale=5", "method.logit_adjustment=1", "method.margin_by_frequency=0.2"],
    "spreadout weighted by frequency": ["method.weighted=true"],
    "both forms of spreadout": ["method.spreadout_form=both", "method.k=2"],
    "rows warmed up": ["clients.row_warmup=3", "clients.local_steps=1", "clients.row_lr=0.5"],
    "rows warmed up, several steps": ["clients.row_warmup=3", "clients.local_steps=3", "clients.lr_decay=linear"],
    "drawn by size": ["clients.per_round=3", "clients.selection=by_size", "method.weighting=examples"],
}  # fmt: skip


@pytest.mark.parametrize("arm", ARMS.values(), ids=ARMS.keys())
def test_the_simulator_equals_the_sequential_reference(toy: Splits, arm: list[str]) -> None:
    fast, fast_loss = train(federation(toy, *arm))
    slow, slow_loss = train(federation(toy, *arm, "run.executor=sequential"))
    assert_same(fast, slow)
    if "clients.max_update_norm=0.9" in arm:
        assert 0 < slow.refused["norm above limit"] < 4 * 5  # some of the five, in some of the rounds
    assert fast_loss == pytest.approx(slow_loss, rel=1e-4, nan_ok=True)  # a private run tells none


@pytest.mark.parametrize(
    "arm", ["fedaws, one epoch of ragged clients", "fused: one step", "fedavg, all rows, softmax"]
)
def test_chunks_of_any_size_give_the_same_model(toy: Splits, arm: str) -> None:
    f = federation(toy, *ARMS[arm])
    whole, _ = train(f)
    for memory in (1, 20_000):
        chunked, _ = train(dataclasses.replace(f, executor=Simulator(memory)))
        assert_same(whole, chunked)


@pytest.fixture
def pictures(toy_arrays: tuple[np.ndarray, np.ndarray, np.ndarray]) -> Splits:
    """The toy's labels and clients with images of eight pixels a side."""
    _, y, client = toy_arrays
    x = np.random.default_rng(5).normal(size=(len(y), 1, 8, 8)).astype(np.float32)
    x[:, 0, 0] += 2 * np.eye(8, dtype=np.float32)[y]
    return Splits("pictures", FederatedDataset.from_arrays(x, y, client), Examples.from_arrays(x, y))


SHARED_ENCODER = {
    "ragged clients": ["clients.batch=full"],
    "moved images, row rate of its own": ["clients.image_shift=1", "clients.row_lr=0.7"],
    "all rows, softmax": ["method.name=fedavg", "method.scale=5"],
    "weighted, in chunks": ["method.weighting=examples", "run.memory_gb=0.0002"],
    "server momentum": ["server.optimizer=sgd", "server.momentum=0.9"],
}


@pytest.mark.parametrize("arm", SHARED_ENCODER.values(), ids=SHARED_ENCODER.keys())
@pytest.mark.parametrize("encoder", ["convnet", "resnet8"])
def test_images_of_all_clients_go_through_the_encoder_at_once(
    pictures: Splits, encoder: str, arm: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    images = [f"model.encoder={encoder}", "model.dim=4", "clients.local_steps=1", "clients.lr=0.1"]
    images += ["model.width=4"] if encoder == "convnet" else []
    # A step whose length the server finds is told to the last digit, and rounding moves that.
    method = {"name": "fedaws", "strength": 0.1, "spreadout_step": "plain"}
    if "method.name=fedavg" in arm:
        method = {}
    base = {"clients": {"per_round": "all", "batch": 3}, "method": method}

    def federation(*more: str) -> Federation:
        experiment = so.Experiment.of(base, overrides=[*images, *arm, *more])
        return build_federation(experiment, pictures, torch.device("cpu"))

    shared: list[int] = []
    whole = fused.shared_outputs

    def counted(f: Federation, dense: Tensors, x: Tensor, filled: Tensor) -> Shared:
        shared.append(int(filled.sum()))
        return whole(f, dense, x, filled)

    monkeypatch.setattr(fused, "shared_outputs", counted)
    fast, fast_loss = train(federation(), rounds=2)
    assert shared  # else this compares one path with itself
    slow, slow_loss = train(federation("run.executor=sequential"), rounds=2)
    assert_same(fast, slow)
    assert fast_loss == pytest.approx(slow_loss, rel=1e-4)


@pytest.fixture
def words(toy_arrays: tuple[np.ndarray, np.ndarray, np.ndarray]) -> Splits:
    """The toy with sixty sparse features, some named twice, and an example without any."""
    _, y, client = toy_arrays
    rng = np.random.default_rng(3)
    lengths = rng.integers(1, 6, len(y))
    lengths[4] = 0
    ids = torch.from_numpy(
        np.concatenate([(7 * y[i] + rng.integers(0, 9, n)) for i, n in enumerate(lengths)])
    )
    weights = torch.from_numpy(rng.normal(1, 0.3, len(ids)))
    x = Sparse(ids, weights.float(), offsets_from_lengths(torch.from_numpy(lengths)), 60)
    label = torch.from_numpy(y)
    order = torch.from_numpy(rng.permutation(len(y)))  # stored in another order than clients hold them
    back = torch.argsort(order)
    columns = {"x": x.select(order).compact().select(back), "y": Dense(label)}
    held = FederatedDataset.by_owner(columns, torch.from_numpy(client), 6)
    shared = {**held.columns, "x": columns["x"]}
    examples = Examples({"x": x}, Ragged.from_lists([[c] for c in y]))
    return Splits("words", dataclasses.replace(held, columns=shared), examples)


IMPLICIT_FIRST_LAYER = {
    "five steps": ["clients.local_steps=5"],
    "an epoch of ragged clients, in chunks": ["run.memory_gb=0.00002"],
    "no hidden layer": ["model.hidden=[]"],
    "weighted, rates that fall": ["method.weighting=examples", "clients.lr_decay=cosine", "rounds=8"],
    "all rows, softmax": ["method.name=fedavg", "method.scale=5"],
    "sampled softmax": ["method.name=fedss", "method.negatives=2", "method.scale=5"],
    "fedaws sees rows": ["method.negatives=2", "method.negative_scale=5"],
    "server adam": ["server.optimizer=adam", "server.lr=0.1"],
}  # fmt: skip


@pytest.mark.parametrize("arm", IMPLICIT_FIRST_LAYER.values(), ids=IMPLICIT_FIRST_LAYER.keys())
def test_an_implicit_first_layer_equals_copies_of_it(
    words: Splits, arm: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    made = []
    real = ImplicitOutputs.weighted_sum
    monkeypatch.setattr(ImplicitOutputs, "weighted_sum", lambda self, w: made.append(1) or real(self, w))
    fast, fast_loss = train(federation(words, *arm))
    assert made
    slow, slow_loss = train(federation(words, *arm, "run.executor=sequential"))
    assert_same(fast, slow)
    assert fast_loss == pytest.approx(slow_loss, rel=1e-4)
    without = federation(words, *arm)
    copies, _ = train(dataclasses.replace(without, executor=Simulator()))
    assert_same(fast, copies)


def test_a_client_whose_steps_break_is_left_out_of_the_implicit_first_layer(words: Splits) -> None:
    f = federation(words, "clients.local_steps=3")
    broken = f.data.columns["x"]
    weights = broken.weights.clone()
    theirs = f.data.places_of(torch.tensor([3]))
    stored = broken.index[theirs[0]]
    weights[broken.offsets[stored] : broken.offsets[stored + 1]] = float("nan")
    columns = {**f.data.columns, "x": dataclasses.replace(broken, weights=weights)}
    f = dataclasses.replace(f, data=dataclasses.replace(f.data, columns=columns))
    fast, _ = train(f, 1)
    slow, _ = train(dataclasses.replace(f, executor=Sequential()), 1)
    assert fast.refused == slow.refused
    assert sum(fast.refused.values()) == 2  # that one, and the one without examples
    assert_same(fast, slow)


@pytest.mark.parametrize(
    "arm",
    [["clients.momentum=0.9"], ["clients.input_noise=0.1"], ["clients.max_update_norm=9"], ["clients.batch=12", "clients.local_steps=9"]],
    ids=["momentum", "noise", "norms checked", "more slots than features"],
)  # fmt: skip
def test_what_an_implicit_first_layer_cannot_do_trains_on_copies(
    words: Splits, arm: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        ImplicitOutputs, "weighted_sum", lambda *_: pytest.fail("took the implicit first layer")
    )
    fast, _ = train(federation(words, *arm))
    slow, _ = train(federation(words, *arm, "run.executor=sequential"))
    assert_same(fast, slow)


class Penalised(FedAvg):
    """FedAvg with a penalty on all that a client trains: its loss looks at the parameters themselves."""

    def loss(self, model: EmbeddingModel, params: Params, batch: Batch, info: RowInfo) -> Tensor:
        values = [*params.dense.values(), *params.rows.values()]
        penalty = sum((value.square().sum() for value in values), torch.zeros(()))
        return super().loss(model, params, batch, info) + 0.05 * penalty


PENALISED = {
    "dense inputs, five steps": ("toy", ["clients.local_steps=5"]),
    "dense inputs, one fused step": ("toy", ["clients.local_steps=1"]),
    "a first layer on sparse inputs": ("words", ["clients.local_steps=5"]),
    "one fused step of a lookup": ("words", ["model.encoder=lookup", "model.width=5", "clients.local_steps=1"]),
    "several steps of a lookup": ("words", ["model.encoder=lookup", "model.width=5", "clients.local_steps=3"]),
}  # fmt: skip


@pytest.mark.parametrize(("which", "arm"), PENALISED.values(), ids=PENALISED.keys())
def test_a_loss_that_looks_at_the_parameters_sees_all_of_them(
    which: str, arm: list[str], request: pytest.FixtureRequest
) -> None:
    data = request.getfixturevalue(which)
    states = {}
    for executor in ("simulator", "sequential"):
        e = so.Experiment.of(
            {"model": {"hidden": [5], "dim": 4}, "clients": {"batch": 3, "lr": 0.3}},
            overrides=["method.name=fedavg", *arm, f"run.executor={executor}"],
        )
        states[executor], _ = train(
            build_federation(e, data, torch.device("cpu"), method=Penalised(scale=5))
        )
    assert_same(states["simulator"], states["sequential"])


class MeanRow(FedAwS):
    """A penalty on the mean of the rows a client holds: padding among them would change it."""

    def loss(self, model: EmbeddingModel, params: Params, batch: Batch, info: RowInfo) -> Tensor:
        rows = params.rows["classes"]
        spread = rows.square().mean() + (rows.mean(0) - 0.3).square().sum()
        return super().loss(model, params, batch, info) + 0.5 * spread


@pytest.mark.parametrize("steps", [1, 5])
def test_a_loss_of_ones_own_sees_no_rows_but_its_clients(toy: Splits, steps: int) -> None:
    states = {}
    for executor in ("simulator", "sequential"):
        e = so.Experiment.of(
            {
                "model": {"hidden": [5], "dim": 4},
                "clients": {"batch": 3, "lr": 0.3, "local_steps": steps},
            },
            overrides=[f"run.executor={executor}"],
        )
        states[executor], _ = train(build_federation(e, toy, torch.device("cpu"), method=MeanRow()))
    assert_same(states["simulator"], states["sequential"])


class Skips(nn.Sequential):
    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = super().forward(x)
        return found + x[:, :4]


class Doubles(nn.Linear):
    def forward(self, x: Tensor) -> Tensor:
        return 2 * super().forward(x)


def hooked(*, before: bool) -> nn.Module:
    encoder = nn.Sequential(nn.Linear(60, 5), nn.ReLU(), nn.Linear(5, 4))
    if before:
        encoder.register_forward_pre_hook(lambda module, given: (given[0] * 1.5,))
    else:
        encoder[0].register_forward_hook(lambda module, given, made: made.tanh())
    return encoder


def tied() -> nn.Module:
    """Its first weight is that of another layer too."""
    first, again = nn.Linear(60, 5), nn.Linear(60, 5)
    again.weight = first.weight

    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer, self.kept = nn.Linear(5, 4), again

        def forward(self, x: Tensor) -> Tensor:
            found: Tensor = self.layer(x) + 0.02 * self.kept.weight.sum()
            return found

    return nn.Sequential(first, Twice())


def frozen() -> nn.Module:
    encoder = nn.Sequential(nn.Linear(60, 5), nn.ReLU(), nn.Linear(5, 4))
    encoder[0].weight.requires_grad_(False)
    return encoder


OWN_ENCODERS = {
    "a sequence that skips": lambda: Skips(nn.Linear(60, 5), nn.ReLU(), nn.Linear(5, 4)),
    "a layer of another kind": lambda: nn.Sequential(Doubles(60, 5), nn.ReLU(), nn.Linear(5, 4)),
    "a hook before": lambda: hooked(before=True),
    "a hook on the layer": lambda: hooked(before=False),
    "a weight used twice": tied,
    "a frozen layer": frozen,
    "weight norm": lambda: nn.Sequential(
        nn.utils.parametrizations.weight_norm(nn.Linear(60, 5)), nn.ReLU(), nn.Linear(5, 4)
    ),
}


@pytest.mark.parametrize("kind", OWN_ENCODERS.values(), ids=OWN_ENCODERS.keys())
def test_an_encoder_that_is_more_than_its_layers_is_left_whole(
    words: Splits, kind: Callable[[], nn.Module]
) -> None:
    torch.manual_seed(0)
    encoder, states = kind(), {}
    for executor in ("simulator", "sequential"):
        e = so.Experiment.of(
            {
                "clients": {"batch": 3, "lr": 0.3, "local_steps": 5},
                "method": {"name": "fedavg", "scale": 5.0},
            },
            overrides=[f"run.executor={executor}"],
        )
        f = build_federation(e, words, torch.device("cpu"), encoder=encoder)
        states[executor], _ = train(f)
    assert_same(states["simulator"], states["sequential"])


class PerExample(FedAvg):
    """A loss that divides by the number of examples, as most people would write it."""

    @reads_params_via_model
    def loss(self, model: EmbeddingModel, params: Params, batch: Batch, info: RowInfo) -> Tensor:
        scores = 5 * model.embed(params, batch) @ params.rows["classes"].T
        each = nn.functional.cross_entropy(scores, batch["y"], reduction="none")
        return (each * batch["mask"]).sum() / batch["mask"].sum()


class Eager(GraphCache):
    """What a graph would replay, on any device."""

    def run(self, objective, training, inputs, places, about):  # type: ignore[no-untyped-def]
        clients = len(inputs["batches"]["mask"])
        return _update(objective, training, inputs, [min(count, clients) for count in places])


def test_steps_behind_a_gate_have_no_empty_batches(toy: Splits) -> None:
    e = so.Experiment.of({"model": {"hidden": [5], "dim": 4}, "clients": {"batch": 3, "lr": 0.1}})
    f = build_federation(e, toy, torch.device("cpu"), method=PerExample())
    replayed, loss = train(dataclasses.replace(f, executor=Simulator(graphs=Eager())))
    slow, slow_loss = train(dataclasses.replace(f, executor=Sequential()))
    assert_same(replayed, slow)
    assert loss == pytest.approx(slow_loss, rel=1e-4)
    assert "not finite" not in replayed.refused


def test_fast_paths_ask_whether_the_loss_looks_at_parameters() -> None:
    class Wrapped(FedAvg):
        @functools.wraps(FedAvg.loss)
        def loss(self, *given):  # type: ignore[no-untyped-def]
            return 2 * FedAvg.loss(self, *given)

    assert Wrapped().loss_reads_params  # a wrapper is not what it wraps
    assert not FedAvg().loss_reads_params
    assert Penalised().loss_reads_params  # an override says nothing, and so it may
    assert not DualEncoder().loss_reads_params
    assert DualEncoder(l2=0.1).loss_reads_params


def test_a_chunk_keeps_to_its_memory_budget(toy: Splits) -> None:
    f = federation(toy)
    state = ServerState(0, *f.model.initial(0, f.device))
    each = bytes_per_client(f, state, steps=4, width=3, row_counts={"classes": 3}, fuses=True)
    ready = stage_round(f, state, draw_cohort(f, 0), 2 * each)
    chunks = [len(chunk.clients) for chunk in ready.chunks]
    assert max(chunks) <= 2
    assert sum(chunks) == 5  # the empty client trains nowhere


def test_the_fused_path_needs_no_memory_for_copies_of_the_model(toy: Splits) -> None:
    fused, copied = federation(toy, "clients.local_steps=1"), federation(toy, "clients.local_steps=2")
    state = ServerState(0, *fused.model.initial(0, fused.device))
    dense = sum(value.numel() * 4 for value in state.dense.values())
    one = bytes_per_client(fused, state, steps=1, width=3, row_counts={"classes": 3}, fuses=True)
    two = bytes_per_client(copied, state, steps=2, width=3, row_counts={"classes": 3}, fuses=True)
    assert two - one > 5 * dense


def test_the_same_seed_gives_the_same_bits_and_another_does_not(toy: Splits) -> None:
    first, _ = train(federation(toy, "clients.per_round=3"))
    again, _ = train(federation(toy, "clients.per_round=3"))
    other, _ = train(federation(toy, "clients.per_round=3", "seed=1"))
    assert all(torch.equal(first.dense[name], again.dense[name]) for name in first.dense)
    assert torch.equal(first.tables["classes"], again.tables["classes"])
    assert not torch.equal(first.tables["classes"], other.tables["classes"])


def test_bf16_learns_what_float32_learns(toy: Splits) -> None:
    full, full_loss = train(federation(toy, "clients.local_steps=3"), rounds=8)
    half, half_loss = train(federation(toy, "clients.local_steps=3", "run.precision=bf16"), rounds=8)
    assert half.dense.keys() == full.dense.keys()
    assert all(value.dtype == torch.float32 for value in half.dense.values())  # master copies stay full
    assert half_loss[-1] == pytest.approx(full_loss[-1], abs=0.03)
    assert half_loss[-1] != full_loss[-1]  # it was not computed in float32 after all


def test_a_client_that_breaks_is_refused_and_the_rest_trains_on(toy_arrays) -> None:  # type: ignore[no-untyped-def]
    x, y, client = toy_arrays
    for steps in (1, 3):
        data = Splits(
            "toy", so.FederatedDataset.from_arrays(x, y, client), so.Examples.from_arrays(x, y)
        )
        data.train.columns["x"].values[:7] = float("nan")  # client 0, after the door's own check
        states = []
        for executor in ("simulator", "sequential"):
            f = federation(
                data,
                f"clients.local_steps={steps}",
                f"run.executor={executor}",
                "method.name=baseline-1",
            )
            before = f.model.initial(f.seed, f.device)[1]["classes"]
            state, _ = train(f, rounds=2)
            states.append(state)
            assert state.refused == {"not finite": 2, "no examples": 2}
            assert all(bool(value.isfinite().all()) for value in state.dense.values())
            # Class 0 lives on clients 0 and 5: the healthy one still trains it.
            assert not torch.equal(state.tables["classes"][0], before[0])
        assert_same(*states)


def test_a_round_without_an_accepted_update_leaves_the_model_unchanged(toy: Splits) -> None:
    for executor in ("simulator", "sequential"):
        f = federation(toy, "clients.max_update_norm=1e-9", f"run.executor={executor}")
        state = ServerState(0, *f.model.initial(0, f.device))
        dense = {name: value.clone() for name, value in state.dense.items()}
        rows = state.tables["classes"].clone()
        report = run_round(f, state)
        assert report.accepted == 0
        assert report.refused == {"norm above limit": 5, "no examples": 1}
        assert state.round == 1
        assert all(torch.equal(state.dense[name], dense[name]) for name in dense)
        assert torch.equal(state.tables["classes"], rows)


def test_rows_of_absent_clients_stay_unchanged(toy: Splits) -> None:
    f = federation(toy, "clients.per_round=2", "method.name=baseline-1", "clients.selection=fixed")
    state = ServerState(0, *f.model.initial(0, f.device))
    before = state.tables["classes"].clone()
    run_round(f, state)
    moved = (state.tables["classes"] != before).any(1).nonzero()[:, 0].tolist()
    from spreadout.federated.sampling import sample_clients

    cohort = sample_clients("fixed", f.data.sizes, 2, seed=0, round=0)
    own = f.data.rows_of(cohort)["classes"].values.unique().tolist()
    assert moved == own
    assert len(own) < 6


def test_fedsgd_is_one_step_on_the_pooled_data(toy: Splits) -> None:
    """With n_i/n weights, the average of full-batch gradients is the gradient of the pooled mean."""
    settings = [
        "method.name=fedavg",
        "method.merge=sum",
        "clients.local_steps=1",
        "clients.batch=full",
    ]
    federated, _ = train(federation(toy, *settings), rounds=1)
    pooled, _ = train(federation(toy, *settings, "method.name=centralized"), rounds=1)
    torch.testing.assert_close(federated.dense, pooled.dense, rtol=1e-4, atol=1e-6)


def test_a_pooled_run_moves_no_bytes(toy: Splits) -> None:
    state, _ = train(federation(toy, "method.name=centralized"))
    assert state.traffic.down == state.traffic.up == 0


def test_places_in_a_graph_suffice_and_settle() -> None:
    """Cohorts come and go; the number of places soon stays as it is, and is never too small."""
    cache = GraphCache()
    draw = np.random.default_rng(0)
    before: tuple[int, ...] = ()
    changes = 0
    for _ in range(300):
        steps = draw.integers(1, 19, size=100)
        active = [int((steps > s).sum()) for s in range(steps.max())]
        places = cache.places(active)
        assert all(have >= count for have, count in zip(places, active, strict=False))
        assert len(places) >= len(active)
        assert list(places) == sorted(places, reverse=True)
        changes, before = changes + (places != before), places
    assert changes <= 5  # of 300
    # 53 of 100 are at work in a step's mean; the slack is 15, and some steps grew twice.
    assert sum(before) < 0.75 * 100 * len(before)


class Entangled(torch.nn.Module):
    """Parameters whose gradients are one tensor, or parts of one."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.one, self.other = (torch.nn.Parameter(torch.randn(6, 4)) for _ in range(2))
        self.upper, self.lower = (torch.nn.Parameter(torch.randn(3, 4)) for _ in range(2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.flatten(1)[:, :6] @ (self.one + self.other + torch.cat([self.upper, self.lower]))


def test_gradients_that_share_memory_are_left_whole() -> None:
    from spreadout.core.optimizers import Optimizer
    from spreadout.federated.local import LocalTraining, local_update

    encoder, adam = Entangled(), Optimizer(optimizer="adam", lr=0.1, beta2=0.999, eps=1e-8)
    x = torch.randn(4, 5, 6, generator=torch.Generator().manual_seed(1))
    batches = {"x": x, "mask": torch.ones(4, 5)}

    def objective(params, batch, info):  # type: ignore[no-untyped-def]
        return torch.func.functional_call(encoder, params.dense, (batch["x"],)).square().mean()

    dense = {name: value.detach().clone() for name, value in encoder.named_parameters()}
    change, _ = local_update(objective, LocalTraining(adam, {}), Params(dense, {}), batches, NO_ROWS)
    reference = torch.optim.Adam(encoder.parameters(), lr=0.1, betas=(0.9, 0.999), eps=1e-8)
    for step in x:
        reference.zero_grad()
        encoder(step).square().mean().backward()
        reference.step()
    for name, value in encoder.named_parameters():
        torch.testing.assert_close(dense[name] + change.dense[name], value.detach())
