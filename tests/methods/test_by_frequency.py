"""Losses and spreadout that know how frequent classes are, each against a slow and obvious twin."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

import spreadout as so
from spreadout.core.merging import RowSum
from spreadout.core.types import Params, RowInfo
from spreadout.federated.batches import class_counts
from spreadout.methods import Centralized, FedAvg, FedAwS, FedSS, Flag
from spreadout.methods.base import Method
from spreadout.methods.context import ServerContext
from spreadout.methods.fedss import FedAwSSoftmax
from spreadout.models.build import DataShape, ModelConfig, build_model
from toys import several_classes


def one_client(
    rows: int = 5, seed: int = 0
) -> tuple[so.EmbeddingModel, Params, dict[str, torch.Tensor], RowInfo]:
    """A client with rows of five classes, of which the first three are its own, one row of padding."""
    draw = torch.Generator().manual_seed(seed)
    data = so.FederatedDataset.from_arrays(np.zeros((3, 4)), [0, 1, 2], client=[0, 0, 0], classes=9)
    model = build_model(ModelConfig(hidden=[6], dim=4), DataShape.of(data), seed)
    dense, _ = model.initial(seed, torch.device("cpu"))
    table = torch.nn.functional.normalize(torch.randn(rows + 1, 4, generator=draw), dim=1)
    batch = {
        "x": torch.randn(7, 4, generator=draw),
        "y": torch.tensor([0, 0, 1, 2, 2, 1, 0]),
        "mask": torch.tensor([1.0, 1, 1, 1, 1, 1, 0]),
    }
    real = torch.arange(rows + 1) < rows
    info = RowInfo(
        {"classes": real},
        {"classes": torch.arange(rows + 1) < 3},
        {"classes": torch.tensor(9)},
        {},
        {"classes": torch.tensor([40.0, 3, 1, 200, 7, 0])},
    )
    return model, Params(dense, {"classes": table}), batch, info


def cosines(model: so.EmbeddingModel, params: Params, batch: dict[str, torch.Tensor]) -> torch.Tensor:
    return model.embed(params, batch) @ params.rows["classes"].T


def mean_over_mask(each: list[float], mask: torch.Tensor) -> float:
    return sum(e * float(m) for e, m in zip(each, mask, strict=True)) / float(mask.sum())


@pytest.mark.parametrize("method", [FedAwS, Flag])
def test_a_rare_class_has_to_come_nearer(method: type[Method]) -> None:
    """max(0, m + δ n_c^(−1/4) − s)², example by example."""
    model, params, batch, info = one_client()
    found = method(margin=0.6, margin_by_frequency=0.3).loss(model, params, batch, info)
    s, n = cosines(model, params, batch), info.examples["classes"]
    each = [
        max(0.0, 0.6 + 0.3 * float(n[y]) ** -0.25 - float(s[i, y])) ** 2
        for i, y in enumerate(batch["y"].tolist())
    ]
    assert float(found) == pytest.approx(mean_over_mask(each, batch["mask"]), rel=1e-5)


SOFT = {
    "margins": {"margin_by_frequency": 0.4},
    "adjusted": {"logit_adjustment": 1.0},
    "both, by half": {"margin_by_frequency": 0.2, "logit_adjustment": 0.5},
}


@pytest.mark.parametrize("kind", [FedAvg, Centralized, FedAwSSoftmax, FedSS])
@pytest.mark.parametrize("options", SOFT.values(), ids=SOFT.keys())
def test_softmaxes_take_margins_and_adjusted_logits(
    kind: type[Method], options: dict[str, float]
) -> None:
    """−log of exp(scale (s_y − Δ_y) + a log n_y − log(m q)) over the sum of all, written out."""
    model, params, batch, info = one_client()
    found = kind(scale=5.0, **options).loss(model, params, batch, info)
    s, n = cosines(model, params, batch), info.examples["classes"].tolist()
    delta, weight = options.get("margin_by_frequency", 0.0), options.get("logit_adjustment", 0.0)
    # FedSS corrects for how likely each of the two drawn rows is: two of the six that are not its own.
    expected = [0.0, 0, 0, math.log(2 / 6), math.log(2 / 6)] if kind is FedSS else [0.0] * 5
    rivals = range(3) if kind is FedAwSSoftmax else range(5)  # its own alone
    each = []
    for i, y in enumerate(batch["y"].tolist()):
        logit = [
            5 * (float(s[i, c]) - (delta * n[c] ** -0.25 if c == y else 0.0))
            + weight * math.log(n[c])
            - expected[c]
            for c in rivals
        ]
        each.append(-logit[y] + math.log(sum(map(math.exp, logit))))
    assert float(found) == pytest.approx(mean_over_mask(each, batch["mask"]), rel=1e-5)


def test_counts_are_a_clients_own_or_those_of_all() -> None:
    data = several_classes().train
    label = data.columns["y"].take(torch.arange(data.examples))
    ids = torch.tensor([[0, 1, 2, 5, -1], [3, 4, 5, 6, 7]])
    clients = torch.tensor([0, 4])
    own = class_counts(data, clients, ids, "own")
    for row, client in enumerate(clients.tolist()):
        mine = label[int(data.offsets[client]) : int(data.offsets[client + 1])]
        assert own[row].tolist() == [int((mine == c).sum()) if c >= 0 else 0 for c in ids[row].tolist()]
    with pytest.raises(ValueError, match="not known here"):
        class_counts(data, clients, ids, "all")
    e = so.Experiment.of({"method": {"name": "fedavg", "logit_adjustment": 1.0}})
    whole = so.run(e.model_copy(update={"rounds": 1}), data=several_classes()).federation.data
    everywhere = class_counts(whole, clients, ids, "all")
    assert everywhere[1].tolist() == [int((label == c).sum()) for c in (3, 4, 5, 6, 7)]
    assert everywhere[0, 4] == 0  # padding
    capped = so.Experiment.of(
        {
            "rounds": 1,
            "method": {"name": "fedavg", "logit_adjustment": 1.0},
            "server": {"claim_quantile": 0.3},
        }
    )
    run = so.run(capped, data=several_classes())  # the loss sees what the server has added up
    torch.testing.assert_close(run.federation.data.public_counts, run.state.scoring["counts"])
    assert run.state.scoring["counts"].sum() < data.examples


def test_who_has_to_tell_what() -> None:
    """Own counts never travel; those of all are sent up once, and down to every client."""
    for quiet in (
        FedAwS(margin=0.5, margin_by_frequency=0.2, prior=0),
        FedSS(margin_by_frequency=0.2),
        FedAwSSoftmax(logit_adjustment=1, prior=0),
        Centralized(logit_adjustment=1),
    ):
        assert quiet.needs_counts == "own", quiet.name
        assert quiet.sends_at_setup is None
        assert not quiet.needs_public_state
        assert not quiet.loss_is_of_each_example
    for loud in (FedSS(logit_adjustment=1), FedAvg(logit_adjustment=1)):
        assert loud.needs_counts == "all"
        assert loud.needs_public_state
        assert loud.sends_at_setup == "their label counts"
    unscaled = {"rounds": 2, "model": {"input_scaling": "none"}}
    plain, told = (
        so.run(
            so.Experiment.of({**unscaled, "method": {"name": "fedss", **more}}), data=several_classes()
        )
        for more in ({}, {"logit_adjustment": 1.0})
    )
    once = told.state.traffic
    assert (plain.state.traffic.once_up, plain.state.traffic.once_down) == (0, 0)
    assert once.once_down == 6 * 8 * 4  # six clients, eight classes
    named = told.federation.data.label_counts[0]
    assert once.once_up == len(named.values) * (8 + 8)
    assert "prior" not in told.state.scoring  # they are for the loss alone


def test_with_privacy_counts_stay_where_they_are() -> None:
    noise = {"clip": 0.5, "noise": 0.5}
    margins = {"name": "fedaws", "margin": 0.5, "margin_by_frequency": 0.2}
    private = so.Experiment.of({"rounds": 1, "method": margins, "privacy": noise})
    run = so.run(private, data=several_classes())
    assert run.state.traffic.once_up == 0
    adjusted = {"name": "fedavg", "logit_adjustment": 1.0}
    with pytest.raises(so.UserError, match=r"label counts without noise.*logit_adjustment = 0"):
        so.run(so.Experiment.of({"method": adjusted, "privacy": noise}), data=several_classes())
    by_example = {**noise, "model": "example"}
    e = {"method": margins, "privacy": by_example, "clients": {"local_steps": 1}}
    with pytest.raises(so.UserError, match=r"how many there are.*margin_by_frequency = 0"):
        so.run(so.Experiment.of(e), data=several_classes())


def test_a_margin_nobody_can_reach_is_refused() -> None:
    with pytest.raises(so.UserError, match=r"margin_by_frequency = 0\.2: with margin = 0\.9"):
        so.Experiment.of({"method": {"name": "fedaws", "margin_by_frequency": 0.2}})
    square = {"name": "fedaws", "loss_form": "square", "margin_by_frequency": 0.1}
    with pytest.raises(so.UserError, match=r"margin_by_frequency = 0\.1: has no effect"):
        so.run(so.Experiment.of({"method": square}), data=several_classes())
    assert FedAwSSoftmax(margin_by_frequency=0.5).prior == "auto"  # a softmax has no such end
    assert FedAwSSoftmax(negatives=3).prior == 0  # it would tell what the others hide


def test_logits_adjusted_while_training_are_a_prior_in_closed_form() -> None:
    """Centralised, with weight 1: scale · cosine + log n_c is log p(c | x); so τ is 1 / scale."""
    assert Centralized(scale=10, logit_adjustment=0.5).known_prior == 0.05
    assert Centralized(scale=10).known_prior is None
    assert FedSS(negatives=3, scale=10, logit_adjustment=1).known_prior == 0.1
    for other in ({"correct": False}, {"loss_form": "negatives"}):  # no stand-in for the whole softmax
        assert FedSS(negatives=3, scale=10, logit_adjustment=1, **other).known_prior is None
    assert FedAwSSoftmax(logit_adjustment=1).known_prior is None
    method = {"name": "centralized", "scale": 8.0, "logit_adjustment": 1.0, "prior": "likelihood"}
    run = so.run(so.Experiment.of({"rounds": 1, "method": method}), data=several_classes())
    assert run.history[-1]["prior"] == 1 / 8


def a_round(table: torch.Tensor, touched: torch.Tensor) -> tuple[so.ServerState, ServerContext]:
    ones = torch.ones(len(touched))
    seen = RowSum(touched, torch.zeros(len(touched), table.shape[1]), ones, ones)
    return so.ServerState(0, {}, {"classes": table}), ServerContext(
        0, 0, 0, {"classes": 0.1}, {"classes": seen}
    )


def test_spreadout_is_weighted_by_what_clients_counted() -> None:
    """Σ_c (C n_c / n) Σ_c' max(0, ν − d)², also where several clients hold a class."""
    draw = torch.Generator().manual_seed(1)
    table = torch.nn.functional.normalize(torch.randn(5, 3, generator=draw), dim=1)
    state, context = a_round(table, torch.tensor([0, 2]))
    state.scoring["counts"] = torch.tensor([9.0, 3, 0, 2, 2])
    method = FedAwS(weighted=True, spreadout_margin=1.3)
    found = method.regularizer(state, context, 0).value
    weight = [9 / 4, 3 / 4, 1.0, 2 / 4, 2 / 4]  # a mean of four examples a class that has any
    by_hand = sum(
        weight[a] * max(0.0, 1.3 - (1 - float(table[a] @ table[b]))) ** 2
        for a in range(5)
        for b in range(5)
        if a != b
    )
    assert float(found) == pytest.approx(by_hand, rel=1e-5)
    shared = several_classes()
    assert method.validate_data(shared.train) is None
    assert "method.prior alone" in (FedAwS(weighted=True, prior=0).validate_data(shared.train) or "")
    e = so.Experiment.of({"rounds": 2, "method": {"name": "fedaws", "weighted": True}})
    assert math.isfinite(so.run(e, data=shared).summary["geometry"]["mean_cosine"])


