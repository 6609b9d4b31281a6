"""Two towers, four losses, and the paper's claims about them (Ning et al. 2021)."""

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import ndcg_score
from torch.nn import functional as F

import spreadout as so
from spreadout.core import randomness
from spreadout.core.optimizers import Optimizer
from spreadout.core.ragged import Ragged
from spreadout.core.rows import project_to_sphere
from spreadout.core.state import ServerState
from spreadout.core.types import Params, RowInfo
from spreadout.data.dataset import FederatedDataset
from spreadout.evaluation import metrics, standings
from spreadout.evaluation.embed import class_vectors, embed
from spreadout.evaluation.evaluate import evaluate
from spreadout.evaluation.standings import batch_rivals, rank_of_right
from spreadout.federated.cohort import draw_cohort
from spreadout.federated.federation import Federation
from spreadout.federated.local import LocalTraining, local_update
from spreadout.federated.round import run_round
from spreadout.federated.schedule import Schedule, plan
from spreadout.methods import DualEncoder
from spreadout.methods.negatives import with_negatives
from spreadout.models.nn.gather import _ByProduct, gathered
from spreadout.models.two_tower import MaskedMean, SelfAttention
from spreadout.objectives import losses, regularizers
from spreadout.runs.build import build_federation
from spreadout.runtime.sequential import Sequential
from spreadout.runtime.simulator.executor import Simulator
from spreadout.runtime.simulator.prefetch import Prefetcher
from toys import shop, shop_config

CPU = torch.device("cpu")

NO_ROWS = RowInfo({}, {}, {}, {})  # of a model without tables


def built(splits: so.Splits, **changes: object) -> tuple[Federation, ServerState]:
    f = build_federation(shop_config(**changes), splits, CPU)
    return f, ServerState(0, *f.model.initial(0, CPU))


LOSSES: list[dict[str, object]] = [
    {"loss_form": "batch_softmax"},
    {"loss_form": "batch_softmax", "row_spreadout": 0.01, "requests": "all"},
    {"loss_form": "hinge", "row_spreadout": 0.01},
    {"loss_form": "hinge", "row_spreadout": 0.01, "requests": "all", "l2": 0.01},
    {"loss_form": "hinge", "context_spreadout": 0.1},
    {"loss_form": "hinge", "label_spreadout": 0.1},
    {"loss_form": "hinge", "cross_spreadout": 0.1},
    {"loss_form": "global_softmax", "scale": 5.0},
    {"loss_form": "sampled_softmax", "negatives": 3},
]
IDS = ["-".join(map(str, loss.values())) for loss in LOSSES]


# ---------------------------------------------------------------- towers


def test_the_papers_tower_is_a_masked_mean_and_a_dense_layer_on_the_sphere() -> None:
    f, state = built(shop(), model={"output": "relu"})
    batch = {"history": torch.tensor([[3, 5, -1, -1], [1, 2, 3, 4]])}
    table = state.tables["classes"]
    weight, bias = state.dense["context.layers.0.weight"], state.dense["context.layers.0.bias"]
    mean = torch.stack([table[[3, 5]].mean(0), table[[1, 2, 3, 4]].mean(0)])
    expected = F.normalize(F.relu(mean @ weight.T + bias), dim=1)
    torch.testing.assert_close(f.model.embed(Params(state.dense, state.tables), batch), expected)
    items = f.model.class_vectors(Params(state.dense, state.tables))
    torch.testing.assert_close(items, F.normalize(table, dim=1))


def test_a_dot_product_is_not_normalised_and_a_dense_item_tower_is_used() -> None:
    f, state = built(shop(), model={"similarity": "dot", "item": "dense"})
    items = f.model.class_vectors(Params(state.dense, state.tables))
    weight, bias = state.dense["item.1.weight"], state.dense["item.1.bias"]
    torch.testing.assert_close(items, state.tables["classes"] @ weight.T + bias)


