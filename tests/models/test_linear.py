"""The dense layer by hand is torch's own, for one client, for many, and for many that share weights."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call

from spreadout.models.nn.linear import Linear


def loss_of(layer: nn.Module, weight: Tensor) -> Callable[[dict[str, Tensor], Tensor], Tensor]:
    def loss(params: dict[str, Tensor], x: Tensor) -> Tensor:
        return (functional_call(layer, params, (x,)) * weight).sum()  # type: ignore[no-any-return]

    return loss


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("shape", [(5, 4), (3, 2, 4)])
@pytest.mark.parametrize("stacked", ["everything", "inputs", "weights", "nothing"])
def test_its_gradients_are_those_of_torch(stacked: str, shape: tuple[int, ...], bias: bool) -> None:
    torch.manual_seed(0)
    k, weight = 6, torch.randn(*shape[:-1], 3, dtype=torch.float64)
    several = stacked in ("everything", "weights")
    values = {"weight": torch.randn(*([k] if several else []), 3, 4, dtype=torch.float64)}
    if bias:
        values["bias"] = torch.randn(*([k] if several else []), 3, dtype=torch.float64)
    x = torch.randn(*([k] if stacked in ("everything", "inputs") else []), *shape, dtype=torch.float64)
    dims = (0 if several else None, 0 if stacked in ("everything", "inputs") else None)
    found = []
    for kind in (Linear, nn.Linear):
        layer = kind(4, 3, bias=bias, dtype=torch.float64)
        leaves = {name: value.clone().requires_grad_() for name, value in values.items()}
        given = x.clone().requires_grad_()
        loss = loss_of(layer, weight)
        each = loss if stacked == "nothing" else torch.vmap(loss, in_dims=dims)
        slopes = torch.autograd.grad(each(leaves, given).sum(), [*leaves.values(), given])
        found.append(slopes)
    for ours, theirs in zip(*found, strict=True):
        torch.testing.assert_close(ours, theirs)
    if several:
        assert found[0][0].is_contiguous()


def test_inputs_that_are_data_need_no_gradient() -> None:
    layer = Linear(4, 3)
    layer(torch.randn(2, 4)).sum().backward()
    assert layer.weight.grad is not None
    assert layer.weight.grad.shape == (3, 4)


def test_it_starts_as_torchs_own_does() -> None:
    torch.manual_seed(3)
    ours = Linear(4, 3)
    torch.manual_seed(3)
    theirs = nn.Linear(4, 3)
    assert torch.equal(ours.weight, theirs.weight)
    assert list(ours.state_dict()) == list(theirs.state_dict())
