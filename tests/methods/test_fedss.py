"""Federated sampled softmax: Eqs. 3 to 9, image encoders, retrieval, and what requests give away."""

import itertools
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional as F
from typer.testing import CliRunner

import spreadout as so
from spreadout.cli.main import app
from spreadout.core.ragged import Ragged
from spreadout.core.rows import project_to_sphere
from spreadout.core.state import ServerState
from spreadout.core.types import Params, RowInfo
from spreadout.data.columns import Dense
from spreadout.data.dataset import FederatedDataset
from spreadout.data.held_out import Examples
from spreadout.data.splits import Splits
from spreadout.evaluation import metrics
from spreadout.evaluation.evaluate import evaluate
from spreadout.federated.augment import Augment
from spreadout.federated.batches import row_info
from spreadout.federated.cohort import draw_cohort
from spreadout.federated.federation import Federation
from spreadout.federated.round import run_round, run_setup
from spreadout.methods import FedAwSSoftmax, FedSS
from spreadout.methods.negatives import with_popular_negatives
from spreadout.models.build import DataShape, ModelConfig, build_model
from spreadout.models.embedding import activation_floats
from spreadout.models.nn import images
from spreadout.privacy.request_audit import audit, posterior
from spreadout.report.confusion import confusion
from spreadout.runs.audit import Watched
from spreadout.runs.build import build_federation
from spreadout.runs.predict import Predictor

CPU = torch.device("cpu")


def pictures(
    classes: int = 12, each: int = 8, clients: int = 6, size: int = 8, *, seed: int = 0
) -> Splits:
    """A pattern for every class, seen through noise; a client has three classes; test classes are new."""
    rng = np.random.default_rng(seed)
    pattern = rng.normal(size=(classes + 4, 1, size, size))
    label = np.repeat(np.arange(classes + 4), each)
    x = (pattern[label] + 0.5 * rng.normal(size=(len(label), 1, size, size))).astype(np.float32)
    train = label < classes
    client = label[train] * clients // classes if clients <= classes else label[train]
    held = FederatedDataset.from_arrays(x[train], label[train], client)
    test = Examples({"x": held.columns["x"]}, Ragged.from_lists([[int(c)] for c in label[train]]))
    new = Examples.from_arrays(x[~train], label[~train] - classes)
    unseen = Examples(new.inputs, Ragged(new.labels.offsets, new.labels.values + classes))
    return Splits("pictures", held, unseen, test)


def config(method: dict[str, object], **sections: object) -> so.Experiment:
    base: dict[str, object] = {
        "model": {"encoder": "convnet", "width": 8, "dim": 6},
        "method": {"name": "fedss", **method},
        "clients": {"per_round": 3, "batch": 4, "lr": 0.05},
        "eval": {"metrics": ["MAP@R"]},
    }
    return so.Experiment.of({**base, **sections})


def built(data: Splits, experiment: so.Experiment) -> tuple[Federation, ServerState]:
    f = build_federation(experiment, data, CPU)
    return f, ServerState(0, *f.model.initial(f.seed, CPU))


# ---------------------------------------------------------------- requests and losses


@pytest.mark.parametrize("draw", ["fresh", "fixed", "popular", "popular-fixed"])
def test_requests_are_a_clients_own_and_as_many_others_as_asked(draw: str) -> None:
    data = pictures()
    f, _ = built(data, config({"sampled_rows": 7, "draw": draw}))
    own = f.data.rows_of(torch.arange(6))["classes"]
    asked = [f.method.request(f.data, torch.arange(6), seed=0, round=r)["classes"] for r in (0, 1)]
    for i in range(6):
        assert len(asked[0][i]) == 7
        assert set(own[i].tolist()) <= set(asked[0][i].tolist())
        assert asked[0][i].tolist() == sorted(set(asked[0][i].tolist()))
    same = all(torch.equal(asked[0][i], asked[1][i]) for i in range(6))
    assert same == draw.endswith("fixed")
    alone = f.method.request(f.data.view(4), torch.tensor([0]), seed=0, round=1)["classes"]
    assert torch.equal(alone[0], asked[1][4])  # a client makes its own draw


def test_sizes_of_the_sample() -> None:
    f, _ = built(pictures(), config({"negatives": 3}))
    own = f.data.rows_of(torch.arange(6))["classes"].lengths

    def sizes(**options: object) -> list[int]:
        found = FedSS(**options).request(f.data, torch.arange(6), seed=0, round=0)["classes"]
        return [int(a - b) for a, b in zip(found.lengths, own, strict=True)]

    assert sizes(negatives=3) == [3] * 6
    assert sizes(sampled_rows=6) == [6 - int(n) for n in own]
    assert sizes(negatives=3, loss_form="negatives", matched=True) == [3 + int(n) - 1 for n in own]
    assert sizes(loss_form="positives") == [0] * 6
    assert sizes(negatives=11) == [12 - int(n) for n in own]  # no more than there are


