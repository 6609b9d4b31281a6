"""Features of any scale: what clients say of theirs is what one place would see."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from sklearn.datasets import load_breast_cancer, load_wine
from sklearn.preprocessing import StandardScaler

import spreadout as so
from spreadout.config import sound
from spreadout.core.state import ServerState
from spreadout.data.columns import Dense
from spreadout.data.moments import as_they_are, factor_of, moments
from spreadout.data.tails import shortened, to_power, with_roots
from spreadout.federated.aggregate import Aggregate
from spreadout.federated.augment import Augment
from spreadout.federated.cohort import Cohort
from spreadout.federated.federation import Federation
from spreadout.federated.input_scale import EXAMPLES, MEAN, VARIANCE, InputScale, messages_of
from spreadout.federated.robust import TrimmedMean
from spreadout.federated.robust.groups import Groups
from spreadout.federated.round import run_round, run_setup
from spreadout.federated.setup import client_setup
from spreadout.models.nn.scaling import FURTHEST, Standardized
from spreadout.runs.build import build_federation
from spreadout.runs.evidence import channels
from spreadout.runtime.sequential import Sequential
from toys import several_classes

SCALES = np.array([1e-4, 1.0, 1e4, 1e-2, 50.0, 1e3], np.float32)


def uneven(seed: int = 0) -> so.Splits:
    """Six classes, a client each, by features whose scales and places differ by eight orders."""
    rng = np.random.default_rng(seed)
    y = np.tile(np.arange(6), 30)
    x = (np.eye(6)[y] * 3 + rng.normal(size=(len(y), 6)) + 7) * SCALES
    train = so.FederatedDataset.from_arrays(x[:120].astype(np.float32), y[:120], client=y[:120])
    return so.Splits("uneven", train, so.Examples.from_arrays(x[120:].astype(np.float32), y[120:]))


def long_tailed(seed: int = 0) -> so.Splits:
    """The same classes by features of one sign and of both, with long tails, longer ones and none."""
    rng = np.random.default_rng(seed)
    y = np.tile(np.arange(6), 50)
    plain = np.eye(6)[y] * 3 + rng.normal(size=(len(y), 6))
    x = np.exp(plain * [1, 1.5, 3, 1.5, 1, 0.2]) * [1, 1, 1, 1e6, -1, 1]
    x = x.astype(np.float32)
    train = so.FederatedDataset.from_arrays(x[:200], y[:200], client=y[:200])
    return so.Splits("long-tailed", train, so.Examples.from_arrays(x[200:], y[200:]))


ROOTS = {"input_scaling": "roots"}


def config(**sections: object) -> so.Experiment:
    return so.Experiment.of({"method": {"name": "fedaws"}, **sections})


@given(
    arrays.arrays(np.float32, st.tuples(st.integers(1, 30), st.integers(1, 4)), elements=st.floats(-1e3, 1e3, width=32)),
    st.integers(1, 7),
)  # fmt: skip
def test_moments_of_blocks_are_those_of_all(x: np.ndarray, block: int) -> None:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("spreadout.data.moments.AT_ONCE", block * x.shape[1])
        mean, variance = moments(Dense(torch.from_numpy(x)), torch.arange(len(x)))
    np.testing.assert_allclose(mean, x.astype(np.float64).mean(0), rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(variance, x.astype(np.float64).var(0), rtol=1e-6, atol=1e-6)


def test_clients_together_say_what_one_place_sees() -> None:
    data = uneven().train
    scale = InputScale(6, cap=None, robust=False)
    rest = list(scale.taken_from({**said, "other": np.zeros(1)} for said in messages_of(data)))
    assert [set(message) for message in rest] == [{"other"}] * data.clients
    mean, variance = scale.together()
    by_hand = StandardScaler().fit(data.columns["x"].take(torch.arange(data.examples)).double())
    np.testing.assert_allclose(mean, by_hand.mean_, rtol=1e-5)
    np.testing.assert_allclose(variance, by_hand.var_, rtol=1e-5)
    assert scale.bytes == data.clients * (6 * 4 + 6 * 4 + 8)


@pytest.mark.parametrize("block", [1, 20, 10**6])
@pytest.mark.parametrize("robust", [False, True])
def test_clients_looked_at_together_say_what_each_says_alone(
    block: int, robust: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(0)
    owner = np.sort(rng.integers(0, 9, 60))
    owner[owner == 4] = 3  # a client without examples
    x = rng.normal(size=(60, 3)).astype(np.float32) * 5 + 100
    data = so.FederatedDataset.from_arrays(x, owner % 2, client=owner, classes=2)
    data = replace(data, offsets=torch.searchsorted(torch.from_numpy(owner), torch.arange(10)))
    monkeypatch.setattr("spreadout.federated.input_scale.AT_ONCE", block * 3)
    monkeypatch.setattr("spreadout.federated.input_scale.AT_A_TIME", 4)
    told = list(messages_of(data))
    assert [len(message) for message in told] == [3, 3, 3, 3, 0, 3, 3, 3, 3]
    for client, message in enumerate(told):
        if message:
            own = x[owner == client].astype(np.float64)
            np.testing.assert_allclose(message[MEAN], own.mean(0), rtol=1e-6)
            np.testing.assert_allclose(message[VARIANCE], own.var(0), rtol=1e-5, atol=1e-9)
            assert message[EXAMPLES] == len(own)
    scale = InputScale(3, cap=None, robust=robust)
    list(scale.taken_from(told))
    mean, variance = scale.together()
    if robust:
        weight = torch.tensor([float(m[EXAMPLES][0]) for m in told if m])
        values = torch.from_numpy(np.stack([m[MEAN] for m in told if m])).double()
        by_hand = TrimmedMean().centre(Groups.of(values, weight.double(), torch.tensor([8])))[0]
        torch.testing.assert_close(mean, by_hand)
    else:
        np.testing.assert_allclose(mean, x.astype(np.float64).mean(0), rtol=1e-6)
        np.testing.assert_allclose(variance, x.astype(np.float64).var(0), rtol=1e-5)


@pytest.mark.parametrize("roots", [False, True])
@pytest.mark.parametrize("block", [1, 10**6])
def test_clients_say_of_roots_what_one_place_sees(
    roots: bool, block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("spreadout.federated.input_scale.AT_ONCE", block * 6)
    data = long_tailed().train
    scale = InputScale(6, roots=roots, cap=None, robust=False)
    list(scale.taken_from(messages_of(data, roots=roots)))
    of = with_roots if roots else as_they_are
    expected = moments(data.columns["x"], torch.arange(data.examples), of)
    for found, right in zip(scale.together(), expected, strict=True):
        torch.testing.assert_close(found, right, rtol=1e-5, atol=0)
    assert scale.bytes == data.clients * ((4 if roots else 1) * 6 * (4 + 4) + 8)


def test_a_constant_feature_is_left_at_its_size() -> None:
    assert factor_of(torch.tensor([0.1, 0.0]), torch.tensor([1e-17, 0.0])).tolist() == [1, 1]


def test_the_model_holds_the_scale_and_nothing_moves_it() -> None:
    splits = uneven()
    result = so.run(config(rounds=3), data=splits)
    assert result.federation.model.encoder[0].__class__ is Standardized
    x = splits.train.columns["x"].take(torch.arange(splits.train.examples)).double()
    held = result.state.dense
    torch.testing.assert_close(held["0.mean"], x.mean(0).float())
    torch.testing.assert_close(held["0.factor"], 1 / x.std(0, correction=0).float())
    assert result.state.traffic.once_up >= 6 * (2 * 6 * 4 + 8)


def test_the_model_holds_which_roots_are_taken_and_nothing_moves_them() -> None:
    splits = long_tailed()
    result = so.run(config(rounds=3, model=ROOTS), data=splits)
    x = splits.train.columns["x"].take(torch.arange(splits.train.examples)).double()
    power, mean, variance = shortened(
        *moments(splits.train.columns["x"], torch.arange(len(x)), with_roots)
    )
    assert 1 / 9 < float(power.max()) == 1  # some features have a long tail and some have none
    assert float(power.min()) < 1 / 2
    held = result.state.dense
    torch.testing.assert_close(held["0.power"], power.float())
    torch.testing.assert_close(held["0.mean"], mean.float())
    root = to_power(x, power)
    torch.testing.assert_close(held["0.factor"], 1 / root.std(0, correction=0).float())
    layer = next(result.federation.model.encoder.children())
    assert isinstance(layer, Standardized)
    seen = torch.func.functional_call(
        layer, {name: held[f"0.{name}"] for name in ("mean", "factor", "power")}, (x.float(),)
    )
    by_hand = ((root - mean) / variance.sqrt()).clamp(-FURTHEST, FURTHEST).float()
    torch.testing.assert_close(seen, by_hand, rtol=1e-4, atol=1e-4)


def test_roots_of_long_tails_let_a_model_see_them() -> None:
    """Standardised, all but the largest values are alike."""
    splits = long_tailed()
    found = {
        how: so.run(config(model={"input_scaling": how}), data=splits).metrics["P@1"]
        for how in ("standard", "roots")
    }
    assert found["roots"] > found["standard"] + 5


def test_without_a_long_tail_roots_change_nothing() -> None:
    splits = uneven()
    plain, roots = (
        so.run(config(rounds=5, model={"input_scaling": how}), data=splits).state
        for how in ("standard", "roots")
    )
    assert roots.dense["0.power"].tolist() == [1] * 6
    for name, value in plain.dense.items():
        torch.testing.assert_close(roots.dense[name], value, rtol=1e-4, atol=1e-5)
    for name, table in plain.tables.items():
        torch.testing.assert_close(roots.tables[name], table, rtol=1e-4, atol=1e-5)


def test_a_saved_model_takes_the_same_roots(tmp_path: Path) -> None:
    splits = long_tailed()
    result = so.run(config(rounds=5, model=ROOTS), data=splits, out=tmp_path / "run")
    x = splits.test.inputs["x"].take(torch.arange(len(splits.test)))
    torch.testing.assert_close(so.load(tmp_path / "run").scores(x), result.predictor.scores(x))
    assert result.state.dense["0.power"].min() < 1


def test_an_own_encoder_takes_roots_too() -> None:
    splits = long_tailed()
    own = torch.nn.Sequential(so.Standardized(6, roots=True), torch.nn.Linear(6, 8))
    result = so.run(config(rounds=3), data=splits, encoder=own)
    asked = so.run(config(rounds=3, model=ROOTS), data=splits)
    assert torch.equal(result.state.dense["0.power"], asked.state.dense["0.power"])


def test_the_scale_of_features_does_not_matter() -> None:
    """The same data at one scale: the same model, but for rounding."""
    splits = uneven()
    plain = so.run(config(rounds=100), data=splits)
    x = splits.train.columns["x"]
    assert isinstance(x, Dense)
    even = replace(x, values=x.values / torch.from_numpy(SCALES))
    test = splits.test.inputs["x"]
    assert isinstance(test, Dense)
    tested = replace(
        splits.test, inputs={"x": replace(test, values=test.values / torch.from_numpy(SCALES))}
    )
    train = replace(splits.train, columns={**splits.train.columns, "x": even})
    other = so.run(config(rounds=100), data=replace(splits, train=train, test=tested))
    assert plain.summary["metrics"]["P@1"] == pytest.approx(other.summary["metrics"]["P@1"], abs=4)
    assert plain.summary["metrics"]["P@1"] > 85
    raw = so.run(config(rounds=100, model={"input_scaling": "none"}), data=splits)
    assert raw.summary["metrics"]["P@1"] < 60  # why it is scaled


@pytest.mark.parametrize("executor", ["simulator", "sequential"])
@pytest.mark.parametrize("method", ["fedaws", "fedss", "fedmlh", "fedavg", "centralized"])
@pytest.mark.parametrize("scaling", ["standard", "roots"])
def test_executors_agree(method: str, executor: str, scaling: str) -> None:
    data = uneven() if scaling == "standard" else long_tailed()
    values = {"rounds": 3, "method": {"name": method}, "model": {"input_scaling": scaling}}
    run = {"executor": executor}
    found = so.run(so.Experiment.of({**values, "run": run}), data=data).state
    run = {"executor": "sequential"}
    expected = so.run(so.Experiment.of({**values, "run": run}), data=data).state
    for name, value in expected.dense.items():
        # Sums in another order: where a gradient is nearly zero, Adam's step is made of its last bits.
        torch.testing.assert_close(found.dense[name], value, rtol=1e-3, atol=1e-3)
        near = torch.isclose(found.dense[name], value, rtol=1e-3, atol=1e-4)
        assert float(near.double().mean()) > 0.99


def said(mean: float, variance: float, examples: int = 10, width: int = 3) -> dict[str, np.ndarray]:
    return {
        MEAN: np.full(width, mean, np.float32),
        VARIANCE: np.full(width, variance, np.float32),
        EXAMPLES: np.array([examples], np.int64),
    }


@pytest.mark.parametrize(
    "message",
    [
        said(np.nan, 1),
        said(np.inf, 1),
        said(1, np.nan),
        said(1, -1),
        said(0, 1, 0),
        said(0, 1, 2**31),
        said(0, 1, width=2),
        {**said(0, 1), MEAN: np.zeros(3)},
        {MEAN: np.zeros(3, np.float32)},
    ],
)
def test_what_is_no_scale_is_refused_and_counted(message: dict[str, np.ndarray]) -> None:
    scale = InputScale(3, cap=None, robust=False)
    list(scale.taken_from([said(1, 4), message]))
    state = so.ServerState(round=0, dense={"mean": torch.zeros(3), "factor": torch.ones(3)}, tables={})
    scale.write_(state, "")
    assert state.refused == {"input scale: malformed": 1}
    assert state.dense["mean"].tolist() == [1] * 3
    assert state.dense["factor"].tolist() == [0.5] * 3


def test_a_hostile_client_cannot_take_roots_of_all_features() -> None:
    """Nor away from those that need them: extremes are left out before tails are looked at."""
    splits = long_tailed()
    x, y = splits.train.columns["x"], splits.train.columns["y"]
    assert isinstance(x, Dense)
    split = replace(splits.train, columns={"x": x, "y": y}, offsets=torch.arange(0, 201, 10))
    honest = list(messages_of(split, roots=True))
    lie = said(1e18, 1e18, 2**30, width=24)
    for told in (honest, [*honest, lie]):
        scale = InputScale(6, roots=True, cap=10, robust=True)
        list(scale.taken_from(told))
        power, _, _ = shortened(*scale.together())
        assert float(power[1:4].max()) < 1  # the long ones; the others here are nearly so
        assert float(power[5]) == 1


def test_a_tenth_of_hostile_clients_cannot_hide_the_features() -> None:
    honest = [said(1 + 0.1 * i, 4) for i in range(9)]
    scale = InputScale(3, cap=10, robust=True)
    list(scale.taken_from([*honest, said(1e18, 1e18, 2**30)]))
    mean, variance = scale.together()
    assert torch.all((mean > 1) & (mean < 1.9))
    assert torch.all((variance > 3.5) & (variance < 5))


@pytest.mark.parametrize("scaling", ["standard", "roots"])
def test_privacy_and_a_scale_without_noise_do_not_go_together(scaling: str) -> None:
    values = {"model": {"input_scaling": scaling}, "privacy": {"clip": 1.0, "noise": 1.0}}
    with pytest.raises(so.UserError, match=rf'model.input_scaling = "{scaling}": .* with \[privacy\]'):
        so.run(
            so.Experiment.of({**values, "method": {"name": "fedaws", "prior": 0}}),
            data=several_classes(),
        )


def test_a_dropped_feature_counts_as_the_mean() -> None:
    layer = Standardized(4)
    x = torch.full((1, 1, 500, 4), 3.0)
    dropped = Augment(dropout=0.5, to_missing=True)(x, np.array([0]), seed=0, round=0)
    assert 0.4 < float(dropped.isnan().float().mean()) < 0.6
    found = layer(dropped.view(500, 4))
    assert set(found.unique().tolist()) == {0.0, 3.0}
    assert layer(torch.tensor([[99.0, -99, 0, torch.nan]])).tolist() == [[FURTHEST, -FURTHEST, 0, 0]]


@pytest.mark.parametrize("load", [load_wine, load_breast_cancer])
def test_tables_that_people_have(load: object) -> None:
    """Columns from 0.001 to 1000, classes on a client each, nothing set but the method."""
    found = load()  # type: ignore[operator]
    x, y = found.data.astype(np.float32), found.target
    order = np.random.default_rng(0).permutation(len(y))
    held, used = order[: len(y) // 4], order[len(y) // 4 :]
    train = so.FederatedDataset.from_arrays(x[used], y[used], client=y[used])
    splits = so.Splits("table", train, so.Examples.from_arrays(x[held], y[held]))
    result = so.run(config(), data=splits)
    assert result.summary["metrics"]["P@1"] > 93
    assert result.summary["references"]["ridge"]["metrics"]["P@1"] > 90


def test_a_client_cannot_move_the_scale() -> None:
    """Honest clients do not touch it, so Adam on the server would take full steps towards one that does."""
    splits = uneven()
    f = build_federation(sound.sound(config(rounds=5), splits), splits, torch.device("cpu"))
    dense, tables = f.model.initial(0, torch.device("cpu"))
    state = so.ServerState(0, dense, tables)
    run_setup(f, state)
    before = {name: state.dense[name].clone() for name in f.model.constant_dense}

    class Forging(Sequential):
        def train(
            self, federation: Federation, state: ServerState, cohort: Cohort
        ) -> Iterator[Aggregate]:
            for part in super().train(federation, state, cohort):
                for name in before:
                    part.dense[name] = part.dense[name] - 1e-4
                yield part

    forged = replace(f, executor=Forging())
    for _ in range(3):
        run_round(forged, state)
    assert len(before) == 2
    for name, value in before.items():
        assert torch.equal(state.dense[name], value)


def test_features_of_any_size_are_scaled() -> None:
    splits = uneven()
    x = splits.train.columns["x"]
    assert isinstance(x, Dense)
    large = replace(x, values=x.values * torch.tensor([1e12, 1, 1, 1e-12, 1, 1]))
    train = replace(splits.train, columns={**splits.train.columns, "x": large})
    scale = InputScale(6, cap=None, robust=False)
    list(scale.taken_from(messages_of(train)))
    mean, variance = scale.together()
    assert scale.refused == 0
    seen = ((large.values.double() - mean) * factor_of(mean, variance)).std(0, correction=0)
    torch.testing.assert_close(seen, torch.ones(6, dtype=torch.float64), rtol=1e-4, atol=0)


def test_what_hides_among_others_is_not_told_before_the_first_round() -> None:
    """Counts of a client's classes would tell what FedSS hides; moments of its features are told."""
    f = build_federation(
        sound.sound(so.Experiment.of({"method": {"name": "fedss"}}), uneven()),
        uneven(),
        torch.device("cpu"),
    )
    sent = next(client_setup(f, b""))
    assert set(sent) == {MEAN, VARIANCE, EXAMPLES}
    assert channels(f)["feature moments"].status == "disclosed"
    assert channels(f)["label counts"].status == "absent"
