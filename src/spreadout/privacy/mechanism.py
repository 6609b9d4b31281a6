"""Differential privacy on what clients send (FedAwS §2): clip the update, add Gaussian noise to it.

The noise is added on the client, to every tensor it sends, so the guarantee holds against the server
itself. Under the `replace` merge a class row reaches the table without averaging; only noise on the
client protects it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from pydantic import Field
from torch import Tensor

from spreadout.core import randomness
from spreadout.core.registry import Section
from spreadout.core.types import Params


class GaussianMechanism(Section):
    """Clip an update's Euclidean norm to `clip`, then add noise of deviation `noise · clip`."""

    clip: float = Field(gt=0)
    noise: float = Field(ge=0)  # noise multiplier; 0 clips only and promises nothing
    delta: float = Field(1e-6, gt=0, lt=1)


def clip_norm(change: Params, bound: float) -> Params:
    """One client's change, scaled down to the bound if it is longer."""
    values = [*change.dense.values(), *change.rows.values()]
    norm = torch.stack([value.norm() for value in values]).norm()
    factor = bound / torch.maximum(norm, torch.full_like(norm, bound))
    return Params(*({name: value * factor for name, value in part.items()} for part in change))


def add_noise_(
    dense: Mapping[str, Tensor],
    rows: Mapping[str, Tensor],
    mechanism: GaussianMechanism,
    *,
    seed: int,
    round: int,
    client: int,
) -> None:
    """Noise for one client's change, in place; simulated, hence drawn from (seed, round, client)."""
    generator = torch.Generator().manual_seed(randomness.key(seed, "noise", round, client) >> 1)
    ordered: Sequence[Tensor] = [*dense.values(), *rows.values()]
    for value in ordered:
        noise = torch.randn(value.shape, generator=generator, dtype=value.dtype)
        value.add_(noise.to(value.device), alpha=mechanism.noise * mechanism.clip)
