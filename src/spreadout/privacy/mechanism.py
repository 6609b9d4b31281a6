"""Differential privacy on what clients send (FedAwS §2): clip the update, add Gaussian noise to it.

`model = "local"`: noise is added on the client, to every tensor it sends, so the guarantee holds against
the server itself. Under the `replace` merge a class row reaches the table without averaging; only noise
on the client protects it. Real clients make theirs in `release.py`; what is here simulates it, from a
seed. `model = "central"`: the server is trusted, and adds noise to the sum (`federated/central.py`).
`model = "example"`: what is hidden is one example of a client (`federated/example_noise.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, Self

import numpy as np
import torch
from pydantic import Field, model_validator
from torch import Tensor

from spreadout.core import randomness
from spreadout.core.registry import Section
from spreadout.core.types import Params

THRESHOLD = 2 / 3  # of a round's nodes


class GaussianMechanism(Section):
    """Clip an update's Euclidean norm to `clip`, then add noise of deviation `noise · clip`."""

    # Who adds the noise: each client its own, the server, or all clients together to a sum that is all
    # the server sees. "example": each client in every step, to hide one example and not all its data.
    model: Literal["local", "central", "distributed", "example"] = "local"
    clip: float = Field(gt=0)
    noise: float = Field(ge=0)  # noise multiplier; 0 clips only and promises nothing
    delta: float = Field(1e-6, gt=0, lt=1)
    epsilon: float | None = Field(None, gt=0)  # training ends before any client would give away more
    # central: the clip follows this quantile of the updates' lengths, from `clip` on; None: it is fixed
    clip_quantile: float | None = Field(None, gt=0, lt=1)
    # distributed: the share of a round's nodes without which no sum is unmasked
    threshold: float | None = Field(None, gt=0.5, le=1)
    # distributed: so many nodes may work with the server; the noise of the others is enough
    colluding: int = Field(0, ge=0)

    @model_validator(mode="after")
    def _of_the_model(self) -> Self:
        if self.clip_quantile is not None and self.model != "central":
            raise ValueError('clip_quantile: is for model = "central"')
        if self.threshold is not None and self.model != "distributed":
            raise ValueError('threshold: is for model = "distributed"')
        if self.colluding and self.model != "distributed":
            raise ValueError('colluding: is for model = "distributed"')
        return self

    @property
    def on_the_server(self) -> bool:
        """Whether the server is trusted, and adds the noise to the sum over its clients."""
        return self.model == "central"

    @property
    def needs_others(self) -> bool:
        """Whether a client's noise is enough only together with that of others (secure aggregation)."""
        return self.model == "distributed"

    @property
    def share(self) -> float:
        return THRESHOLD if self.threshold is None else self.threshold


def clip_norm(change: Params, bound: float) -> Params:
    """One client's change, scaled down to the bound if it is longer; what is not finite becomes zero."""
    return clipped(change, bound)[0]


def clipped(change: Params, bound: float) -> tuple[Params, Tensor]:
    """The same, and how long it was: () in doubles."""
    finite = without_non_finite(change)
    values = [*finite.dense.values(), *finite.rows.values()]
    lengths = [torch.linalg.vector_norm(value, dtype=torch.float64) for value in values]
    norm = torch.stack(lengths).norm()  # in doubles: squares of tiny or huge numbers are no floats
    factor = bound / torch.maximum(norm, torch.full_like(norm, bound))
    short = Params(*({n: v * factor.to(v.dtype) for n, v in part.items()} for part in finite))
    return short, norm


def without_non_finite(change: Params) -> Params:
    """A change with zeros in place of what is not finite."""
    return Params(*({n: torch.where(v.isfinite(), v, 0.0) for n, v in part.items()} for part in change))


def simulate_noise_(
    dense: Mapping[str, Tensor],
    rows: Mapping[str, Tensor],
    mechanism: GaussianMechanism,
    *,
    seed: int,
    round: int,
    client: int,
) -> None:
    """Noise for one simulated client's change, in place, from (seed, round, client): no guarantee.

    Where clients need each other's noise, the sum gets it (`federated/shared_noise.py`).
    """
    if mechanism.needs_others:
        return
    draw = randomness.generator(seed, "noise", round, client)
    for value in (*dense.values(), *rows.values()):
        noise = draw.standard_normal(tuple(value.shape), dtype=np.float32)
        value.add_(torch.from_numpy(noise).to(value), alpha=mechanism.noise * mechanism.clip)
