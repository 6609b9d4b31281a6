"""The pieces of a round against the same thing written out plainly."""

import numpy as np
import pytest
import torch
from torch.nn import functional as F

import spreadout as so
from spreadout.core.merging import MergeRules, RowSum
from spreadout.core.optimizers import Optimizer
from spreadout.core.rows import Rows, project_to_sphere
from spreadout.core.state import ServerState
from spreadout.core.types import Params, RowInfo
from spreadout.data.splits import Splits
from spreadout.federated.aggregate import ServerOptimizers, apply_
from spreadout.federated.batches import places_in
from spreadout.federated.local import LocalTraining, local_update
from spreadout.federated.round import run_round
from spreadout.federated.sampling import sample_clients
from spreadout.methods import FedAwS
from spreadout.methods.context import ServerContext
from spreadout.models.embedding import EmbeddingModel, TableShape
from spreadout.runs.build import build_federation


def test_local_update_is_a_plain_torch_training_loop() -> None:
    """Three steps of Eq. 23 with torch.optim.SGD and momentum, rows normalised inside the loss."""
    torch.manual_seed(0)
    net = torch.nn.Linear(6, 4)
    rows = project_to_sphere(torch.randn(2, 4))
    x, y = torch.randn(3, 5, 6), torch.randint(2, (3, 5))
    model = EmbeddingModel(net, {"classes": TableShape(2, 4)})
    method = FedAwS()
    sgd = Optimizer(lr=0.3, momentum=0.9)
    training = LocalTraining(sgd, {"classes": Optimizer(lr=0.2)}, sphere=frozenset({"classes"}))
    start = Params({n: p.detach().clone() for n, p in net.named_parameters()}, {"classes": rows})
    change, loss = local_update(
        lambda p, b, h: method.loss(model, p, b, h), training, start,
        {"x": x, "y": y, "mask": torch.ones(3, 5)}, RowInfo({"classes": torch.ones(2, dtype=torch.bool)}, {}, {}, {}),
    )  # fmt: skip

    w, losses = rows.clone(), []
    optimizer = torch.optim.SGD(net.parameters(), lr=0.3, momentum=0.9)
    for step in range(3):
        w.requires_grad_()
        s = (F.normalize(net(x[step]), dim=1) * F.normalize(w, dim=1)[y[step]]).sum(1)
        each = torch.clamp(0.9 - s, min=0) ** 2
        optimizer.zero_grad()
        each.mean().backward()
        optimizer.step()
        w = F.normalize(w.detach() - 0.2 * w.grad, dim=1)
        losses.append(each.mean().item())
    for name, p in net.named_parameters():
        torch.testing.assert_close(start.dense[name] + change.dense[name], p.detach())
    torch.testing.assert_close(rows + change.rows["classes"], w)
    assert float(loss) == pytest.approx(sum(losses) / 3)


def spread(table: torch.Tensor, method: FedAwS, rate: float = 0.5) -> torch.Tensor:
    """The table after one server step of a round in which classes 0 and 2 took part."""
    state = ServerState(3, {}, {"classes": table.clone()})
    ids = torch.tensor([0, 2])
    touched = RowSum(ids, torch.zeros(2, table.shape[1]), torch.ones(2), torch.tensor([4.0, 12.0]))
    model = EmbeddingModel(torch.nn.Identity(), {"classes": TableShape(*table.shape)})
    method.server_step(state, model, ServerContext(0, 0, 3, {"classes": rate}, {"classes": touched}))
    return state.tables["classes"]


def by_hand(table: torch.Tensor, rate: float, margin: float = 1.1) -> torch.Tensor:
    """W − λη ∇reg_sp(W) (line 14) with Eq. 7 of normalised rows, by autograd."""
    w = table.clone().requires_grad_()
    unit = F.normalize(w, dim=1)
    s = unit @ unit.T
    reg = (torch.clamp(margin - 1 + s, min=0) ** 2).sum() - (
        torch.clamp(margin - 1 + s.diag(), min=0) ** 2
    ).sum()
    return F.normalize(table - rate * torch.autograd.grad(reg, w)[0], dim=1)


TABLE = project_to_sphere(torch.randn(5, 3, generator=torch.Generator().manual_seed(1)))


