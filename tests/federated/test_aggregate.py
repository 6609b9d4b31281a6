import pytest
import torch

from spreadout.core.merging import MergeRules
from spreadout.core.optimizers import Optimizer
from spreadout.core.rows import Rows, Update
from spreadout.core.state import ServerState
from spreadout.federated import aggregate
from spreadout.federated.aggregate import (
    Aggregate,
    ServerOptimizers,
    apply_,
    merge,
    of_update,
    refused,
    total,
)


def updates() -> list[Update]:
    """Three clients with 1, 3 and 4 examples; row 0 is held by the first two, row 5 by the last two."""
    held = [[0], [0, 5], [5]]
    change = [[[8.0]], [[4.0], [2.0]], [[-6.0]]]
    return [
        Update(
            i,
            0,
            n,
            {"w": torch.tensor([float(i)])},
            {"classes": Rows(torch.tensor(held[i]), torch.tensor(change[i]))},
            loss=float(i),
        )
        for i, n in enumerate([1, 3, 4])
    ]


@pytest.mark.parametrize(
    ("policy", "row_0", "row_5"),
    [
        ("replace", 6.0, -2.0),  # (8 + 4) / 2, (2 − 6) / 2
        ("mean", 6.0, -2.0),
        ("weighted-mean", 5.0, -18 / 7),  # (8·1 + 4·3) / 4, (2·3 − 6·4) / 7
        ("sum", 20 / 8, -18 / 8),  # the same sums over all 8 examples, zeros for non-holders
    ],
)
def test_row_policies_by_hand(policy: str, row_0: float, row_5: float) -> None:
    rules = MergeRules("examples", {"classes": policy})
    _, rows = merge(total(of_update(update, rules) for update in updates()), rules)
    assert rows["classes"].ids.tolist() == [0, 5]
    torch.testing.assert_close(rows["classes"].values, torch.tensor([[row_0], [row_5]]))


@pytest.mark.parametrize(("weighting", "mean"), [("examples", 11 / 8), ("uniform", 1.0)])
def test_dense_weights(weighting: str, mean: float) -> None:
    rules = MergeRules(weighting, {"classes": "replace"})
    dense, _ = merge(total(of_update(update, rules) for update in updates()), rules)
    torch.testing.assert_close(dense["w"], torch.tensor([mean]))


def test_the_sum_does_not_depend_on_the_grouping() -> None:
    rules = MergeRules("examples", {"classes": "weighted-mean"})
    parts = [of_update(update, rules) for update in updates()]
    flat, nested = total(parts), total([total(parts[:2]), refused("not finite"), total(parts[2:])])
    assert nested.refused == {"not finite": 1}
    assert (flat.clients, flat.examples, flat.loss_sum) == (
        nested.clients,
        nested.examples,
        nested.loss_sum,
    )
    for a, b in zip(merge(flat, rules)[1].values(), merge(nested, rules)[1].values(), strict=True):
        torch.testing.assert_close(a.values, b.values)
    torch.testing.assert_close(flat.dense, nested.dense)


def test_summing_leaves_the_parts_unchanged() -> None:
    rules = MergeRules("uniform", {"classes": "mean"})
    parts = [of_update(update, rules) for update in updates()]
    total(parts)
    assert parts[0].dense["w"].item() == 0.0


def test_no_accepted_update_changes_nothing() -> None:
    assert merge(Aggregate(), MergeRules("examples", {"classes": "mean"})) == ({}, {})


def test_rows_are_averaged_by_their_positives_where_flag_asks_for_it() -> None:
    rules = MergeRules("examples", {"classes": "positives"})
    parts = []
    for client, (change, counts) in enumerate([(1.0, [3, 0]), (5.0, [1, 0])]):
        rows = Rows(torch.tensor([2, 4]), torch.full((2, 1), change))
        told = {"classes": torch.tensor(counts)}
        parts.append(of_update(Update(client, 0, 9, {}, {"classes": rows}, 0.0, told), rules))
    merged = merge(total(parts), rules)[1]["classes"]
    assert merged.ids.tolist() == [2, 4]
    assert merged.values[:, 0].tolist() == [2.0, 0.0]  # (3·1 + 1·5) / 4, and nobody has a 4


@pytest.mark.parametrize("at_once", [1 << 28, 0], ids=["together", "one after another"])
@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_weight_decay_is_that_of_torchs_sgd_on_matrices_and_kernels(
    momentum: float, at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(aggregate, "MOST_AT_ONCE", at_once)
    torch.manual_seed(0)
    start = {"w": torch.randn(3, 2), "k": torch.randn(2, 2, 3, 3), "b": torch.randn(3)}
    twin = {name: value.clone().requires_grad_() for name, value in start.items()}
    groups = [
        {"params": [twin["w"], twin["k"]], "weight_decay": 0.1},
        {"params": [twin["b"]], "weight_decay": 0.0},
    ]
    reference = torch.optim.SGD(groups, lr=0.5, momentum=momentum)
    state = ServerState(0, {name: value.clone() for name, value in start.items()}, {})
    server = ServerOptimizers(Optimizer(lr=0.5, momentum=momentum), {}, weight_decay=0.1)
    assert server.scaled(0.5).weight_decay == 0.1
    for _ in range(3):
        change = {name: torch.randn_like(value) for name, value in start.items()}
        kept = {name: value.clone() for name, value in change.items()}
        apply_(state, change, {}, MergeRules("examples", {}), server, frozenset())
        for name, value in twin.items():
            value.grad = -kept[name]
        reference.step()
        torch.testing.assert_close(change, kept)  # the merged change is not touched
    torch.testing.assert_close(state.dense, {name: value.detach() for name, value in twin.items()})
