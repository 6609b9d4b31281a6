"""Aggregation that hostile clients cannot own, with every method: `[server.robust]` of a config."""

from __future__ import annotations

from typing import Annotated

from pydantic import BeforeValidator, SerializeAsAny

from spreadout.federated.robust.base import ROBUST_RULES, RobustRule, register_robust_rule
from spreadout.federated.robust.centred_clipping import CentredClipping
from spreadout.federated.robust.geometric_median import GeometricMedian
from spreadout.federated.robust.mean import Mean
from spreadout.federated.robust.median import Median
from spreadout.federated.robust.norm_clipping import NormClipping
from spreadout.federated.robust.spectral import Spectral
from spreadout.federated.robust.trimmed_mean import TrimmedMean

AnyRobustRule = Annotated[SerializeAsAny[RobustRule], BeforeValidator(RobustRule.choose)]

__all__ = [
    "ROBUST_RULES",
    "AnyRobustRule",
    "CentredClipping",
    "GeometricMedian",
    "Mean",
    "Median",
    "NormClipping",
    "RobustRule",
    "Spectral",
    "TrimmedMean",
    "register_robust_rule",
]
