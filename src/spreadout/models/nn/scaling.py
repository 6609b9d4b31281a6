"""Features of any scale: each is centred and divided by its deviation before the first layer sees it.

What to subtract and to multiply by is part of the model, found once before the first round
(`federated/input_scale.py`) and never trained. So is the root that shortens a long tail first
(`data/tails.py`).
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from spreadout.data.tails import to_power

FURTHEST = 5.0  # deviations from the mean; a value further out counts as this far


class Standardized(nn.Module):
    """x → (x − mean) · factor, feature by feature; with roots, of sign(x) |x|^power in place of x.

    All are parameters, so that they travel and are saved with the others; they get no gradient, so no
    client and no optimiser moves them. A value that is missing (NaN) counts as the mean.

    >>> import torch
    >>> import spreadout as so
    >>> encoder = torch.nn.Sequential(so.Standardized(13), torch.nn.Linear(13, 8))
    """

    def __init__(self, features: int, *, roots: bool = False) -> None:
        """roots: whether features with long tails are taken to a power below 1."""
        super().__init__()
        self.mean = nn.Parameter(torch.zeros(features))
        self.factor = nn.Parameter(torch.ones(features))
        self.power = nn.Parameter(torch.ones(features)) if roots else None

    def forward(self, x: Tensor) -> Tensor:
        """x: (n, …) → (n, features)"""
        x = x.flatten(1)
        if self.power is not None:
            x = to_power(x, self.power.detach())
        centred = (x - self.mean.detach()) * self.factor.detach()
        return centred.clamp(-FURTHEST, FURTHEST).nan_to_num(nan=0.0)


def standardized_in(encoder: nn.Module) -> str | None:
    """What the names of the encoder's mean and factor begin with; None if it takes features raw."""
    for name, part in encoder.named_modules():
        if isinstance(part, Standardized):
            return f"{name}." if name else ""
    return None


def takes_roots(encoder: nn.Module) -> bool:
    """Whether its features with long tails are taken to a power."""
    scaled = (part for part in encoder.modules() if isinstance(part, Standardized))
    return any(part.power is not None for part in scaled)
