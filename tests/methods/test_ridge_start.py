"""A start by ridge regression is that of all examples in one place, and a bad message changes nothing."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits

import spreadout as so
from spreadout.core.errors import UserError
from spreadout.methods.fedaws import FedAwS
from spreadout.methods.ridge_start import CLASSES, LENGTHS, LITTLE, MOMENTS, SUMS, Sums, messages_of
from toys import tagged, tagged_config

LINEAR = {"encoder": "mlp", "hidden": [], "dim": 8}
RIDGE: dict[str, object] = {"name": "fedaws", "start": "ridge", "prior": 0.0}
# A round that moves nothing: what is there after it was there before.
STILL: dict[str, object] = {**RIDGE, "spreadout_step": "plain", "strength": 1e-12}
STANDING: dict[str, object] = {
    "rounds": 1,
    "clients": {"per_round": "all", "local_steps": 1, "lr": 1e-12, "row_lr": 1e-12},
    "server": {"optimizer": "sgd", "lr": 1.0},  # Adam would take the size out of the step
}


def in_one_place(strength: float) -> tuple[torch.Tensor, torch.Tensor]:
    """Scores of the test examples by ridge regression of one-hot labels, and those examples."""
    splits = tagged()
    x, y = (splits.train.columns[name].take(torch.arange(splits.train.examples)) for name in "xy")
    x = torch.nn.functional.normalize(x.double())
    gram = x.T @ x
    shift = strength * gram.trace() / len(gram) * torch.eye(len(gram), dtype=torch.float64)
    weights = torch.linalg.solve(gram + shift, x.T @ torch.nn.functional.one_hot(y, 6).double())
    asked = splits.test.inputs["x"].take(torch.arange(len(splits.test)))
    return asked.double() @ weights, asked


@pytest.mark.parametrize("strength", [0.1, 2.0])
def test_before_the_first_round_scores_are_those_of_ridge_regression_in_one_place(
    strength: float,
) -> None:
    e = tagged_config({**STILL, "ridge_strength": strength}, model=LINEAR, **STANDING)
    result = so.run(e, data=tagged(), device="cpu")
    wanted, asked = in_one_place(strength)
    weight, bias = (next(v for v in result.state.dense.values() if v.dim() == d) for d in (2, 1))
    rows = result.state.tables["classes"]
    torch.testing.assert_close(rows @ rows.T, torch.eye(6), atol=1e-5, rtol=0)  # at right angles
    found = (asked @ weight.T @ rows.T).double()
    factor = (found * wanted).sum() / (wanted * wanted).sum()  # all classes share it
    torch.testing.assert_close(found, factor * wanted, atol=1e-4, rtol=1e-3)
    x = tagged().train.columns["x"].take(torch.arange(tagged().train.examples))
    mean = torch.nn.functional.normalize(x).mean(0)  # an example without features is like this one
    little = min(1.0, LITTLE * float(x.norm(dim=1).mean()))
    torch.testing.assert_close(bias, little * (weight @ mean), atol=1e-6, rtol=1e-4)
    half = 24 * 25 // 2
    assert result.summary["bytes"]["once_up"] == 6 * 4 * (half + 24 + 1)


def test_rounds_go_on_from_there() -> None:
    begun = tagged_config(RIDGE, model=LINEAR, rounds=3)
    drawn = tagged_config({**RIDGE, "start": "random"}, model=LINEAR, rounds=3)
    scores = [so.run(e, data=tagged(), device="cpu").summary["metrics"]["P@1"] for e in (begun, drawn)]
    assert scores[0] > scores[1]


def test_with_fewer_numbers_than_classes_rows_stay_as_they_were_drawn() -> None:
    narrow = {**LINEAR, "dim": 4}
    starts = [
        so.run(tagged_config({**STILL, "start": s}, model=narrow, **STANDING), data=tagged())
        for s in ("ridge", "random")
    ]
    one, other = (start.state.tables["classes"] for start in starts)
    torch.testing.assert_close(one, other)


@pytest.mark.parametrize("name", [CLASSES, MOMENTS, SUMS, LENGTHS])
@pytest.mark.parametrize("how", ["missing", "nan", "short", "double", "no list"])
def test_a_malformed_message_is_refused_and_counted(name: str, how: str) -> None:
    sums, messages = Sums(24, 6), list(messages_of(tagged().train))
    good = messages[0]
    bad = {
        "missing": {key: value for key, value in good.items() if key != name},
        "nan": {**good, name: np.full_like(good[name], np.nan if name != CLASSES else 99)},
        "short": {**good, name: good[name][:-1]},
        "double": {**good, name: good[name].astype(np.float64)},
        "no list": {**good, name: np.asarray(good[name].flat[0])},
    }[how]
    left = list(sums.taken_from([bad, *messages[1:]]))
    assert sums.refused == 1
    assert not sums.right[0].any()
    assert sums.right[1:].any(1).all()
    assert not any({MOMENTS, SUMS} & one.keys() for one in left)


HOSTILE = {
    "sums longer than its examples": lambda one: {**one, SUMS: 1e6 * one[SUMS]},
    "moments below zero": lambda one: {**one, MOMENTS: -1e6 * one[MOMENTS]},
    "no second moments": lambda one: {**one, MOMENTS: np.where(np.arange(300) == 1, 1e6, one[MOMENTS])},
    "a length below zero": lambda one: {**one, LENGTHS: -one[LENGTHS]},
}


@pytest.mark.parametrize("attack", HOSTILE.values(), ids=HOSTILE.keys())
def test_what_no_examples_could_have_made_is_refused(
    attack: Callable[..., dict[str, np.ndarray]],
) -> None:
    sums, messages = Sums(24, 6), list(messages_of(tagged().train))
    changed = {
        name: np.asarray(one, messages[0][name].dtype) for name, one in attack(messages[0]).items()
    }
    list(sums.taken_from([changed, *messages[1:]]))
    assert sums.refused == 1
    assert not sums.right[0].any()
    assert torch.isfinite(sums.solved(0.5)).all()


def test_a_client_counts_for_so_many_examples_at_most() -> None:
    message = next(messages_of(tagged().train))
    loud = {name: one if name == CLASSES else np.float32(1e6) * one for name, one in message.items()}
    capped, plain = Sums(24, 6, most=5), Sums(24, 6)
    list(capped.taken_from([loud]))
    list(plain.taken_from([message]))
    assert (capped.refused, plain.refused) == (0, 0)
    assert capped.examples == pytest.approx(5, rel=1e-5)
    np.testing.assert_allclose(capped.right, plain.right * (5 / plain.examples), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("scale", [1.0, 1e-3])
def test_the_start_does_not_depend_on_the_scale_of_features(scale: float) -> None:
    x, y = load_digits(return_X_y=True)
    x = (x * scale).astype(np.float32)
    train = so.FederatedDataset.from_arrays(x, y, client=y)
    data = so.Splits("digits", train, so.Examples.from_arrays(x, y))
    e = so.Experiment.of(
        {**STANDING, "method": STILL, "model": {**LINEAR, "dim": 16, "input_scaling": "none"}}
    )
    result = so.run(e, data=data, device="cpu")
    assert result.metrics["P@1"] > 85


def test_a_method_given_in_python_is_refused_with_robust_rules_too() -> None:
    e = tagged_config({"name": "fedaws"}, model=LINEAR, rounds=1, server={"robust": "median"})
    with pytest.raises(UserError, match="adds up whatever clients send"):
        so.run(e, data=tagged(), method=FedAwS(start="ridge"), device="cpu")


def test_a_deployment_that_limits_updates_does_not_start_so() -> None:
    server_app = pytest.importorskip("spreadout.flower.server_app")
    e = tagged_config(RIDGE, model=LINEAR, rounds=1)
    with pytest.raises(UserError, match=r'or server\.robust = "mean"'):
        server_app.refuse_misfits(e, e.method)
    plain = tagged_config(RIDGE, model=LINEAR, rounds=1, server={"robust": "mean"})
    server_app.refuse_misfits(plain, plain.method)


@pytest.mark.parametrize(
    ("sections", "said"),
    [
        ({"model": {"encoder": "mlp", "hidden": [8], "dim": 8}}, "linear encoder"),
        ({"model": LINEAR, "server": {"robust": "trimmed_mean"}}, "adds up whatever clients send"),
        (
            {"model": LINEAR, "privacy": {"clip": 1.0, "noise": 1.0}},
            "second moments of their features without noise",
        ),
    ],
)
def test_where_it_does_not_fit_a_config_is_refused(sections: dict[str, object], said: str) -> None:
    with pytest.raises(UserError, match=said):
        so.run(tagged_config(RIDGE, **{"rounds": 1, **sections}), data=tagged(), device="cpu")