def test_popular_classes_are_drawn_more_often_and_own_ones_never() -> None:
    weight = torch.tensor([0.5, 0.3, 0.1, 0.1, 0.0])
    own = Ragged.from_lists([[0]] * 2000)
    found = with_popular_negatives(own, 1, weight, 7, np.arange(2000))
    drawn = torch.tensor([next(c for c in found[i].tolist() if c != 0) for i in range(2000)])
    share = torch.bincount(drawn, minlength=5).double() / 2000
    np.testing.assert_allclose(share, [0, 0.6, 0.2, 0.2, 0], atol=0.04)


def loss_of(method: FedSS, held: RowInfo, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """Loss of a batch as a function of the rows held, with the embedding given."""
    generator = torch.Generator().manual_seed(seed)
    rows = project_to_sphere(torch.randn(10, 5, generator=generator)).requires_grad_()
    x = project_to_sphere(torch.randn(4, 5, generator=generator))

    class Given:
        def embed(self, params: Params, batch: dict[str, torch.Tensor]) -> torch.Tensor:
            return x

        def class_vectors(self, params: Params) -> torch.Tensor:
            return params.rows["classes"]

    batch = {"y": torch.tensor([0, 1, 2, 1]), "mask": torch.ones(4)}
    found = method.loss(Given(), Params({}, {"classes": rows}), batch, held)  # type: ignore[arg-type]
    (slope,) = torch.autograd.grad(found, [rows])
    return found.detach(), slope


def held_of(chosen: list[int], own: int, classes: int = 10) -> RowInfo:
    real = torch.zeros(10, dtype=torch.bool).index_fill(0, torch.tensor(chosen), True)
    mine = torch.arange(10) < own
    return RowInfo({"classes": real}, {"classes": mine}, {"classes": torch.tensor(classes)}, {})


def test_with_all_other_classes_it_is_the_full_softmax() -> None:
    """m = n − |P|: the correction is log 1 = 0; loss and gradient are those of Eq. 2."""
    whole = held_of(list(range(10)), own=3)
    found, slope = loss_of(FedSS(negatives=7), whole)
    plain, plain_slope = loss_of(FedSS(negatives=7, correct=False), whole)
    torch.testing.assert_close(found, plain)
    torch.testing.assert_close(slope, plain_slope)
    generator = torch.Generator().manual_seed(0)
    rows = project_to_sphere(torch.randn(10, 5, generator=generator))
    x = project_to_sphere(torch.randn(4, 5, generator=generator))
    rows.requires_grad_()
    expected = F.cross_entropy(20 * x @ rows.T, torch.tensor([0, 1, 2, 1]))
    torch.testing.assert_close(found, expected.detach())
    torch.testing.assert_close(slope, torch.autograd.grad(expected, [rows])[0])


def test_a_run_that_asks_for_all_classes_is_a_run_of_the_full_softmax() -> None:
    tables = []
    for method in (
        {"sampled_rows": 12},
        {"sampled_rows": 12, "draw": "popular"},
        {"name": "fedavg", "scale": 20.0},
    ):
        f, state = built(pictures(), config(method))
        for _ in range(2):
            run_round(f, state)
        tables.append(state.tables["classes"])
    torch.testing.assert_close(tables[0], tables[2])
    torch.testing.assert_close(tables[1], tables[2])


@pytest.mark.parametrize("draw", ["fresh", "popular"])
def test_what_a_loss_is_told_of_chances_is_how_rows_are_drawn(draw: str) -> None:
    """q = 1/(n − |P|), or a class's share of the popularity of all that are not the client's own."""
    x = np.eye(6, dtype=np.float32)[[0, 1, 2, 2, 2, 3, 4, 5]]
    y = np.array([0, 1, 2, 2, 2, 3, 4, 5])
    client = np.array([0, 0, 0, 1, 2, 1, 2, 3])  # class 2 has three holders, the others one
    data = Splits("few", FederatedDataset.from_arrays(x, y, client), Examples.from_arrays(x, y))
    f, state = built(data, config({"sampled_rows": 5, "draw": draw}, model={}))
    run_setup(f, state)
    clients = torch.tensor([3])  # has class 5
    ids = f.method.request(f.data, clients, seed=0, round=0)["classes"].padded(-1)
    info = row_info(f.data, clients, {"classes": ids}, own=True, popularity=draw == "popular")
    assert info.own["classes"][0].tolist() == [c == 5 for c in ids[0].tolist()]
    assert info.size["classes"].tolist() == [6]
    assert isinstance(f.method, FedSS)
    q = f.method._chance(info.at(0))
    if draw == "fresh":
        assert float(q) == pytest.approx(1 / 5)
        return
    holders = torch.tensor([1.0, 1, 3, 1, 1, 1])
    torch.testing.assert_close(state.method_tensors()["popularity"], holders / 8)
    others = ~info.own["classes"][0]
    torch.testing.assert_close(q[others], holders[ids[0][others]] / 7)


@pytest.mark.parametrize("rows", [{"loss_form": "positives"}, {"negatives": 3}, {"sampled_rows": 7}])
def test_the_reference_with_spreadout_averages_as_fedss_does(rows: dict[str, object]) -> None:
    """Where nothing is spread out, it is PosOnly, or FedSS with as many rows."""
    tables = []
    for method in (rows, {**rows, "name": "fedaws-softmax", "strength": 1e-12}):
        f, state = built(pictures(clients=24), config(method, clients={"per_round": 12, "lr": 0.05}))
        for _ in range(2):
            run_round(f, state)
        tables.append(state.tables["classes"])
    torch.testing.assert_close(tables[0], tables[1])


@pytest.mark.parametrize("form", ["sampled", "negatives", "positives"])
def test_losses_are_eqs_5_7_and_8(form: str) -> None:
    chosen = [0, 1, 2] if form == "positives" else [0, 1, 2, 5, 8]
    method = FedSS(loss_form=form, negatives=None if form == "positives" else 2)  # type: ignore[arg-type]
    found, _ = loss_of(method, held_of(chosen, own=3))
    generator = torch.Generator().manual_seed(0)
    rows = project_to_sphere(torch.randn(10, 5, generator=generator))
    o = 20 * project_to_sphere(torch.randn(4, 5, generator=generator)) @ rows.T
    o[:, 3:] -= np.log(2 * (1 / 7))  # o' = o − log(m q), q = 1/(n − |P|), negatives only
    each = []
    for i, t in enumerate([0, 1, 2, 1]):
        rivals = {"sampled": [0, 1, 2, 5, 8], "negatives": [5, 8], "positives": [0, 1, 2]}[form]
        others = [j for j in rivals if j != t]
        each.append(torch.log1p(torch.exp(o[i, others] - o[i, t]).sum()))
    torch.testing.assert_close(found, torch.stack(each).mean())


def test_the_gradients_bias_shrinks_as_more_is_sampled() -> None:
    """A.3: the mean over draws comes nearer the full gradient, and so does the worst of them."""
    _, full = loss_of(FedSS(negatives=7), held_of(list(range(10)), own=3))
    rng = np.random.default_rng(0)
    bias = []
    for m in (1, 3, 6):
        drawn = []
        for _ in range(300):
            chosen = [0, 1, 2, *(3 + rng.choice(7, size=m, replace=False)).tolist()]
            drawn.append(loss_of(FedSS(negatives=m), held_of(chosen, own=3))[1])
        bias.append(float((torch.stack(drawn).mean(0) - full).norm() / full.norm()))
    assert bias[0] > bias[1] > bias[2]
    without = [
        loss_of(FedSS(negatives=1, correct=False), held_of([0, 1, 2, c], own=3))[1] for c in range(3, 10)
    ]
    assert float((torch.stack(without).mean(0) - full).norm() / full.norm()) > bias[0]


# ---------------------------------------------------------------- training

ARMS: dict[str, dict[str, object]] = {
    "fedss": {"sampled_rows": 7},
    "popular": {"sampled_rows": 7, "draw": "popular"},
    "negonly": {"sampled_rows": 7, "loss_form": "negatives", "matched": True},
    "posonly": {"loss_form": "positives"},
    "cover": {"draw": "cover", "cover": 4},
    "spread": {"name": "fedaws-softmax", "strength": 0.05},
    "spread, with rows": {"name": "fedaws-softmax", "strength": 0.05, "negatives": 3},
    "spread, popular": {"name": "fedaws-softmax", "strength": 0.05, "negatives": 3, "draw": "popular"},
    "full": {"name": "fedavg"},
}


@pytest.mark.parametrize("arm", ARMS.values(), ids=ARMS.keys())
def test_the_simulator_trains_what_one_client_after_another_trains(arm: dict[str, object]) -> None:
    states = []
    for executor in ("sequential", "simulator"):
        clients = {"per_round": 3, "batch": 4, "lr": 0.05, "image_shift": 1, "image_flip": True}
        f, state = built(pictures(), config(arm, clients=clients, run={"executor": executor}))
        for _ in range(2):
            run_round(f, state)
        states.append(state)
    slow, fast = states
    torch.testing.assert_close(fast.dense, slow.dense, rtol=1e-3, atol=1e-5)
    torch.testing.assert_close(fast.tables, slow.tables, rtol=1e-3, atol=1e-5)
    assert fast.traffic == slow.traffic


def test_the_ledger_counts_the_rows_of_the_sample() -> None:
    f, state = built(pictures(), config({"sampled_rows": 7}))
    run_round(f, state)
    assert state.traffic.rows_down == 3 * 7 * (6 * 4 + 8)
    assert state.traffic.requests_up == 3 * 7 * 8


@pytest.mark.parametrize(
    ("method", "said"),
    [
        ({"negatives": 3, "sampled_rows": 9}, "not both"),
        ({"loss_form": "positives", "negatives": 3}, "has no negatives"),
        ({"matched": True}, "is for loss_form"),
        ({"draw": "cover"}, "needs cover"),
        ({"draw": "cover", "cover": 4, "negatives": 3}, "leave the other sizes out"),
        ({"cover": 4}, 'is for draw = "cover"'),
    ],
)
def test_settings_that_contradict_each_other_are_refused(method: dict[str, object], said: str) -> None:
    with pytest.raises(so.UserError, match=said):
        config(method)


def test_samples_larger_than_what_is_left_are_refused_or_said() -> None:
    with pytest.raises(so.UserError, match="there are only 12 classes"):
        build_federation(config({"sampled_rows": 13}), pictures(), CPU)
    with pytest.raises(so.UserError, match="there are only 12 classes"):
        build_federation(config({"negatives": 12}), pictures(), CPU)
    everything = pictures(clients=1)
    f, state = built(everything, config({"negatives": 4}, clients={"per_round": 1, "batch": 4}))
    assert "holds every class" in str(f.method.warnings(f.data))
    run_round(f, state)  # and trains all the same
    assert "request no negatives" in str(FedSS(sampled_rows=2).warnings(pictures().train))


def test_a_client_without_examples_is_refused_and_the_rest_go_on() -> None:
    data = pictures()
    x, y = data.train.columns["x"], data.train.columns["y"]
    offsets = torch.cat([data.train.offsets, data.train.offsets[-1:]])
    lonely = FederatedDataset({"x": x, "y": y}, offsets, 12)
    f, state = built(
        Splits("lonely", lonely, data.test), config({"sampled_rows": 7}, clients={"batch": 4})
    )
    report = run_round(f, state)
    assert report.refused == {"no examples": 1}
    assert report.accepted == 6


# ---------------------------------------------------------------- encoders and augmentation


@pytest.mark.parametrize(
    "name",
    [
        *("convnet", "resnet8", "resnet20", "resnet32", "resnet56"),
        *("mobilenet_v3_small", "mobilenet_v3_large"),
    ],
)
def test_encoders_make_embeddings_and_need_no_batch(name: str) -> None:
    """GroupNorm: an example's embedding does not depend on who else is in the batch."""
    torch.manual_seed(0)
    shape = DataShape(classes=2, first_class=0, features=3 * 32 * 32, window=None, image=(3, 32, 32))
    encoder = build_model(ModelConfig(encoder=name), shape, seed=0).encoder
    x = torch.randn(3, 3, 32, 32)
    whole = encoder(x)
    assert whole.shape == (3, 64)
    torch.testing.assert_close(encoder(x[1:2])[0], whole[1], rtol=1e-4, atol=1e-5)
    assert activation_floats(encoder, (3, 32, 32)) > 10_000


def test_resnets_have_as_many_layers_as_they_say() -> None:
    for depth in (8, 20, 32, 56):
        made = images.ResNet(depth, 3, 64)
        layers = [m for m in made.modules() if isinstance(m, torch.nn.Conv2d | torch.nn.Linear)]
        assert len(layers) == depth


def test_resnets_halve_twice_and_pass_their_input_on() -> None:
    made = images.ResNet(20, 3, 64)
    x, sizes = made.stem(torch.randn(2, 3, 32, 32)), []
    assert (x >= 0).all()
    for block in made.stages:
        before, x = x, block(x)
        assert (x >= 0).all()
        sizes.append(tuple(x.shape[1:]))
        with torch.no_grad():
            after = block.after_second  # with nothing of its own to add, a block hands on what it got
            kept = after.weight.clone(), after.bias.clone()
            after.weight.zero_(), after.bias.zero_()
            short = before[..., :: block.stride, :: block.stride]
            passed = block(before)
            torch.testing.assert_close(passed[:, : short.shape[1]], short)
            assert not passed[:, short.shape[1] :].any()
            after.weight.copy_(kept[0]), after.bias.copy_(kept[1])
    assert sizes == [(16, 32, 32)] * 3 + [(32, 16, 16)] * 3 + [(64, 8, 8)] * 3


def test_the_mobilenet_halves_five_times_and_squeezes() -> None:
    made = images.mobilenet_v3_small(3, 224, 64)
    x, sides = torch.randn(1, 3, 224, 224), []
    for layer in made.body:
        before, x = x, layer(x)
        sides.append(x.shape[-1])
        if getattr(layer, "squeeze", None) is not None:
            with torch.no_grad():
                for part in layer.squeeze[2].parameters():
                    part.zero_()  # every channel then counts half
            y = layer.depthwise(layer.expand(before))
            half = layer.project(y * 0.5)
            torch.testing.assert_close(layer(before), before + half if layer.residual else half)
    assert sorted(set(sides), reverse=True) == [112, 56, 28, 14, 7]
    assert sum(getattr(layer, "squeeze", None) is not None for layer in made.body) == 9
    small = images.mobilenet_v3_small(1, 28, 64)
    assert small.body(torch.randn(1, 1, 28, 28)).shape[-1] == 4  # strides stop there


def test_norms_have_groups_of_about_eight() -> None:
    assert [images.group_norm(c).num_groups for c in (8, 16, 24, 64, 72)] == [1, 2, 3, 8, 9]


@pytest.mark.parametrize(("size", "parameters"), [("small", 2_542_856), ("large", 5_483_032)])
def test_mobilenets_are_as_large_as_the_published_ones(size: str, parameters: int) -> None:
    """torchvision's, whose last layer is for 1,000 classes; the paper says 2.5 and 5.4 million."""
    with torch.device("meta"):
        made = getattr(images, f"mobilenet_v3_{size}")(3, 224, 1000)
    assert sum(p.numel() for p in made.parameters()) == parameters


def test_images_are_shifted_and_mirrored_and_nothing_else() -> None:
    x = torch.arange(36.0).view(1, 1, 1, 1, 6, 6).expand(2, 3, 4, 1, 6, 6).contiguous()
    moved = Augment(shift=1, flip=True)(x, np.array([0, 1]), seed=0, round=0)
    assert moved.shape == x.shape
    picture, seen = x[0, 0, 0, 0], set()
    for one in moved.reshape(-1, 6, 6):
        fits = [
            (down, right, flipped)
            for down in (-1, 0, 1)
            for right in (-1, 0, 1)
            for flipped in (False, True)
            if torch.equal(_moved(picture, down, right, flipped), one)
        ]
        assert len(fits) == 1
        seen.add(fits[0])
    assert len(seen) > 8
    flat = Splits(
        "flat",
        FederatedDataset.from_arrays(np.eye(4), np.arange(4), np.arange(4)),
        Examples.from_arrays(np.eye(4), np.arange(4)),
    )
    with pytest.raises(so.UserError, match="inputs are no images"):
        build_federation(so.Experiment.of({"clients": {"image_shift": 1}}), flat, CPU)
    low = np.zeros((4, 1, 6, 9), dtype=np.float32)
    wide = Splits(
        "wide",
        FederatedDataset.from_arrays(low, np.arange(4), np.arange(4)),
        Examples.from_arrays(low, np.arange(4)),
    )
    build_federation(so.Experiment.of({"clients": {"image_shift": 3}}), wide, CPU)
    with pytest.raises(so.UserError) as far:
        build_federation(so.Experiment.of({"clients": {"image_shift": 4}}), wide, CPU)
    assert str(far.value) == (
        "clients.image_shift = 4: images have 6 x 9 pixels; take 3 at most, half of the shorter side"
    )


def _moved(picture: torch.Tensor, down: int, right: int, flipped: bool) -> torch.Tensor:
    place = torch.arange(6)
    columns = (place + right).clamp(0, 5)
    columns = 5 - columns if flipped else columns
    return picture[(place + down).clamp(0, 5)][:, columns]


def test_image_encoders_want_images(toy: Splits) -> None:
    with pytest.raises(so.UserError, match="takes images"):
        build_federation(config({"sampled_rows": 2}), toy, CPU)


# ---------------------------------------------------------------- retrieval


@settings(deadline=None, max_examples=20)
@given(st.integers(0, 1000))
def test_retrieval_metrics_are_those_of_a_plain_loop(seed: int) -> None:
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 4, size=15)
    points = project_to_sphere(torch.from_numpy(rng.normal(size=(15, 3))).float())
    near = (points @ points.T).fill_diagonal_(-9).argsort(1, descending=True)[:, :-1].numpy()
    sizes = np.array([(labels == label).sum() - 1 for label in labels])
    right = labels[near] == labels[:, None]
    for k in (None, 3, 10):
        each = []
        for i in range(15):
            wanted = sizes[i] if k is None else k
            if sizes[i]:
                gains = [right[i, : j + 1].mean() for j in range(min(wanted, 14)) if right[i, j]]
                each.append(sum(gains) / wanted)
        if each:
            found = metrics.map_at(torch.from_numpy(right), torch.from_numpy(sizes), k)
            assert found == pytest.approx(100 * np.mean(each))
    if (sizes > 0).any():
        found = metrics.retrieval_recall_at(torch.from_numpy(right), torch.from_numpy(sizes), 2)
        assert found == pytest.approx(100 * right[sizes > 0, :2].any(1).mean())


