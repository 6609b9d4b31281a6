"""Dense layers, and building modules from a seed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise

import torch
from torch import nn

from spreadout.core import randomness
from spreadout.models.nn.linear import Linear


def mlp(features: int, hidden: Sequence[int], dim: int) -> nn.Module:
    """Dense layers with ReLU between them; no hidden layers make it linear."""
    layers: list[nn.Module] = [nn.Flatten()]
    widths = [features, *hidden, dim]
    for narrow, wide in pairwise(widths):
        layers += [Linear(narrow, wide), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


def seeded(seed: int, build: Callable[[], nn.Module]) -> nn.Module:
    """Build a module whose random start depends on `seed` alone, leaving global state as it was."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(randomness.key(seed, "encoder") >> 1)
        return build()
