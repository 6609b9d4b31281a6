"""Unit vectors: the gradient by hand is autograd's, for one client and for many at once."""

from collections.abc import Callable

import torch
from torch import Tensor

from spreadout.core.rows import project_to_sphere
from spreadout.models.nn.unit import unit


def test_its_gradient_is_that_of_the_plain_projection() -> None:
    vectors = torch.randn(5, 7, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(3))
    vectors[0, 0] = 0  # padding
    weight = torch.linspace(-1, 1, vectors.numel(), dtype=torch.float64).view_as(vectors)

    def gradient(project: Callable[[Tensor], Tensor], batched: bool) -> Tensor:
        leaf = vectors.clone().requires_grad_()
        found = (torch.vmap(project) if batched else project)(leaf)
        torch.testing.assert_close(found, project_to_sphere(vectors))
        (slope,) = torch.autograd.grad((found * weight).sum(), leaf)
        return slope  # type: ignore[no-any-return]

    expected = gradient(project_to_sphere, batched=False)
    for batched in (False, True):
        torch.testing.assert_close(gradient(unit, batched), expected)


def test_a_dimension_that_is_not_the_first_is_mapped_too() -> None:
    vectors = torch.randn(6, 3, 4)
    found = torch.vmap(unit, in_dims=1)(vectors)
    torch.testing.assert_close(found, project_to_sphere(vectors).movedim(1, 0))


def test_gradients_check_out_numerically() -> None:
    vectors = torch.randn(3, 4, dtype=torch.float64).requires_grad_()
    assert torch.autograd.gradcheck(unit, (vectors,))
    assert torch.autograd.gradgradcheck(unit, (vectors,))