def test_new_classes_are_retrieved_and_cannot_be_ranked() -> None:
    data = pictures()
    f, state = built(data, config({"sampled_rows": 7}))
    found = evaluate(f.model, state, data.test, ["MAP@R", "MAP@10", "retrieval R@1"]).metrics
    assert 0 < found["MAP@R"] < 100
    with pytest.raises(so.UserError, match="never trained on, so they have no P@1"):
        build_federation(config({"sampled_rows": 7}, eval={"metrics": ["MAP@R", "P@1"]}), data, CPU)


def test_classes_are_learned_from_samples_and_not_from_positives_alone() -> None:
    """Scored on the drawings trained on: what no client holds together is told apart all the same."""
    data = pictures(each=20)
    assert data.validation is not None
    data = replace(data, test=data.validation)
    adam = {"optimizer": "adam", "lr": 0.01, "eps": 1e-6}
    found = {}
    for name, method in (("sampled", {"sampled_rows": 8}), ("positives", {"loss_form": "positives"})):
        experiment = config(
            {**method, "scale": 5.0},
            rounds=90,
            clients={"per_round": "all", "batch": "full", "local_steps": 1, "lr": 1.0},
            server={**adam, "tables": {"classes": adam}},
            eval={"metrics": ["P@1", "MAP@R"], "every": 90},
        )
        found[name] = so.run(experiment, data=data).metrics
    for name in ("P@1", "MAP@R"):
        assert found["sampled"][name] > 90
        assert found["positives"][name] < 70


