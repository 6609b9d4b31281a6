"""Features of any scale: each is centred and divided by its deviation before the first layer sees it.

What to subtract and to multiply by is part of the model, found once before the first round
(`federated/input_scale.py`) and never trained.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

FURTHEST = 5.0  # deviations from the mean; a value further out counts as this far


class Standardized(nn.Module):
    """x → (x − mean) · factor, feature by feature.

    Both are parameters, so that they travel and are saved with the others; they get no gradient, so no
    client and no optimiser moves them. A value that is missing (NaN) counts as the mean.

    >>> import torch
    >>> import spreadout as so
    >>> encoder = torch.nn.Sequential(so.Standardized(13), torch.nn.Linear(13, 8))
    """

    def __init__(self, features: int) -> None:
        super().__init__()
        self.mean = nn.Parameter(torch.zeros(features))
        self.factor = nn.Parameter(torch.ones(features))

    def forward(self, x: Tensor) -> Tensor:
        """x: (n, …) → (n, features)"""
        centred = (x.flatten(1) - self.mean.detach()) * self.factor.detach()
        return centred.clamp(-FURTHEST, FURTHEST).nan_to_num(nan=0.0)


def standardized_in(encoder: nn.Module) -> str | None:
    """What the names of the encoder's mean and factor begin with; None if it takes features raw."""
    for name, part in encoder.named_modules():
        if isinstance(part, Standardized):
            return f"{name}." if name else ""
    return None
