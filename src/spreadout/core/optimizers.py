"""SGD with momentum, Adam, Adagrad, Yogi and DoG as functions of tensors, shared by clients and server.

One rule serves a dense tensor, a stack of clients' tensors, and some rows of a table: the state of a
row moves only when the row does (lazy), so momentum never drags rows nobody touched.
Server use follows adaptive federated optimisation (Reddi et al. 2021): the merged update is the
negative gradient. Adam and Yogi correct their bias, as torch and optax do. DoG (Ivgi et al. 2023) has no
rate: a step is as long as the longest way from the start so far, over the root of all squared gradients;
here one for every tensor, and for every row of a table.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor

from spreadout.core.registry import Section
from spreadout.core.rows import Rows, project_to_sphere
from spreadout.core.types import Tensors


class Optimizer(Section):
    """An update rule and its constants; a value, without state.

    >>> import torch
    >>> import spreadout as so
    >>> so.Optimizer(optimizer="sgd", lr=0.5).move(torch.tensor([2.0]), slots={})
    tensor([-1.])
    """

    read_if: ClassVar = {
        "momentum": ({"optimizer": ("sgd",)},),
        "beta1": ({"optimizer": ("adam", "yogi")},),
        "beta2": ({"optimizer": ("adam", "yogi")},),
        "eps": ({"optimizer": ("adam", "adagrad", "yogi")},),
    }

    optimizer: Literal["sgd", "adam", "adagrad", "yogi", "dog"] = "sgd"
    lr: float = Field(1.0, gt=0)  # of dog a factor, meant to be 1
    momentum: float = Field(0.0, ge=0, lt=1)  # sgd only
    beta1: float = Field(0.9, ge=0, lt=1)  # adam, yogi
    beta2: float = Field(0.99, ge=0, lt=1)  # adam, yogi
    eps: float = Field(1e-3, gt=0)  # adam, adagrad, yogi: the adaptivity constant τ

    @property
    def is_plain(self) -> bool:
        """Whether every step is −lr·gradient, with no memory of the steps before."""
        return self.optimizer == "sgd" and not self.momentum

    @property
    def is_linear_in_first_gradient(self) -> bool:
        """Whether one step from rest is −lr·gradient, so that averaging may come before it."""
        return self.optimizer == "sgd"

    @property
    def is_fused(self) -> bool:
        """Whether `step_` reads and writes everything once, where `move` takes many passes."""
        return self.optimizer == "adam"

    def scaled(self, factor: float) -> Optimizer:
        """The same rule at another rate."""
        return self.model_copy(update={"lr": self.lr * factor})

    def init(self, like: Tensor, rows: int | None = None) -> Tensors:
        """Fresh state for a tensor; `rows` gives every row of a table its own step count."""
        slots: Tensors = {}
        if self.optimizer == "sgd" and self.momentum:
            slots["velocity"] = torch.zeros_like(like)
        if self.optimizer in ("adam", "yogi"):
            slots["first"] = torch.zeros_like(like)
            slots["second"] = torch.zeros_like(like)
            shape = (rows, 1) if rows is not None else (1,) if like.dim() else ()
            slots["steps"] = torch.zeros(shape, dtype=torch.float32, device=like.device)
        if self.optimizer == "adagrad":
            slots["second"] = torch.full_like(like, 0.1)  # TensorFlow's and optax's start
        if self.optimizer == "dog":
            slots["way"] = torch.zeros_like(like)  # from the start
            slots["far"] = 1e-4 * (1 + _length(like, rows is not None))  # the longest way so far
            slots["squares"] = torch.zeros_like(slots["far"])  # Σ ‖gradient‖²
        return slots

    def move(self, gradient: Tensor, slots: Tensors, *, spend: bool = False) -> Tensor:
        """The step to add for this gradient; `slots` are updated in place.

        spend: whether the step may take the gradient's place in memory.
        """
        if self.optimizer == "sgd":
            if not self.momentum:
                return gradient * -self.lr
            velocity = slots["velocity"].mul_(self.momentum).add_(gradient)
            return velocity * -self.lr
        if self.optimizer == "dog":
            return self._over_gradients(gradient, slots)
        second = slots["second"]
        if self.optimizer == "adagrad":
            second.addcmul_(gradient, gradient)
            return gradient * (-self.lr / (second.sqrt() + self.eps))
        steps = slots["steps"].add_(1)
        first = slots["first"].lerp_(gradient, 1 - self.beta1)
        if self.optimizer == "adam":
            second.mul_(self.beta2).addcmul_(gradient, gradient, value=1 - self.beta2)
        else:  # yogi: the second moment moves by a bounded amount, so it cannot forget at once
            square = gradient.square()
            second.sub_((1 - self.beta2) * torch.sign(second - square) * square)
        # In place where that can be: models may be as large as what is left of memory.
        place = gradient if spend and gradient.is_contiguous() else torch.empty_like(second)
        scale = torch.div(second, 1 - self.beta2**steps, out=place).sqrt_().add_(self.eps)
        rate = -self.lr / (1 - self.beta1**steps)
        return torch.div(first, scale, out=scale).mul_(rate)

    def step_(self, value: Tensor, gradient: Tensor, slots: Tensors) -> None:
        """Adam's step of one tensor, in place: what adding `move` comes to, up to rounding."""
        if not value.is_contiguous():  # the kernel takes memory as it lies
            value.add_(self.move(gradient, slots))
            return
        torch._fused_adam_(
            [value],
            [gradient.contiguous()],
            [slots["first"]],
            [slots["second"]],
            [],
            [slots["steps"].add_(1)],
            lr=self.lr,
            beta1=self.beta1,
            beta2=self.beta2,
            weight_decay=0.0,
            eps=self.eps,
            amsgrad=False,
            maximize=False,
        )

    def _over_gradients(self, gradient: Tensor, slots: Tensors) -> Tensor:
        """Distance over gradients: far / √Σ‖g‖² times the gradient, `far` never shrinking."""
        way, far = slots["way"], slots["far"]  # far (1,) of a tensor, (m, 1) of rows
        by_row = far.dim() > 1
        squares = slots["squares"].add_(_length(gradient, by_row).square())
        step = gradient * (-self.lr * far / squares.sqrt().clamp_min(1e-30))
        torch.maximum(far, _length(way.add_(step), by_row), out=far)
        return step