# ---------------------------------------------------------------- what requests give away


def test_fresh_negatives_are_intersected_away_and_fixed_ones_are_not() -> None:
    data = pictures(classes=60, each=4, clients=20, size=8)
    own = {i: data.train.rows_of(torch.tensor([i]))["classes"][0].numpy() for i in range(20)}
    looks = {}
    for draw in ("fresh", "fixed"):
        f, _ = built(
            data, config({"sampled_rows": 15, "draw": draw}, clients={"per_round": "all", "batch": 4})
        )
        asked = (
            (int(client), cohort.requests["classes"][i].tolist())
            for cohort in (draw_cohort(f, r) for r in range(6))
            for i, client in enumerate(cohort.clients)
        )
        looks[draw] = audit(asked, own, np.full(60, 1 / 60), fixed=draw == "fixed")
    fresh, fixed = looks["fresh"], looks["fixed"]
    assert [look.requests for look in fresh] == [1, 2, 3, 4, 5, 6]
    assert fresh[0].confidence == pytest.approx(3 / 15)
    assert fresh[-1].exposed > 0.9
    assert fresh[-1].found > 0.95
    assert fixed[-1].confidence == pytest.approx(3 / 15)
    assert fixed[-1].exposed == 0


@pytest.mark.parametrize("by_popularity", [False, True])
@pytest.mark.parametrize("own", [1, 3])
def test_beliefs_are_calibrated(by_popularity: bool, own: int) -> None:
    """Of classes given the probability p, the share p are the client's."""
    rng = np.random.default_rng(0)
    weight = rng.dirichlet(np.full(40, 0.7))
    believed, true = [], []
    for _ in range(1500):
        mine = rng.choice(40, size=own, replace=False, p=weight)
        rest = np.setdiff1d(np.arange(40), mine)
        share = weight[rest] / weight[rest].sum() if by_popularity else None
        sets = [np.union1d(mine, rng.choice(rest, size=12, replace=False, p=share)) for _ in range(2)]
        candidates = np.intersect1d(*sets)
        found = posterior(candidates, own, 2, 12 + own, weight, by_popularity=by_popularity)
        assert found.sum() == pytest.approx(own, abs=1e-6)
        believed.append(found)
        true.append(np.isin(candidates, mine))
    belief, right = np.concatenate(believed), np.concatenate(true)
    for low in np.arange(0, 1, 0.2):
        among = (belief >= low) & (belief < low + 0.2 + 1e-9)
        if among.sum() > 100:
            chance = (belief[among] * (1 - belief[among])).sum() ** 0.5 / among.sum()
            assert abs(right[among].mean() - belief[among].mean()) < 0.04 + 2 * chance


