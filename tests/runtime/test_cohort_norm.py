"""BatchNorm over a whole cohort is a plain BatchNorm over one batch, and refused where it cannot be."""

import copy

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

import spreadout as so
from spreadout.core.errors import UserError
from spreadout.core.state import ServerState
from spreadout.data.splits import Splits
from spreadout.federated.federation import Federation
from spreadout.federated.round import run_round
from spreadout.models.nn.cohort_norm import CohortNorm, over_cohort, statistics_in
from spreadout.models.nn.images import ResNet
from spreadout.runs.build import build_federation


@pytest.fixture
def pictures() -> Splits:
    """Three classes of ten small pictures; a client has one class."""
    rng = np.random.default_rng(0)
    y = np.repeat(np.arange(3), 10)
    x = rng.integers(0, 256, (30, 3, 8, 8)).astype(np.uint8)
    x[:, 0] //= (1 + y[:, None, None]).astype(np.uint8)
    train = so.FederatedDataset.from_arrays(x, y, client=y)
    return Splits("pictures", train, so.Examples.from_arrays(x, y))


def built(data: Splits, *overrides: str, norm: str = "batch") -> Federation:
    base = {
        "model": {"encoder": "resnet8", "norm": norm, "dim": 4},
        "clients": {"local_steps": 1, "batch": 4, "lr": 1.0},
        "server": {"lr": 0.1, "momentum": 0.9, "weight_decay": 0.01},
        "method": {"name": "baseline-2"},
    }
    return build_federation(so.Experiment.of(base, overrides=overrides), data, torch.device("cpu"))


def fresh(f: Federation) -> ServerState:
    return ServerState(0, *f.model.initial(f.seed, f.device))


def with_batch_norm(encoder: nn.Module) -> nn.Module:
    """The same network with torch's own BatchNorm in it."""
    twin = copy.deepcopy(encoder)
    for name, module in list(twin.named_modules()):
        if isinstance(module, CohortNorm):
            place, _, last = name.rpartition(".")
            torchs = nn.BatchNorm2d(len(module.weight))
            torchs.weight.data.copy_(module.weight.data)
            torchs.bias.data.copy_(module.bias.data)
            setattr(twin.get_submodule(place), last, torchs)
    return twin


def test_rounds_are_those_of_a_plain_loop_with_batch_norm(pictures: Splits) -> None:
    f = built(pictures)
    state = fresh(f)
    twin = with_batch_norm(f.model.encoder)
    decayed = [p for p in twin.parameters() if p.dim() > 1]
    others = [p for p in twin.parameters() if p.dim() == 1]
    groups = [{"params": decayed, "weight_decay": 0.01}, {"params": others, "weight_decay": 0.0}]
    optimizer = torch.optim.SGD(groups, lr=0.1, momentum=0.9)
    rows = state.tables["classes"].clone()
    for round in range(3):
        plan = f.plan(torch.arange(3), round)
        at = (f.data.offsets[:3][:, None] + plan.index[:, 0]).flatten()
        x, y = f.data.columns["x"].take(at), f.data.columns["y"].take(at)
        cosine = (F.normalize(twin(x), dim=-1) * rows[y]).sum(-1)
        optimizer.zero_grad()
        (0.9 - cosine).clamp_min(0).square().mean().backward()
        optimizer.step()
        report = run_round(f, state)
        assert report.accepted == 3
    theirs = dict(twin.named_parameters())
    for name, module in twin.named_modules():
        if isinstance(module, nn.BatchNorm2d):
            theirs |= {f"{name}.mean": module.running_mean, f"{name}.variance": module.running_var}
    assert set(theirs) == set(state.dense)
    for name, value in state.dense.items():
        torch.testing.assert_close(value, theirs[name].detach(), rtol=1e-4, atol=1e-5, msg=name)
    twin.eval()
    asked = f.data.columns["x"].take(torch.arange(5))
    found = f.model.embed(so.Params(state.dense, {}), {"x": asked})
    torch.testing.assert_close(found, F.normalize(twin(asked), dim=-1), rtol=1e-4, atol=1e-5)