@pytest.mark.parametrize("tower", [MaskedMean(6, [5], relu=True), SelfAttention(6, 4, layers=2)])
def test_what_is_not_present_does_not_matter(tower: torch.nn.Module) -> None:
    rows = torch.randn(2, 4, 6)
    for n in (1, 2, 3, 4):
        alone = tower(rows[:, :n], torch.ones(2, n, dtype=torch.bool))
        padded = rows * (torch.arange(4) < n)[:, None]
        present = (torch.arange(4) < n).expand(2, 4)
        torch.testing.assert_close(tower(padded, present), alone)


def test_attention_sees_order_and_the_mean_does_not() -> None:
    rows, present = torch.randn(1, 4, 6), torch.ones(1, 4, dtype=torch.bool)
    turned = rows[:, [1, 0, 2, 3]]
    mean, attention = MaskedMean(6, [], relu=False), SelfAttention(6, 4)
    torch.testing.assert_close(mean(rows, present), mean(turned, present))
    assert not torch.allclose(attention(rows, present), attention(turned, present))


# ---------------------------------------------------------------- losses


def test_batch_softmax_is_cross_entropy_among_the_batchs_items() -> None:
    scores, mask = torch.randn(5, 5), torch.tensor([1.0, 1, 0, 1, 1])
    found = losses.batch_softmax(scores, mask, scale=3.0)
    kept = [0, 1, 3, 4]
    expected = F.cross_entropy(3 * scores[kept][:, kept], torch.arange(4), reduction="none")
    torch.testing.assert_close(found[kept], expected)


@given(st.integers(1, 9), st.integers(1, 5), st.integers(0, 3))
def test_the_off_diagonal_norm_is_the_dense_one(n: int, d: int, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    left, right = (torch.randn(n, d, generator=generator, dtype=torch.float64) for _ in range(2))
    real = torch.rand(n, generator=generator) < 0.8
    left.requires_grad_()

    def dense() -> torch.Tensor:
        product = left[real] @ right[real].T
        off = product - torch.diag(torch.diagonal(product))
        return off.square().sum().clamp_min(1e-12).sqrt()

    if seed % 2:
        right = left  # one Gram matrix serves both sides
    found, expected = regularizers.off_diagonal(left, right, real), dense()
    torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-6)
    if float(expected.detach()) > 1e-3:
        torch.testing.assert_close(
            torch.autograd.grad(found, left), torch.autograd.grad(expected, left), rtol=1e-5, atol=1e-6
        )


def test_the_off_diagonal_norm_keeps_its_precision_under_autocast() -> None:
    rows = project_to_sphere(torch.randn(200, 8, generator=torch.Generator().manual_seed(0)))
    real = torch.ones(200, dtype=torch.bool)
    plain = regularizers.off_diagonal(rows, rows, real)
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(regularizers.off_diagonal(rows, rows, real), plain)


def one_batch(method: DualEncoder, f: Federation, state: ServerState, at: list[int]) -> torch.Tensor:
    """The loss of some examples of the test part for somebody who holds all items."""
    first, count = f.model.first_class, len(state.tables["classes"])
    params = Params(state.dense, {"classes": state.tables["classes"][first:]})
    history = f.data.columns["history"].take(torch.tensor(at)) - first
    batch = {
        "history": torch.where(history < 0, -1, history),
        "y": f.data.columns["y"].take(torch.tensor(at)) - first,
        "mask": torch.ones(len(at)),
    }
    real = torch.ones(count - first, dtype=torch.bool)
    count = {"classes": torch.tensor(count - first)}
    return method.loss(f.model, params, batch, RowInfo({"classes": real}, {"classes": real}, count, {}))