def drawn_in_some_order(some: tuple[int, ...], weight: np.ndarray, without: frozenset[int]) -> float:
    """How likely a draw without replacement is to take exactly these."""
    total = 0.0
    for order in itertools.permutations(some):
        chance, left = 1.0, weight[[i for i in range(len(weight)) if i not in without]].sum()
        for one in order:
            chance *= weight[one] / left
            left -= weight[one]
        total += chance
    return total


@pytest.mark.parametrize("by_popularity", [False, True])
@pytest.mark.parametrize("own", [1, 2])
def test_beliefs_are_near_those_of_an_observer_who_tries_everything(
    by_popularity: bool, own: int
) -> None:
    weight = np.array([0.3, 0.25, 0.2, 0.1, 0.08, 0.07])
    requests = [(0, 1, 3, 4), (0, 2, 3, 4)]
    candidates = (0, 3, 4)
    even = np.full(6, 1 / 6)
    likely = {}
    for mine in itertools.combinations(candidates, own):
        chance = drawn_in_some_order(mine, weight, frozenset())
        for asked in requests:
            others = tuple(c for c in asked if c not in mine)
            chance *= drawn_in_some_order(others, weight if by_popularity else even, frozenset(mine))
        likely[mine] = chance
    exact = [sum(p for mine, p in likely.items() if c in mine) for c in candidates]
    exact = [one / sum(likely.values()) for one in exact]
    found = posterior(np.array(candidates), own, 2, 4, weight, by_popularity=by_popularity)
    exactly = own == 1 and not by_popularity
    assert found == pytest.approx(exact, abs=1e-9 if exactly else 0.08)