def test_statistics_are_never_trained_nor_left_in_the_encoder(pictures: Splits) -> None:
    f = built(pictures)
    names = statistics_in(f.model.encoder)
    assert len(names) == 2 * 7
    assert f.model.constant_dense == set(names)
    before = {name: value.clone() for name, value in f.model.encoder.named_parameters()}
    state = fresh(f)
    run_round(f, state)
    for name, value in f.model.encoder.named_parameters():
        assert torch.equal(value, before[name])
    assert not any(torch.equal(state.dense[name], before[name]) for name in names)
    assert not any(part.removeprefix("dense/") in names for part in state.slots)


def test_the_whole_cohort_is_one_batch_only_inside() -> None:
    encoder = ResNet(8, 3, 4, CohortNorm)
    dense = {name: value.detach() for name, value in encoder.named_parameters()}
    x = torch.randn(6, 3, 8, 8)
    with torch.no_grad():
        outside = encoder(x)
        assert torch.allclose(encoder(x[:2]), outside[:2], atol=1e-6)  # each image on its own
        with over_cohort(encoder, dense) as (used, moved):
            inside = torch.func.functional_call(encoder, used, (x,))
        assert torch.equal(encoder(x), outside)
    assert not torch.allclose(inside, outside, atol=1e-2)
    assert all(not torch.equal(moved[name], dense[name]) for name in statistics_in(encoder))


def test_a_round_that_is_not_finite_leaves_everything_as_it_was(pictures: Splits) -> None:
    f = built(pictures)
    state = fresh(f)
    state.dense["stem.0.weight"][0, 0, 0, 0] = float("nan")
    before = {name: value.clone() for name, value in state.dense.items()}
    report = run_round(f, state)
    assert report.accepted == 0
    assert report.refused == {"not finite": 3}
    for name, value in state.dense.items():
        assert torch.equal(value.nan_to_num(), before[name].nan_to_num()), name


@pytest.mark.parametrize(
    ("override", "why"),
    [
        (["clients.local_steps=2"], "set clients.local_steps = 1"),
        (["run.executor=sequential"], "one process of the simulator"),
        (["clients.optimizer=adam"], "looks at each client's own change"),
        (["clients.max_update_norm=1"], "looks at each client's own change"),
        (["server.robust=median"], "looks at each client's own change"),
        (["privacy={clip=1.0, noise=1.0}"], "have no noise"),
    ],
)
def test_where_it_cannot_be_had_it_is_refused(pictures: Splits, override: list[str], why: str) -> None:
    with pytest.raises(
        UserError, match=f'model.norm = "batch": .*{why}.*; model.norm = "group" works everywhere'
    ):
        built(pictures, *override)
    built(pictures, *override, norm="group")


def test_a_cohort_in_several_chunks_is_refused(pictures: Splits) -> None:
    f = built(pictures, "run.memory_gb=0.0002")
    with pytest.raises(UserError, match=r"3 clients does not fit run.memory_gb = 0.0002 as one batch"):
        run_round(f, fresh(f))


def test_the_sums_that_the_norms_are_made_of_are_counted(pictures: Splits) -> None:
    """Two numbers a channel forward and two backward, up and down, beside the model itself."""
    counted = {}
    for norm in ("batch", "group"):
        f = built(pictures, norm=norm)
        state = fresh(f)
        run_round(f, state)
        counted[norm] = state.traffic.dense_down, state.traffic.dense_up
        channels = sum(len(m.weight) for m in f.model.encoder.modules() if isinstance(m, CohortNorm))
        assert (channels > 0) == (norm == "batch")
        dense = sum(value.numel() for value in state.dense.values())
        assert counted[norm] == (3 * 4 * (dense + 4 * channels),) * 2  # three clients, 32 bits


def test_group_norm_stays_what_it_was(pictures: Splits) -> None:
    assert not statistics_in(built(pictures, norm="group").model.encoder)
