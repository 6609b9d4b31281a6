"""A replayed call of the encoder is one operation with the gradient of the call; a CPU has none."""

from typing import Any

import torch
from torch import Tensor

from spreadout.runtime.simulator.encoder_graph import EncoderGraph, _Replay


class Recomputed:
    """What a captured call is, computed again at every replay in place of a CUDA graph."""

    def __init__(self, weight: Tensor, images: Tensor) -> None:
        self.weight, self.images = weight.detach().requires_grad_(), torch.zeros_like(images)
        self.outputs = torch.zeros(len(images), weight.shape[1])
        self.slope, self.gradients = torch.zeros_like(self.outputs), [torch.zeros_like(weight)]
        outer = self

        class Forward:
            def replay(self) -> None:
                with torch.no_grad():
                    outer.outputs.copy_((outer.images @ outer.weight).tanh())

        class Backward:
            def replay(self) -> None:
                with torch.enable_grad():
                    made = (outer.images @ outer.weight).tanh()
                    (found,) = torch.autograd.grad(made, [outer.weight], outer.slope)
                outer.gradients[0].copy_(found)

        self.forward, self.backward = Forward(), Backward()


def test_a_replay_has_the_gradient_of_what_it_replays() -> None:
    torch.manual_seed(0)
    weight = torch.randn(5, 3)
    captured: Any = Recomputed(weight, torch.zeros(4, 5))
    for _ in range(3):
        images, target = torch.randn(4, 5), torch.randn(4, 3)
        leaf = weight.detach().requires_grad_()
        found = _Replay.apply(captured, images, leaf)  # type: ignore[no-untyped-call]
        (slope,) = torch.autograd.grad(((found - target) ** 2).sum(), [leaf])
        plain = (images @ leaf).tanh()
        (wanted,) = torch.autograd.grad(((plain - target) ** 2).sum(), [leaf])
        torch.testing.assert_close(found, plain)
        torch.testing.assert_close(slope, wanted)
        weight -= 0.1 * slope  # where it is: the captured call reads it there


def test_without_a_gpu_nothing_is_replayed() -> None:
    graph = EncoderGraph()
    for _ in range(3):
        assert graph.run(_never, {}, torch.zeros(1, 3, 8, 8), frozenset(), "net") is None
    assert not graph.given_up


def _never(weights: Any, images: Tensor) -> Any:
    raise AssertionError
