"""What is alive in an encoder: units that never fire, and embeddings that are all the same."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from spreadout.core.state import ServerState
from spreadout.data.columns import Dense
from spreadout.data.held_out import Examples
from spreadout.evaluation.embed import embed
from spreadout.models.embedding import EmbeddingModel

EXAMPLES = 256  # that are looked at


@dataclass(frozen=True)
class Activity:
    """Of some held-out examples."""

    dead: float  # the largest share of a layer's ReLU units that are 0 for all examples
    layer: str  # of which layer
    sameness: float | None  # length of the mean embedding: 1 if all are the same; None: no unit vectors
    offset: float | None = None  # length of the mean input, in standard deviations


@torch.no_grad()
def activity_of(model: EmbeddingModel, state: ServerState, examples: Examples) -> Activity:
    """Run some examples through the encoder and look at its ReLU layers.

    Only `nn.ReLU` modules are seen; a network that calls the function has no layers here.
    """
    fired: dict[str, Tensor] = {}
    rectifiers = [(name, part) for name, part in model.encoder.named_modules() if _rectifies(part)]
    hooks = [part.register_forward_hook(_watching(fired, name)) for name, part in rectifiers]
    try:
        stride = max(1, len(examples) // EXAMPLES)
        some = torch.arange(len(examples))[::stride][:EXAMPLES]
        embedded = embed(model, state, examples, some)
    finally:
        for hook in hooks:
            hook.remove()
    shares = {name: float((~alive).double().mean()) for name, alive in fired.items()}
    worst = max(shares, key=lambda name: shares[name], default="")
    length = embedded.norm(dim=1)
    unit = model.has_class_table and bool(torch.allclose(length, torch.ones_like(length), atol=1e-3))
    sameness = float(embedded.mean(0).norm()) if unit and len(embedded) > 1 else None
    return Activity(shares.get(worst, 0.0), worst, sameness, _offset(examples, some))


def _offset(examples: Examples, some: Tensor) -> float | None:
    """How far inputs are from 0 on the whole, compared with how far they are from each other."""
    x = examples.inputs.get("x")
    if not isinstance(x, Dense) or len(some) < 2:
        return None
    rows = x.take(some).flatten(1).double()
    spread = float(rows.std(0).norm())
    return float(rows.mean(0).norm()) / spread if spread else None


def _rectifies(part: nn.Module) -> bool:
    return isinstance(part, nn.ReLU | nn.ReLU6)


def _watching(fired: dict[str, Tensor], name: str) -> Callable[..., None]:
    """A hook that notes which units fired; units are channels of images, else the last dimension."""

    def hook(module: nn.Module, given: tuple[Tensor, ...], made: Tensor) -> None:
        units = made.movedim(1, -1) if made.dim() == 4 else made
        alive = (units > 0).flatten(0, -2).any(0).cpu()  # (units,)
        fired[name] = fired[name] | alive if name in fired else alive

    return hook