def test_an_observer_counts_requests_and_knows_how_they_were_drawn() -> None:
    """Four classes alike, one own among the two candidates left after two requests."""
    even = np.full(4, 0.25)
    looks = audit(
        [(0, [0, 1, 2]), (0, [0, 1, 3]), (1, [])], {0: np.array([1]), 1: np.array([], int)}, even
    )
    assert [(look.clients, look.candidates) for look in looks] == [
        (1, 3.0),
        (1, 2.0),
    ]  # not the empty one
    assert [look.confidence for look in looks] == pytest.approx([1 / 3, 1 / 2])
    assert [look.found for look in looks] == pytest.approx([1 / 3, 1 / 2])
    # One class as popular as three: by popularity it is the likelier one at first, and suspect no longer.
    skewed = np.array([0.6, 0.2, 0.1, 0.1])
    assert posterior(np.array([0, 1]), 1, 2, 3, skewed)[0] == pytest.approx(0.75)
    popular = [posterior(np.array([0, 1]), 1, t, 3, skewed, by_popularity=True)[0] for t in (1, 2, 6)]
    assert 0.75 > popular[0] > popular[1] > popular[2]
    # Asked for again, the same rows are no news to one who knows that they are fixed.
    again = [(0, [0, 1, 2])] * 4
    asked = {0: np.array([0])}
    known = audit(again, asked, skewed, by_popularity=True, fixed=True)
    assert len({look.confidence for look in known}) == 1
    unknown = audit(again, asked, skewed, by_popularity=True)
    assert unknown[3].confidence < unknown[0].confidence