def _length(value: Tensor, by_row: bool) -> Tensor:
    length: Tensor = torch.linalg.vector_norm(value, dim=-1 if by_row else None, keepdim=by_row)
    return length if by_row else length.reshape(1)


def step_dense_(optimizer: Optimizer, value: Tensor, gradient: Tensor, slots: Tensors) -> None:
    """One step of a whole tensor, in place."""
    value.add_(optimizer.move(gradient, slots))


def step_tensors_(
    optimizer: Optimizer,
    values: Sequence[Tensor],
    gradients: Sequence[Tensor],
    slots: Sequence[Tensors],
) -> None:
    """One step of each of several whole tensors, in place: the same numbers as one after another.

    A deep network has hundreds of small ones, and a GPU takes longer to be told of a kernel than to
    run it: SGD moves all of them in a few kernels. It makes a copy of all meanwhile.
    """
    if optimizer.optimizer != "sgd":
        for value, gradient, own in zip(values, gradients, slots, strict=True):
            step_dense_(optimizer, value, gradient, own)
        return
    moved = list(gradients)
    if optimizer.momentum:
        moved = [own["velocity"] for own in slots]
        torch._foreach_mul_(moved, optimizer.momentum)
        torch._foreach_add_(moved, list(gradients))
    torch._foreach_add_(list(values), torch._foreach_mul(moved, -optimizer.lr))


def step_rows_(
    optimizer: Optimizer, table: Tensor, gradient: Rows, slots: Tensors, *, sphere: bool
) -> None:
    """One lazy step of some rows of a table, in place: other rows and their state do not move."""
    ids = gradient.ids
    touched = {name: slot[ids] for name, slot in slots.items()}
    moved = table[ids] + optimizer.move(gradient.values, touched)
    table[ids] = project_to_sphere(moved) if sphere else moved
    for name, slot in slots.items():
        slot[ids] = touched[name]
