"""Noise on examples: as a slow twin and as Opacus have it, drawn by Poisson, and accounted for."""

import json
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn

import spreadout as so
from spreadout.core.types import Params, RowInfo
from spreadout.data.splits import Splits
from spreadout.federated.example_noise import ExampleNoise
from spreadout.federated.schedule import Schedule, plan
from spreadout.methods import FedAvg, FedSS
from spreadout.models.embedding import EmbeddingModel, TableShape
from spreadout.privacy.central import Rounds
from spreadout.privacy.cover import blocks_of
from spreadout.privacy.mechanism import GaussianMechanism
from spreadout.runs import example_promises
from spreadout.runs.build import build_federation
from toys import several_classes, shop, shop_config

CLIENTS = {"per_round": 3, "local_steps": 2, "batch": 3, "lr": 0.3}
PRIVATE = {"model": "example", "clip": 0.5, "noise": 1.0}


def silo(
    noise: float = 0.0,
) -> tuple[EmbeddingModel, ExampleNoise, Params, dict[str, torch.Tensor], RowInfo]:
    """One client with seven examples of four classes."""
    draw = torch.Generator().manual_seed(0)
    model = EmbeddingModel(nn.Linear(5, 3), {"classes": TableShape(4, 3)})
    method = FedAvg(scale=20.0)
    dense = {name: value.detach().clone() for name, value in model.encoder.named_parameters()}
    rows = torch.nn.functional.normalize(torch.randn(4, 3, generator=draw))
    batch = {
        "x": torch.randn(7, 5, generator=draw) * 3,
        "y": torch.randint(0, 4, (7,), generator=draw),
        "mask": torch.tensor([1.0, 1, 1, 0, 1, 1, 1]),
    }
    info = RowInfo({"classes": torch.ones(4, dtype=torch.bool)}, {}, {}, {})

    def loss(params: Params, batch: dict[str, torch.Tensor], info: RowInfo) -> torch.Tensor:
        return method.loss(model, params, batch, info)

    mechanism = GaussianMechanism(model="example", clip=0.5, noise=noise)
    private = ExampleNoise(torch.vmap(loss), mechanism, 4.0, 0, 0, torch.tensor([7]))  # type: ignore[arg-type]
    return model, private, Params(dense, {"classes": rows}), batch, info


def made(
    private: ExampleNoise, start: Params, batch: dict[str, torch.Tensor], info: RowInfo, step: int = 0
):  # type: ignore[no-untyped-def]
    live = Params(*({n: v.clone() for n, v in part.items()} for part in start))
    return private.gradients(live, ["classes"], batch, info, step, ...)[1]


def test_gradients_are_clipped_one_by_one_as_a_slow_twin_does_it() -> None:
    model, private, start, batch, info = silo()
    method, sums = FedAvg(scale=20.0), None
    for b in range(7):
        if not batch["mask"][b]:
            continue
        leaves = [*(v.clone().requires_grad_() for v in start.dense.values())]
        rows = start.rows["classes"].clone().requires_grad_()
        params = Params(dict(zip(start.dense, leaves, strict=True)), {"classes": rows})
        one = {name: column[b : b + 1] for name, column in batch.items()}
        found = torch.autograd.grad(method.loss(model, params, one, info), [*leaves, rows])
        length = torch.cat([g.flatten() for g in found]).norm()
        short = [g * min(1.0, 0.5 / float(length)) for g in found]
        sums = short if sums is None else [a + b for a, b in zip(sums, short, strict=True)]
    assert sums is not None
    for ours, theirs in zip(made(private, start, batch, info), sums, strict=True):
        torch.testing.assert_close(ours, theirs / 4.0, rtol=1e-5, atol=1e-6)


