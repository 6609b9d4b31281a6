"""Differential privacy on what clients send (FedAwS §2): clip the update, add Gaussian noise to it.

The noise is added on the client, to every tensor it sends, so the guarantee holds against the server
itself. Under the `replace` merge a class row reaches the table without averaging; only noise on the
client protects it. Real clients make theirs in `release.py`; what is here simulates it, from a seed.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
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
    epsilon: float | None = Field(None, gt=0)  # training ends before any client would give away more


def clip_norm(change: Params, bound: float) -> Params:
    """One client's change, scaled down to the bound if it is longer; what is not finite becomes zero."""
    finite = Params(*({name: _finite(value) for name, value in part.items()} for part in change))
    values = [*finite.dense.values(), *finite.rows.values()]
    lengths = [torch.linalg.vector_norm(value, dtype=torch.float64) for value in values]
    norm = torch.stack(lengths).norm()  # in doubles: squares of tiny or huge numbers are no floats
    factor = bound / torch.maximum(norm, torch.full_like(norm, bound))
    return Params(*({n: value * factor.to(value.dtype) for n, value in part.items()} for part in finite))


def _finite(value: Tensor) -> Tensor:
    return torch.where(value.isfinite(), value, 0.0)


def simulate_noise_(
    dense: Mapping[str, Tensor],
    rows: Mapping[str, Tensor],
    mechanism: GaussianMechanism,
    *,
    seed: int,
    round: int,
    client: int,
) -> None:
    """Noise for one simulated client's change, in place, from (seed, round, client): no guarantee."""
    draw = randomness.generator(seed, "noise", round, client)
    for value in (*dense.values(), *rows.values()):
        noise = draw.standard_normal(tuple(value.shape), dtype=np.float32)
        value.add_(torch.from_numpy(noise).to(value), alpha=mechanism.noise * mechanism.clip)