@pytest.mark.parametrize("draw", ["fresh", "fixed", "popular", "popular-fixed"])
def test_an_audit_goes_by_how_the_runs_negatives_are_drawn(draw: str) -> None:
    x = np.eye(6, dtype=np.float32)[[0, 0, 0, 0, 0, 1, 2, 3, 4, 5]]
    y = np.array([0, 0, 0, 0, 0, 1, 2, 3, 4, 5])
    data = FederatedDataset.from_arrays(x, y, np.arange(10))  # half of all clients have class 0
    requests = [(5, [0, 1, 2])] * 2
    looks = Watched(requests, data, FedSS(sampled_rows=3, draw=draw), 0).looks()  # type: ignore[arg-type]
    skew = data.popularity.double().numpy()
    how = {"by_popularity": draw.startswith("popular"), "fixed": draw.endswith("fixed")}
    expected = audit(requests, {5: np.array([1])}, skew, **how)
    assert looks == expected
    plain = audit(requests, {5: np.array([1])}, skew)
    assert (looks == plain) == (draw in ("fresh", "fixed"))


def test_a_run_logs_its_requests_and_can_be_audited(tmp_path: Path) -> None:
    arguments = ["rounds=3", "method.name=fedss", "method.sampled_rows=5", "run.log_requests=true"]
    done = CliRunner().invoke(app, ["run", "digits-fedaws", *arguments, "--out", str(tmp_path / "run")])
    assert done.exit_code == 0, done.output
    lines = (tmp_path / "run" / "requests.jsonl").read_text().splitlines()
    assert len(lines) == 3 * 10
    assert len(json.loads(lines[0])["rows"]) == 5
    told = CliRunner().invoke(app, ["audit", str(tmp_path / "run"), "--json"])
    looks = json.loads(told.stdout)
    assert [look["requests"] for look in looks] == [1, 2, 3]
    assert looks[2]["confidence"] > looks[0]["confidence"]
    simulated = CliRunner().invoke(
        app, ["audit", str(tmp_path / "run" / "config.toml"), "--rounds", "3", "--json"]
    )
    assert json.loads(simulated.stdout) == looks  # requests do not depend on the model
    each = CliRunner().invoke(app, ["audit", str(tmp_path / "run"), "--clients"])
    beliefs = [json.loads(line) for line in each.stdout.splitlines()]
    assert len(beliefs) == 30
    assert sum(beliefs[0]["posterior"].values()) == pytest.approx(1, abs=1e-4)
    drawn = CliRunner().invoke(
        app, ["confusion", str(tmp_path / "run"), "--client", "3", "-o", str(tmp_path / "c.html")]
    )
    assert drawn.exit_code == 0, drawn.output
    assert "<figure data-kind=matrix" in (tmp_path / "c.html").read_text()


def test_a_resumed_log_has_every_round_once(tmp_path: Path) -> None:
    experiment = config({"sampled_rows": 7}, rounds=5, run={"log_requests": True, "checkpoint_every": 2})
    rounds = iter(range(1, 100))
    with pytest.raises(so.Interrupted):
        so.run(experiment, data=pictures(), out=tmp_path / "cut", stop=lambda: next(rounds) == 3)
    so.resume(tmp_path / "cut", data=pictures())
    logged = [json.loads(line)["round"] for line in (tmp_path / "cut" / "requests.jsonl").open()]
    assert logged == [r for r in range(1, 6) for _ in range(3)]


def test_confusion_counts_what_is_taken_for_what() -> None:
    data = pictures()
    f, state = built(data, config({"sampled_rows": 7}))
    view = f.data.view(0)
    classes, counts = confusion(f.model, state, view)
    assert classes.tolist() == view.rows_of(torch.tensor([0]))["classes"][0].tolist()
    assert counts.sum() == view.examples
    held = [int((view.columns["y"].take(torch.arange(view.examples)) == c).sum()) for c in classes]
    assert counts.sum(1).tolist() == held
    state.tables["classes"].zero_()[classes[1]] = (
        1.0  # everything is taken for the client's second class
    )
    embedded = torch.ones(1, 6)
    f.model.encoder.head.weight.data.zero_()  # type: ignore[union-attr]
    state.dense["head.weight"].zero_()
    state.dense["head.bias"].copy_(embedded[0])
    _, counts = confusion(f.model, state, view)
    assert counts[:, 1].tolist() == held