def test_a_step_is_opacus_s_step() -> None:
    """The same clipped gradients, and with noise 0 the same weights after a step."""
    pytest.importorskip("opacus", reason="opacus is not installed")
    from opacus import GradSampleModule
    from opacus.optimizers import DPOptimizer

    _, private, start, batch, info = silo()

    class Twin(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.encoder, self.classes = nn.Linear(5, 3), nn.Linear(3, 4, bias=False)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return 20.0 * self.classes(nn.functional.normalize(self.encoder(x)))  # type: ignore[no-any-return]

    twin = Twin()
    with torch.no_grad():
        twin.encoder.weight.copy_(start.dense["weight"])
        twin.encoder.bias.copy_(start.dense["bias"])
        twin.classes.weight.copy_(start.rows["classes"])
    there = batch["mask"] > 0
    guarded = GradSampleModule(twin)
    optimizer = DPOptimizer(
        torch.optim.SGD(guarded.parameters(), lr=0.3),
        noise_multiplier=0.0,
        max_grad_norm=0.5,
        expected_batch_size=4,
    )
    loss = nn.functional.cross_entropy(guarded(batch["x"][there]), batch["y"][there])
    loss.backward()
    optimizer.step()
    ours = made(private, start, batch, info)
    stepped = {
        "encoder.weight": start.dense["weight"] - 0.3 * ours[0],
        "encoder.bias": start.dense["bias"] - 0.3 * ours[1],
        "classes.weight": start.rows["classes"] - 0.3 * ours[2],  # before it goes back to the sphere
    }
    for name, value in twin.named_parameters():
        torch.testing.assert_close(stepped[name], value.detach(), rtol=1e-4, atol=1e-5)


def test_steps_cost_what_opacus_says() -> None:
    """Rényi against its own; its PRV accountant against privacy loss distributions."""
    pytest.importorskip("opacus", reason="opacus is not installed")
    pytest.importorskip("dp_accounting")
    from opacus.accountants import PRVAccountant, RDPAccountant

    renyi, prv = RDPAccountant(), PRVAccountant()
    renyi.history = prv.history = [(1.1, 0.05, 200)]
    steps = Rounds("poisson", 5, 100)
    assert steps.at_most(1.1, 200, 1e-5) == pytest.approx(renyi.get_epsilon(1e-5), rel=0.02)
    assert steps.spent(1.1, 200, 1e-5).pld == pytest.approx(prv.get_epsilon(1e-5), rel=0.02)


def test_noise_has_the_deviation_that_is_claimed_and_is_new_in_every_step() -> None:
    _, quiet, start, batch, info = silo()
    _, loud, *_ = silo(noise=2.0)
    without = torch.cat([g.flatten() for g in made(quiet, start, batch, info)])
    drawn = [
        torch.cat([g.flatten() for g in made(loud, start, batch, info, step)]) for step in range(200)
    ]
    noise = torch.stack(drawn) - without
    assert float(noise.std()) == pytest.approx(2.0 * 0.5 / 4.0, rel=0.04)  # 6,000 numbers
    assert not torch.equal(drawn[0], drawn[1])
    again = torch.cat([g.flatten() for g in made(loud, start, batch, info, 0)])
    assert torch.equal(again, drawn[0])


def test_examples_come_by_themselves() -> None:
    schedule = Schedule(steps=200, batch=5, poisson=True)
    found = plan(schedule, np.array([50, 3]), np.array([0, 1]), seed=0, round=0)
    sizes = found.mask.sum(-1)
    assert float(sizes[0].mean()) == pytest.approx(5, rel=0.15)
    assert float(sizes[0].var()) == pytest.approx(50 * 0.1 * 0.9, rel=0.4)
    assert sizes[1].unique().tolist() == [3.0]  # all of a small client's, in every step
    seen = torch.bincount(found.index[0][found.mask[0] > 0], minlength=50)
    assert 5 < int(seen.min()) <= int(seen.max()) < 45  # of 200 · 0.1
    other = plan(schedule, np.array([50]), np.array([0]), seed=0, round=0)
    assert torch.equal(other.mask.sum(-1)[0], sizes[0])  # whoever else is there


def test_a_step_without_examples_releases_noise() -> None:
    _, loud, start, batch, info = silo(noise=2.0)
    nobody = {**batch, "mask": torch.zeros(7)}
    assert all(bool((gradient != 0).all()) for gradient in made(loud, start, nobody, info))


def test_a_run_accounts_for_the_smallest_client_that_came_most(tmp_path: Path) -> None:
    values = {
        "rounds": 3,
        "model": {"hidden": [5], "dim": 4},
        "clients": {**CLIENTS, "per_round": "all"},
        "privacy": PRIVATE,
        "chosen": [],
    }
    result = so.run(values, data=several_classes(), out=tmp_path / "run")
    told = result.summary["privacy"]
    worst = Rounds("poisson", 3, 3).spent(1.0, 3 * 2, 1e-6).epsilon  # three examples: all in every step
    assert told["epsilon"] == pytest.approx(worst)
    assert told["unit"] == "an example of a client"
    said = json.loads((tmp_path / "run" / "privacy.json").read_text())
    assert said["adjacency"].startswith("one example's contribution is replaced by nothing")
    assert result.history[-1]["epsilon"] == pytest.approx(worst)


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"clients": {"local_epochs": 1, "batch": 3}}, "clients.local_epochs"),
        ({"clients": {"local_steps": 1, "batch": "full"}}, "clients.batch"),
        ({"clients": {**CLIENTS, "drop_remainder": True}}, "clients.drop_remainder"),
        ({"method": {"name": "fedaws", "weighting": "examples"}}, "method.weighting"),
        ({"method": {"name": "fedalc"}}, "without noise"),
        ({"clients": {**CLIENTS, "max_examples": 10}}, "clients.max_examples = 10"),
        (
            {"clients": {**CLIENTS, "request_features": "seen"}},
            "features of the examples that were drawn",
        ),
        ({"method": {"name": "fedss", "negatives": 1}}, "method.correct = false"),
        ({"method": {"name": "fedss", "loss_form": "negatives"}}, "which classes are its own"),
        ({"method": {"name": "fedss", "loss_form": "positives"}}, "which classes are its own"),
    ],
)
def test_what_tells_more_than_the_steps_is_refused(changes: dict[str, object], word: str) -> None:
    values = {"rounds": 1, "clients": CLIENTS, "privacy": PRIVATE, "chosen": [], **changes}
    with pytest.raises(so.UserError, match=word):
        build_federation(so.Experiment.of(values), several_classes(), torch.device("cpu"))