@pytest.mark.parametrize("options", LOSSES, ids=IDS)
def test_a_loss_is_batch_insensitive_if_and_only_if_it_says_so(options: dict[str, object]) -> None:
    """Def. 1: the loss of a batch is the mean over its examples, however they are batched."""
    method = DualEncoder(**options)  # type: ignore[arg-type]
    f, state = built(shop())
    whole = one_batch(method, f, state, [0, 1, 2, 3, 4, 5, 6, 7])
    halves = [one_batch(method, f, state, part) for part in ([0, 2, 4, 6], [1, 3, 5, 7])]
    same = math.isclose(float(whole), float(sum(halves) / 2), rel_tol=1e-5)
    if method.is_batch_insensitive:
        assert same
    looks_at_the_batch = options["loss_form"] == "batch_softmax" or any(
        key.endswith("_spreadout") and key != "row_spreadout" for key in options
    )
    assert same is not looks_at_the_batch


def test_a_global_softmax_is_cross_entropy_over_every_item_but_the_padding() -> None:
    f, state = built(shop())
    found = one_batch(DualEncoder(loss_form="global_softmax", scale=7.0), f, state, [0, 5])
    some = torch.tensor([0, 5])
    contexts = embed(f.model, state, shop().test, some)
    items = class_vectors(f.model, state)[1:]
    label = f.data.columns["y"].take(some) - 1
    torch.testing.assert_close(found, F.cross_entropy(7 * contexts @ items.T, label))


def test_a_sampled_softmax_over_everything_is_the_global_one() -> None:
    """With every other item among the negatives the correction is log 1 = 0, value and gradient."""
    splits = shop()
    states = []
    for loss in ({"loss_form": "global_softmax"}, {"loss_form": "sampled_softmax", "negatives": 100}):
        f, state = built(splits, method=loss)
        run_round(f, state)
        states.append(state)
    torch.testing.assert_close(states[0].tables, states[1].tables)
    torch.testing.assert_close(states[0].dense, states[1].dense)


def test_a_sampled_softmax_corrects_its_negatives_only() -> None:
    f, state = built(shop())
    params = Params(state.dense, {"classes": state.tables["classes"][[2, 3, 7, 9]]})
    batch = {"history": torch.tensor([[0, 1, -1, -1]]), "y": torch.tensor([1]), "mask": torch.ones(1)}
    present, own = torch.ones(4, dtype=torch.bool), torch.tensor([True, True, False, False])
    info = RowInfo({"classes": present}, {"classes": own}, {"classes": torch.tensor(12)}, {})
    found = DualEncoder(loss_form="sampled_softmax", scale=2.0).loss(f.model, params, batch, info)
    scores = 2 * f.model.embed(params, batch) @ f.model.class_vectors(params).T
    # Two negatives drawn out of the ten others: each stands for five.
    corrected = scores - torch.tensor([0, 0, math.log(2 / 10), math.log(2 / 10)])
    torch.testing.assert_close(found, F.cross_entropy(corrected, torch.tensor([1])))


# ---------------------------------------------------------------- Proposition 1


@pytest.mark.parametrize("options", LOSSES, ids=IDS)
def test_fedsgd_is_large_batch_sgd_for_batch_insensitive_losses(options: dict[str, object]) -> None:
    changes = {
        "method": options,
        "model": {"output": "linear"},
        "clients": {"batch": "full", "local_steps": 1, "per_round": "all", "lr": 0.7},
    }
    moved = []
    for central in (False, True):
        f, state = built(shop(), **{**changes, "method": {**options, "centralized": central}})
        run_round(f, state)
        moved.append(state)
    same = all(
        torch.allclose(one, other, atol=1e-6)
        for one, other in (
            (moved[0].tables["classes"], moved[1].tables["classes"]),
            *((moved[0].dense[name], moved[1].dense[name]) for name in moved[0].dense),
        )
    )
    assert same is DualEncoder(**options).is_batch_insensitive  # type: ignore[arg-type]


# ---------------------------------------------------------------- what travels


