"""Rates, optimisers and weights that follow from the data and the method."""

from __future__ import annotations

from typing import Any

from spreadout.config.experiment import Experiment
from spreadout.data.dataset import Splits


def rates(experiment: Experiment, splits: Splits) -> dict[str, Any]:
    """Values of keys by their dotted names; list a new one in `keys.DECIDED`."""
    return {}