def test_the_server_step_is_line_14_of_algorithm_1() -> None:
    torch.testing.assert_close(
        spread(TABLE, FedAwS(spreadout_step="plain", strength=0.4)), by_hand(TABLE, 0.4 * 0.5)
    )
    torch.testing.assert_close(
        spread(TABLE, FedAwS(spreadout_step="plain")), by_hand(TABLE, 0.5 / 5)
    )  # λ = 1/C
    torch.testing.assert_close(
        spread(TABLE, FedAwS(spreadout_step="plain", strength=0.4, spreadout_lr=0.1)),
        by_hand(TABLE, 0.04),
    )
    mean = spread(TABLE, FedAwS(spreadout_step="plain", strength=0.4, reduction="mean"))
    torch.testing.assert_close(mean, by_hand(TABLE, 0.4 * 0.5 / 20))  # 5·4 ordered pairs


def test_several_server_steps_are_one_after_another_and_other_optimisers_are_used() -> None:
    twice = by_hand(by_hand(TABLE, 0.1), 0.1)
    torch.testing.assert_close(
        spread(TABLE, FedAwS(spreadout_step="plain", strength=0.2, spreadout_steps=2)), twice
    )
    adam = spread(TABLE, FedAwS(spreadout_step="plain", strength=0.2, spreadout_optimizer="adam"))
    assert not torch.allclose(adam, by_hand(TABLE, 0.1), atol=1e-3)
    torch.testing.assert_close(adam.norm(dim=1), torch.ones(5))


def test_the_mined_step_moves_participants_and_their_neighbours_only() -> None:
    moved = (spread(TABLE, FedAwS(spreadout_form="topk", k=1, strength=0.1)) != TABLE).any(1)
    s = (TABLE @ TABLE.T).fill_diagonal_(-2)
    assert set(moved.nonzero()[:, 0].tolist()) == {0, 2, int(s[0].argmax()), int(s[2].argmax())}


def test_remark_2_weighs_classes_by_their_examples() -> None:
    state = ServerState(0, {}, {"classes": TABLE.clone()})
    method = FedAwS(weighted=True)
    touched = RowSum(torch.tensor([0, 2]), torch.zeros(2, 3), torch.ones(2), torch.tensor([4.0, 12.0]))
    weight = method._class_weight(state, ServerContext(0, 0, 0, {}, {"classes": touched}))
    assert weight.tolist() == [0.5, 1.0, 1.5, 1.0, 1.0]  # a mean of 8; unseen classes count as average


@pytest.mark.parametrize("policy", ["replace", "mean", "weighted-mean", "sum"])
def test_a_single_holders_row_comes_through_unchanged_at_rate_1(policy: str) -> None:
    """Eq. 5 for one client: the server ends with the client's own row, however far it went."""
    state = ServerState(0, {}, {"classes": torch.eye(3)})
    new = project_to_sphere(torch.tensor([[0.1, 1.0, 0.4]]))
    rows = {"classes": Rows(torch.tensor([0]), new - torch.eye(3)[:1])}
    optimizers = ServerOptimizers(Optimizer(), {"classes": Optimizer()})
    apply_(
        state, {}, rows, MergeRules("examples", {"classes": policy}), optimizers, frozenset({"classes"})
    )
    torch.testing.assert_close(state.tables["classes"][:1], new)
    assert torch.equal(state.tables["classes"][1:], torch.eye(3)[1:])