def test_clients_get_the_rows_their_loss_needs_and_the_ledger_counts_them() -> None:
    splits = shop()
    for options, rows in (
        ({"loss_form": "batch_softmax"}, "own"),
        ({"loss_form": "hinge", "row_spreadout": 0.1}, "own"),
        ({"loss_form": "global_softmax"}, "all"),
        ({"loss_form": "hinge", "requests": "all"}, "all"),
        ({"loss_form": "sampled_softmax", "negatives": 2}, "own + 2"),
    ):
        f, state = built(splits, method=options)
        cohort = draw_cohort(f, 0)
        own = f.data.rows_of(cohort.clients)["classes"]
        asked = cohort.requests["classes"]
        for i in range(len(cohort.clients)):
            mine, got = set(own[i].tolist()), set(asked[i].tolist())
            assert 0 not in got  # nobody needs the padding
            assert mine <= got
            expected = {"own": len(mine), "all": 12, "own + 2": min(len(mine) + 2, 12)}[rows]
            assert len(got) == expected
        run_round(f, state)
        row = 6 * 4 + 8  # six floats and an id
        assert state.traffic.rows_down == len(asked.values) * row


def test_negatives_are_distinct_even_and_each_clients_own() -> None:
    own = Ragged.from_lists([[3, 5], [1], list(range(1, 20))])
    numbers = np.array([4, 9, 2])
    found = with_negatives(own, 5, (1, 20), 7, numbers)
    assert found.lengths.tolist() == [7, 6, 19]  # nothing is left for the last
    for i in range(3):
        assert set(own[i].tolist()) <= set(found[i].tolist())
        assert len(set(found[i].tolist())) == len(found[i])
    alone = with_negatives(Ragged.from_lists([[1]]), 5, (1, 20), 7, np.array([9]))
    assert alone[0].tolist() == found[1].tolist()
    many = with_negatives(Ragged.from_lists([[1]] * 4000), 5, (1, 20), 7, np.arange(4000))
    share = np.bincount(many.values.numpy(), minlength=20)[2:] / 4000
    assert np.abs(share - 5 / 18).max() < 0.04