def test_a_loss_over_a_batch_is_refused() -> None:
    config = shop_config(privacy=PRIVATE, clients={"local_steps": 1})
    with pytest.raises(so.UserError, match="depends on the client's others"):
        build_federation(config, shop(), torch.device("cpu"))


def test_a_loss_that_knows_a_client_s_own_classes_is_refused() -> None:
    config = shop_config(
        privacy=PRIVATE,
        clients={"local_steps": 1, "batch": 2},
        method={"name": "dual_encoder", "loss_form": "sampled_softmax", "negatives": 1},
    )
    with pytest.raises(so.UserError, match="which classes are its own"):
        build_federation(config, shop(), torch.device("cpu"))


def cover_sums(method: dict[str, object], *, without: int | None) -> tuple[Params, torch.Tensor]:
    """The first step's sums of a client with forty examples of a class and one of its block mate."""
    blocks = blocks_of(0, 8, 4)
    mate = int(np.flatnonzero((blocks == blocks[0]) & (np.arange(8) != 0))[0])
    rng = np.random.default_rng(1)
    x, y = rng.normal(size=(41, 6)).astype(np.float32), np.array([0] * 40 + [mate])
    keep = np.arange(41) != (-1 if without is None else without)
    data = Splits(
        "toy",
        so.FederatedDataset.from_arrays(x[keep], y[keep], np.zeros(int(keep.sum()), int), classes=8),
        so.Examples.from_arrays(x, y),
    )
    values = {
        "rounds": 1,
        "chosen": [],
        "model": {"hidden": [5], "dim": 4},
        "method": {"name": "fedss", "draw": "cover", "cover": 4, "merge": "mean", **method},
        "clients": {"batch": 1000, "lr": 1.0, "row_lr": 1.0, "local_steps": 1},
        "privacy": {"model": "example", "clip": 0.05, "noise": 0.0},
        "run": {"executor": "sequential"},
    }
    f = build_federation(so.Experiment.of(values), data, torch.device("cpu"))
    state = so.ServerState(0, *f.model.initial(0, f.device))
    cohort = f.executor.cohort(f, state)
    found = f.executor.train(f, state, cohort)
    total = next(iter(found))
    change = Params(total.dense, {name: rows.total for name, rows in total.rows.items()})
    return change, cohort.requests["classes"][0]


def test_an_example_less_moves_a_step_by_its_clip_whatever_its_class(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The rows requested stay the same; with the correction for own classes all examples moved."""

    def moved(method: dict[str, object]) -> float:
        (one, asked), (other, again) = (cover_sums(method, without=None), cover_sums(method, without=40))
        assert torch.equal(asked, again)
        apart = [
            (part[n].double() - rest[n].double()).square().sum()
            for part, rest in zip(one, other, strict=True)
            for n in part
            if n != "classes"
        ]
        return float(torch.stack(apart).sum().sqrt()) * 1000 / 0.05  # in clips

    assert moved({"correct": False}) <= 1 + 1e-4
    monkeypatch.setattr(FedSS, "loss_is_of_each_example", True)
    assert moved({"loss_form": "negatives"}) > 1.5


def test_epsilon_is_the_largest_of_what_is_reported_and_not_of_a_looser_bound() -> None:
    """A client's Rényi bound may be the largest, and another's closest bound above its closest."""
    pytest.importorskip("dp_accounting", reason="dp-accounting is not installed")
    sizes, rounds = (6400, 16_000), (1, 1000)
    mechanism = GaussianMechanism(model="example", clip=1, noise=1.0)
    f = SimpleNamespace(
        clients=SimpleNamespace(schedule=Schedule(steps=1, batch=32, poisson=True)),
        data=SimpleNamespace(sizes=np.array(sizes)),
        executor=SimpleNamespace(releases=lambda state: dict(enumerate(rounds))),
    )
    each = [Rounds("poisson", 32, n) for n in sizes]
    bounds = [one.at_most(1.0, r, 1e-5) for one, r in zip(each, rounds, strict=True)]
    closest = [one.spent(1.0, r, 1e-5).epsilon for one, r in zip(each, rounds, strict=True)]
    assert (bounds[0] > bounds[1], closest[0] < closest[1]) == (True, True)
    found = example_promises.epsilon_at(f, None, mechanism, 1e-5)  # type: ignore[arg-type]
    assert found == max(closest)
