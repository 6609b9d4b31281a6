"""Client-drift correction, usable with every method: `[clients.drift]` of a config."""

from __future__ import annotations

from typing import Annotated

from pydantic import BeforeValidator, SerializeAsAny

from spreadout.federated.drift.base import DRIFT_CORRECTIONS, DriftCorrection, register_drift_correction
from spreadout.federated.drift.feddyn import FedDyn
from spreadout.federated.drift.fedprox import FedProx
from spreadout.federated.drift.scaffold import Scaffold

AnyDriftCorrection = Annotated[SerializeAsAny[DriftCorrection], BeforeValidator(DriftCorrection.choose)]

__all__ = [
    "DRIFT_CORRECTIONS",
    "AnyDriftCorrection",
    "DriftCorrection",
    "FedDyn",
    "FedProx",
    "Scaffold",
    "register_drift_correction",
]