@pytest.mark.parametrize("k", [1, 3])
def test_by_row_each_class_counts_the_mean_over_its_neighbours(k: int) -> None:
    """So that k and λ are two knobs: with sums, thrice the neighbours push three times as hard."""
    table = torch.nn.functional.normalize(
        torch.randn(6, 4, generator=torch.Generator().manual_seed(2)), dim=1
    )
    state, context = a_round(table, torch.tensor([0, 3, 4]))
    found = FedAwS(spreadout_form="topk", k=k, reduction="row").regularizer(state, context, 0)
    by_hand = 0.0
    for c in (0, 3, 4):
        away = sorted(1 - float(table[c] @ table[other]) for other in range(6) if other != c)
        by_hand += sum(-d * d for d in away[:k]) / k
    assert float(found.value) == pytest.approx(by_hand, rel=1e-5)
    summed = FedAwS(spreadout_form="topk", k=k).regularizer(state, context, 0)
    assert torch.allclose(k * found.gradient.values, summed.gradient.values, atol=1e-6)


def test_both_forms_together_are_their_mixture() -> None:
    draw = torch.Generator().manual_seed(3)
    table = torch.nn.functional.normalize(torch.randn(7, 4, generator=draw), dim=1)
    state, context = a_round(table, torch.tensor([1, 4, 6]))

    def loss(**options: object) -> so.regularizers.TableLoss:
        method = FedAwS(k=2, spreadout_margin=1.2, reduction="row", **options)
        return method.regularizer(state, context, 0)

    mixed = loss(spreadout_form="both", mined_share=0.3)
    every, near = loss(spreadout_form="hinge"), loss(spreadout_form="topk")
    assert float(mixed.value) == pytest.approx(0.7 * float(every.value) + 0.3 * float(near.value))
    by_hand = 0.7 * every.gradient.values
    for row, pushed in zip(near.gradient.ids.tolist(), near.gradient.values, strict=True):
        by_hand[row] += 0.3 * pushed
    assert torch.allclose(mixed.gradient.values, by_hand, atol=1e-6)
    pairs = [0.0] * 7  # each row's mean over its six pairs, by hand
    for a in range(7):
        pairs[a] = sum(max(0.0, 0.2 + float(table[a] @ table[b])) ** 2 for b in range(7) if b != a) / 6
    assert float(every.value) == pytest.approx(sum(pairs), rel=1e-5)
    with pytest.raises(so.UserError, match='reduction = "sum": spreadout_form = "both" needs "row"'):
        so.Experiment.of({"method": {"name": "fedaws", "spreadout_form": "both", "reduction": "sum"}})
    assert (
        so.Experiment.of({"method": {"name": "fedalc", "spreadout_form": "both"}}).method.reduction
        == "row"
    )


@pytest.mark.parametrize(("form", "pairs"), [("hinge", 7 / 8), ("topk", 1.0)])
def test_without_a_strength_a_plain_step_pushes_alike_by_every_reduction(
    form: str, pairs: float
) -> None:
    """One of each row's mean over its pairs; 1/C of Prop. 2 is 7/8 of that where a row has 7 pairs."""
    table = torch.nn.functional.normalize(
        torch.randn(8, 4, generator=torch.Generator().manual_seed(4)), dim=1
    )
    model = build_model(ModelConfig(hidden=[], dim=4), DataShape.of(several_classes().train), 0)
    moved = {}
    for reduction in ("sum", "mean", "row"):
        state, context = a_round(table.clone(), torch.arange(8))
        plain = {"spreadout_step": "plain", "spreadout_lr": 1e-3, "reduction": reduction}
        FedAwS(spreadout_form=form, k=3, **plain).server_step(state, model, context)
        moved[reduction] = float((state.tables["classes"] - table).norm())
    assert moved["mean"] == pytest.approx(moved["row"], rel=1e-3)
    assert moved["sum"] == pytest.approx(pairs * moved["row"], rel=1e-3)