def test_a_query_does_not_find_itself_and_r_is_the_size_of_its_class() -> None:
    """Three of one class and two of another, embedded by hand: found in `evaluate`, not only in metrics."""
    x = np.array([[1, 0], [0.9, 0.1], [0.45, 0.55], [0.0, 1.0], [0.1, 0.9]], dtype=np.float32)
    y = np.array([0, 0, 0, 1, 1])
    data = Splits("plane", FederatedDataset.from_arrays(x, y, y), Examples.from_arrays(x, y))
    scored = {"metrics": ["MAP@R", "MAP@10", "retrieval R@1"]}
    f = build_federation(
        config({"negatives": 1}, model={}, eval=scored, clients={}), data, CPU, torch.nn.Identity()
    )
    state = ServerState(0, *f.model.initial(0, CPU))
    found = evaluate(f.model, state, data.test, scored["metrics"]).metrics
    # 0 and 1 find each other first and 2 second; 2 finds 4, 3, 1, 0; 3 and 4 find each other first.
    assert found["retrieval R@1"] == pytest.approx(80)
    assert found["MAP@R"] == pytest.approx(80)  # R = 2, 2, 2, 1, 1 others
    each = [1 + 2 / 2, 1 + 2 / 2, 1 / 3 + 2 / 4, 1, 1]
    assert found["MAP@10"] == pytest.approx(100 * sum(each) / 10 / 5)


def test_images_are_asked_in_any_layout_that_is_clear(tmp_path: Path) -> None:
    """Bytes are scaled as in training; a wrong shape is one line."""
    bytes_ = np.random.default_rng(0).integers(0, 256, size=(24, 1, 8, 8), dtype=np.uint8)
    label = np.arange(24) % 6
    x = Dense(torch.from_numpy(bytes_), scale=2 / 255, shift=-1.0)
    held = FederatedDataset({"x": x, "y": Dense(torch.from_numpy(label))}, torch.tensor([0, 12, 24]), 6)
    data = Splits("bytes", held, Examples({"x": x}, Ragged.from_lists([[int(c)] for c in label])))
    scored = {"metrics": ["P@1"]}
    so.run(
        config({"sampled_rows": 6}, rounds=2, clients={}, eval=scored), data=data, out=tmp_path / "run"
    )
    asked = Predictor.load(tmp_path / "run")
    flat = asked.predict(bytes_.reshape(24, 64), 1)
    assert flat == asked.predict(bytes_, 1) == asked.predict(bytes_[:, 0], 1)
    as_trained = bytes_.astype(np.float32) * (2 / 255) - 1
    for one, other in zip(flat, asked.predict(as_trained, 1), strict=True):
        assert one[0].id == other[0].id
    assert flat == asked.predict(bytes_.transpose(0, 2, 3, 1), 1)
    with pytest.raises(so.UserError, match=r"takes images of \(n, 1, 8, 8\)"):
        asked.predict(bytes_.reshape(24, 1, 4, 16), 1)


def test_another_encoder_takes_leave_of_the_old_ones_keys() -> None:
    """Over a preset that sets hidden layers; what is given with it must still make sense."""
    changed = so.Experiment.load("digits-fedaws", ["model.encoder=convnet"])
    assert changed.model.hidden is None
    assert changed.model.encoder == "convnet"
    with pytest.raises(so.UserError, match="has no use for it"):
        so.Experiment.load("digits-fedaws", ["model.encoder=convnet", "model.hidden=[3]"])


@pytest.mark.parametrize(
    "method", [{"name": "fedaws-softmax"}, {"name": "fedss", "loss_form": "positives"}]
)
def test_a_softmax_over_one_class_is_named_before_training(method: dict[str, Any]) -> None:
    x, y = np.eye(3).repeat(4, 0), np.arange(3).repeat(4)
    found = so.Experiment.of({"method": method}).method
    said = found.warnings(FederatedDataset.from_arrays(x, y, y))
    assert said is not None
    assert "3 of 3 clients hold one class, and a softmax over one learns nothing; take" in said
    assert "hold one class" not in (
        found.warnings(FederatedDataset.from_arrays(x, y, np.arange(12) % 2)) or ""
    )


def test_counts_and_popularity_come_from_one_message(tmp_path: Path) -> None:
    """With features of classes, counts are collected whatever the prior is."""
    np.save(tmp_path / "features.npy", np.eye(pictures().train.classes, dtype=np.float32))
    features = {"class_features": str(tmp_path / "features.npy")}
    method = {"name": "fedaws-softmax", "negatives": 2, "draw": "popular", **features}
    state = so.run(config(method, rounds=2), data=pictures(), device="cpu").state
    kept = state.method_tensors()
    assert kept["popularity"].sum() == pytest.approx(1.0)
    assert {"tower", "length"} <= kept.keys()  # what both remember
    assert "counts" in state.scoring


@pytest.mark.parametrize(
    "sampled",
    [{"negatives": 2}, {"loss_form": "sampled"}, {"loss_form": "negatives", "draw": "fixed"}],
)
def test_clients_that_hide_among_others_tell_no_counts(sampled: dict[str, Any]) -> None:
    assert not FedAwSSoftmax(**sampled).collects_counts
    assert FedAwSSoftmax().collects_counts  # its rows are its classes anyway