@pytest.mark.parametrize(
    ("clients", "overrides"),
    [
        (2, ["run.executor=sequential", "clients.batch=full"]),  # one row's gradient from 4,096 examples
        (64, ["method.name=fedavg"]),  # one row's changes from 64 clients
        (64, []),
    ],
)
def test_many_threads_give_the_same_bits_twice(clients: int, overrides: list[str]) -> None:
    """Enough rows for torch's parallel scatter, which adds in any order unless told otherwise."""
    rng = np.random.default_rng(0)
    client, label = np.repeat(np.arange(clients), 8192 // clients), rng.integers(0, 40, 8192)
    x = rng.normal(size=(8192, 16)).astype(np.float32)
    data = Splits(
        "many", so.FederatedDataset.from_arrays(x, label, client), so.Examples.from_arrays(x, label)
    )
    config = so.Experiment.of(
        {"clients": {"local_steps": 2}, "method": {"name": "fedaws"}}, overrides=overrides
    )
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        tables = []
        for _ in range(3):
            f = build_federation(config, data, torch.device("cpu"))
            state = ServerState(0, *f.model.initial(0, f.device))
            for _ in range(2):
                run_round(f, state)
            tables.append(state.tables["classes"])
    finally:
        torch.set_num_threads(before)
    assert torch.equal(tables[0], tables[1])
    assert torch.equal(tables[0], tables[2])


def test_cohorts_are_distinct_seeded_and_as_likely_as_they_should_be() -> None:
    sizes = np.array([1, 3, 0, 6])
    drawn = {kind: np.zeros(4) for kind in ("uniform", "weighted")}
    for kind, counts in drawn.items():
        for round in range(4000):
            cohort = sample_clients(kind, sizes, 1, seed=0, round=round)
            counts[cohort] += 1
    assert drawn["uniform"] / 4000 == pytest.approx(np.full(4, 0.25), abs=0.035)  # five deviations
    assert drawn["weighted"] / 4000 == pytest.approx(sizes / 10, abs=0.04)
    three = [sample_clients("uniform", sizes, 3, seed=1, round=r).tolist() for r in range(50)]
    assert all(len(set(cohort)) == 3 for cohort in three)
    assert len({tuple(cohort) for cohort in three}) == 4
    assert three[7] == sample_clients("uniform", sizes, 3, seed=1, round=7).tolist()
    assert sample_clients("weighted", sizes, 4, seed=0, round=0).tolist() == [
        0,
        1,
        3,
    ]  # never an empty one
    assert sample_clients("full", sizes, 1, seed=0, round=5).tolist() == [0, 1, 2, 3]
    fixed = {tuple(sample_clients("fixed", sizes, 2, seed=0, round=r).tolist()) for r in range(9)}
    assert len(fixed) == 1


def test_a_request_that_leaves_out_a_needed_row_is_an_error_not_another_row() -> None:
    rows = torch.tensor([[1, 3, 9]])
    mask = torch.tensor([[[1.0, 1.0]]])
    assert places_in(rows, torch.tensor([[[3, 9]]]), mask).tolist() == [[[1, 2]]]
    with pytest.raises(ValueError, match="leaves out rows"):
        places_in(rows, torch.tensor([[[3, 5]]]), mask)
    places_in(
        rows, torch.tensor([[[3, 5]]]), torch.tensor([[[1.0, 0.0]]])
    )  # an empty slot may name anything


class SetupContext(so.Observer):
    def __init__(self) -> None:
        self.warnings: list[str] = []

    def warned(self, text: str) -> None:
        self.warnings.append(text)


def test_a_collapsing_run_says_so_once_with_what_to_try() -> None:
    heard = SetupContext()
    settings = ["method.name=baseline-1", "rounds=60", "eval.every=10", "clients.row_lr=2"]
    result = so.run(so.Experiment.load("digits-fedaws", settings), observer=heard)
    assert sum(record["collapsing"] for record in result.history) > 1  # it was so at several evaluations
    (warning,) = heard.warnings
    assert "classes are collapsing" in warning
    assert 'try method.name = "fedaws"' in warning


def test_a_healthy_run_says_nothing() -> None:
    heard = SetupContext()
    so.run(so.Experiment.load("digits-fedaws", ["rounds=20"]), observer=heard)
    assert heard.warnings == []


def test_a_large_k_with_the_cosine_distance_is_cautioned() -> None:
    heard = SetupContext()
    settings = ["rounds=1", "method.spreadout_form=topk", "method.k=9"]
    so.run(so.Experiment.load("digits-fedaws", settings), observer=heard)
    assert "method.k = 9 is large for 10 candidates" in heard.warnings[0]
    heard = SetupContext()
    so.run(so.Experiment.load("digits-fedaws", [*settings, "method.distance=euclidean"]), observer=heard)
    assert not any("is large" in warning for warning in heard.warnings)


def test_a_stretch_of_rounds_without_an_accepted_update_is_told_once_and_recorded_as_null() -> None:
    heard = SetupContext()
    settings = ["rounds=5", "eval.every=5", "clients.max_update_norm=1e-9"]
    result = so.run(so.Experiment.load("digits-fedaws", settings), observer=heard)
    (warning,) = heard.warnings
    assert warning == "round 1: no update was accepted (10 norm above limit); the model is unchanged"
    assert result.summary["refused_updates"] == {"norm above limit": 50}
    assert result.history[0]["P@1"] == result.history[-1]["P@1"]