@pytest.mark.parametrize("encoder", ["mean", "attention"])
@pytest.mark.parametrize("options", LOSSES, ids=IDS)
def test_the_simulator_is_the_sequential_executor(options: dict[str, object], encoder: str) -> None:
    states = []
    for executor in ("simulator", "sequential"):
        f, state = built(
            shop(),
            method=options,
            model={"encoder": encoder},
            clients={"lr": 0.1},
        )
        f = f if executor == "simulator" else replace(f, executor=Sequential())
        for _ in range(2):
            run_round(f, state)
        states.append(state)
    torch.testing.assert_close(states[0].tables, states[1].tables, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(states[0].dense, states[1].dense, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("sphere", [False, True])
@pytest.mark.parametrize(
    "optimizer",
    [Optimizer(lr=0.3), Optimizer(lr=0.3, momentum=0.9), Optimizer(optimizer="adam", lr=0.1)],
    ids=["plain", "momentum", "adam"],
)
def test_a_gate_keeps_clients_that_are_done_where_they_are(optimizer: Optimizer, sphere: bool) -> None:
    """What CUDA graphs replay: all clients stay in the stack, those at rest do not move, and the gate
    carries the decay of the rates."""
    training = LocalTraining(optimizer, {}, frozenset({"w"} if sphere else ()))
    generator = torch.Generator().manual_seed(0)
    start = Params({"w": project_to_sphere(torch.randn(3, 2, generator=generator))}, {})
    x = torch.randn(3, 4, 5, 2, generator=generator)
    mask = torch.ones(3, 4, 5)
    mask[1, 3:], mask[2, 1:] = 0, 0  # four steps, three, one

    def objective(params: Params, batch: dict[str, torch.Tensor], held: object) -> torch.Tensor:
        each = (batch["x"] @ params.dense["w"] - 1).square()
        return losses.masked_mean(each, batch["mask"]) + 0.1 * params.dense["w"].square().sum()

    work = torch.vmap(objective)
    batches = {"x": x, "mask": mask}
    halved = training.scaled(0.5)
    dropped = local_update(work, halved, start, batches, NO_ROWS, active=[3, 2, 2, 1])  # type: ignore[arg-type]
    gate = 0.5 * (mask.sum(-1) > 0).float()
    gated = local_update(work, training, start, batches, NO_ROWS, active=[3, 3, 2, 2], gate=gate)  # type: ignore[arg-type]
    torch.testing.assert_close(dropped[0].dense, gated[0].dense)
    torch.testing.assert_close(dropped[1], gated[1])


# ---------------------------------------------------------------- scoring


def test_ranks_and_gains_are_those_of_a_plain_loop() -> None:
    splits = shop()
    f, state = built(splits, model={"output": "linear"})
    names = ["R@1", "R@5", "nDCG@5", "MRR", "mean rank", "batch R@1", "batch R@3"]
    found = evaluate(f.model, state, splits.test, names).metrics
    every = torch.arange(len(splits.test))
    scores = (embed(f.model, state, splits.test, every) @ class_vectors(f.model, state)[1:].T).numpy()
    label = splits.test.labels.values.numpy() - 1
    rank = np.array(
        [1 + (s > s[y]).sum() + ((s == s[y]).sum() - 1) / 2 for s, y in zip(scores, label, strict=True)]
    )
    assert found["mean rank"] == pytest.approx(rank.mean())
    assert found["MRR"] == pytest.approx(100 * (1 / rank).mean())
    assert found["R@5"] == pytest.approx(100 * (rank <= 5).mean())
    truth = np.eye(12)[label]
    assert found["nDCG@5"] == pytest.approx(100 * ndcg_score(truth, scores, k=5), rel=1e-6)
    assert found["batch R@1"] <= found["batch R@3"] <= 100
    assert (
        found["batch R@1"] > found["R@1"]
    )  # sixteen candidates with repetitions are easier than twelve


def test_ranks_are_counted_in_blocks_of_classes(monkeypatch: pytest.MonkeyPatch) -> None:
    splits = shop()
    f, state = built(splits, model={"output": "linear"})
    names = ["MRR", "mean rank"]
    whole = evaluate(f.model, state, splits.test, names).metrics
    monkeypatch.setattr(standings, "RANKED_AT_ONCE", 5 * len(splits.test))
    assert evaluate(f.model, state, splits.test, names).metrics == pytest.approx(whole)


def test_ndcg_of_label_sets_is_scikit_learns() -> None:
    rng = np.random.default_rng(0)
    scores = rng.normal(size=(40, 15))
    truth = rng.random((40, 15)) < 0.2
    truth[:, 0] |= ~truth.any(1)
    labels = Ragged.from_lists([np.flatnonzero(row).tolist() for row in truth])
    ranked = torch.from_numpy(np.argsort(-scores, axis=1))
    for k in (1, 3, 10):
        expected = 100 * ndcg_score(truth.astype(float), scores, k=k)
        assert metrics.ndcg_at(ranked, labels, k) == pytest.approx(expected)


def test_a_collapsed_table_ranks_everything_in_the_middle() -> None:
    splits = shop()
    f, state = built(splits)
    state.tables["classes"][:] = 1.0
    rank = rank_of_right(
        embed(f.model, state, splits.test, torch.arange(4)),
        class_vectors(f.model, state)[1:],
        splits.test.labels.select(torch.arange(4)),
        1,
    )
    assert rank.tolist() == [6.5] * 4


def test_batch_recall_of_a_collapsed_table_is_chance_and_unseen_labels_are_left_out() -> None:
    splits = shop(users=20)
    f, state = built(splits)
    state.tables["classes"][:] = 1.0
    classes = class_vectors(f.model, state)
    assert metrics.batch_recall_at(batch_rivals(f.model, state, splits.test, classes), 1) < 20
    odd = so.Examples(
        splits.test.inputs, Ragged(splits.test.labels.offsets, splits.test.labels.values + 0)
    )
    odd.labels.values[:40] = 99
    assert 0 <= metrics.batch_recall_at(batch_rivals(f.model, state, odd, classes), 16) <= 100
    found = evaluate(f.model, state, odd, ["MRR", "mean rank", "R@1"]).metrics
    assert all(math.isfinite(value) for value in found.values())
    few = so.Examples(splits.test.inputs, Ragged.from_lists([[1]] * 3))
    assert math.isnan(metrics.batch_recall_at(batch_rivals(f.model, state, few, classes), 1))


def test_a_round_made_ahead_is_the_round_itself() -> None:
    states = []
    for ahead in (None, Prefetcher(), Prefetcher(2)):
        f, state = built(shop(), rounds=6)
        assert isinstance(f.executor, Simulator)
        f = replace(f, executor=replace(f.executor, prefetch=ahead))
        for _ in range(3):
            run_round(f, state)
        other = replace(f, seed=99)  # another seed on the same executor draws its own cohort
        assert torch.equal(
            other.executor.cohort(other, state).clients,
            draw_cohort(other, 3).clients,  # type: ignore[attr-defined]
        )
        for _ in range(3):
            run_round(f, state)
        states.append(state)
    for state in states[1:]:
        assert torch.equal(states[0].tables["classes"], state.tables["classes"])


def test_a_failure_in_the_background_is_met_where_it_is_needed() -> None:
    ahead: Prefetcher[int] = Prefetcher()
    ahead.begin({1: lambda: 1 // 0, 2: lambda: 5})
    assert ahead.get(1) is None
    assert ahead.get(2) == 5
    ahead.begin({1: lambda: 7, 2: lambda: 6})
    assert ahead.get(1) == 7
    assert ahead.get(2) == 5  # what is begun is not begun again
    ahead.begin({3: lambda: 8})
    assert ahead.get(2) is None  # and what is no longer wanted is forgotten


def test_batch_recall_is_a_plain_loop_over_batches() -> None:
    splits = shop(users=20)
    f, state = built(splits)
    classes = class_vectors(f.model, state)
    found = metrics.batch_recall_at(batch_rivals(f.model, state, splits.test, classes), 2)
    n = len(splits.test)
    bits = randomness.bits(randomness.key(0, "batch recall"), np.arange(n))
    order = np.argsort(bits, kind="stable")[: n // 16 * 16].reshape(-1, 16)
    right = 0
    for batch in order:
        x = embed(f.model, state, splits.test, torch.from_numpy(batch))
        y = classes[splits.test.labels.values[batch]]
        s = x @ y.T
        label = splits.test.labels.values[batch]
        right += sum(int(((s[i] > s[i, i]) & (label != label[i])).sum()) < 2 for i in range(16))
    assert found == pytest.approx(100 * right / order.size)


# ---------------------------------------------------------------- schedules of pooled data


@pytest.mark.parametrize("n", [1, 2, 3, 64, 65, 1000, 70_001])
def test_a_permutation_made_place_by_place_is_one(n: int) -> None:
    keys = randomness.bits(3, np.int64(5))
    found = randomness.permute(np.arange(n), n, keys)
    assert np.array_equal(np.sort(found), np.arange(n))
    if n > 64:
        assert not np.array_equal(found, randomness.permute(np.arange(n), n, keys + np.uint64(1)))
        assert abs(np.corrcoef(np.arange(n), found)[0, 1]) < 0.2


def test_a_large_clients_epoch_sees_every_example_once() -> None:
    n = 70_000
    steps = plan(Schedule(epochs=1, batch=1000), np.array([n]), np.array([0]), seed=0, round=0)
    assert np.array_equal(np.sort(steps.index.numpy().ravel()), np.arange(n))
    part = plan(Schedule(steps=3, batch=1000), np.array([n]), np.array([0]), seed=0, round=0)
    assert torch.equal(part.index, steps.index[:, :3])


# ---------------------------------------------------------------- whole runs


@pytest.mark.parametrize(
    ("loss", "least"),
    [
        ({"loss_form": "hinge", "row_spreadout": 0.05, "requests": "all"}, 50),
        ({"loss_form": "global_softmax", "scale": 10.0}, 60),
        ({"loss_form": "hinge"}, 0),
    ],
)
def test_what_comes_next_is_learned_where_something_keeps_items_apart(
    loss: dict[str, object], least: float
) -> None:
    experiment = shop_config(
        rounds=150, method=loss, model={"output": "linear"}, clients={"lr": 0.5, "local_epochs": 1}
    )
    result = so.run(experiment, data=shop(users=40))
    if least:
        assert result.metrics["R@1"] > least
    else:  # the hinge alone pulls everything onto one point
        assert result.summary["geometry"]["collapsing"]


def test_a_server_side_spreadout_keeps_a_hinge_from_collapsing() -> None:
    loss = {"loss_form": "hinge", "server_spreadout": 0.5}
    result = so.run(shop_config(rounds=60, method=loss), data=shop(users=40))
    assert result.summary["geometry"]["mean_cosine"] < 0.5


@pytest.mark.parametrize(
    ("values", "complaint"),
    [
        ({"data": {"source": "digits"}, "model": {"encoder": "mean"}, "method": {"name": "dual_encoder"}}, "takes histories of items, and the data has none"),
        ({"data": {"source": "digits"}, "model": {"encoder": "attention"}}, "takes histories of items"),
    ],
)  # fmt: skip
def test_towers_need_histories(values: dict[str, object], complaint: str) -> None:
    with pytest.raises(so.UserError, match=complaint):
        so.run(so.Experiment.of(values))


def test_weight_decay_pulls_at_the_rows_themselves() -> None:
    f, state = built(
        shop(), method={"loss_form": "hinge", "l2": 5.0, "margin": 0.001}, clients={"lr": 0.05}
    )
    before = state.tables["classes"].norm()
    run_round(f, state)
    assert float(state.tables["classes"].norm()) < 0.99 * float(before)


@pytest.mark.parametrize(
    "model",
    [
        {"encoder": "mlp", "similarity": "dot"},
        {"encoder": "attention", "output": "relu"},
        {"encoder": "mean", "layers": 2},
    ],
)
def test_keys_an_encoder_has_no_use_for_are_refused(model: dict[str, object]) -> None:
    with pytest.raises(so.UserError, match="has no use for it"):
        so.Experiment.of({"model": model})


def test_histories_need_towers(tmp_path: Path) -> None:
    data = shop()
    with pytest.raises(so.UserError, match="'fedaws': takes an input x, and the data has histories"):
        so.run(so.Experiment(rounds=1), data=data)
    flat = so.Experiment.of({"method": {"name": "dual_encoder"}, "model": {"encoder": "mlp"}})
    with pytest.raises(so.UserError, match='take encoder = "mean" or "attention"'):
        so.run(flat, data=data)
    with pytest.raises(so.UserError, match=r'take method.name = "dual_encoder"'):
        so.run(so.Experiment.of({"model": {"encoder": "mean"}}), data=data)


def test_a_federated_data_set_knows_which_row_is_nobodys() -> None:
    assert shop().train.first_class == 1
    x = np.zeros((2, 1))
    assert FederatedDataset.from_arrays(x, [0, 1], [0, 1]).first_class == 0


def test_the_gradient_of_a_gather_is_the_same_by_products() -> None:
    generator = torch.Generator().manual_seed(0)
    rows = torch.randn(3, 7, 4, generator=generator)
    places = torch.randint(0, 7, (3, 5, 2), generator=generator)
    back = torch.randn(3, 5, 2, 4, generator=generator)

    def gradient(gather: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]) -> torch.Tensor:
        leaf = rows.clone().requires_grad_()
        found = torch.vmap(gather)(places, leaf)
        torch.testing.assert_close(found, torch.stack([r[p] for r, p in zip(rows, places, strict=True)]))
        return torch.autograd.grad((found * back).sum(), leaf)[0]

    torch.testing.assert_close(gradient(_ByProduct.apply), gradient(gathered))
