"""All methods by the name a config gives them. Importing a method's module registers it."""

from __future__ import annotations

from typing import Annotated

from pydantic import BeforeValidator, SerializeAsAny

from spreadout.methods.base import METHODS, Method, register_method
from spreadout.methods.centralized_sets import CentralizedSets
from spreadout.methods.dual_encoder import DualEncoder
from spreadout.methods.fedalc import FedALC, FedALCFixed
from spreadout.methods.fedavg import Centralized, FedAvg
from spreadout.methods.fedaws import FedAwS
from spreadout.methods.fedmlh import FedAvgBCE, FedMLH
from spreadout.methods.fedss import FedAwSSoftmax, FedSS
from spreadout.methods.positive_only import Baseline1, Baseline2, Flag

AnyMethod = Annotated[SerializeAsAny[Method], BeforeValidator(Method.choose)]
"""`[method]` of a config: whichever registered method it names."""

__all__ = [
    "METHODS",
    "AnyMethod",
    "Baseline1",
    "Baseline2",
    "Centralized",
    "CentralizedSets",
    "DualEncoder",
    "FedALC",
    "FedALCFixed",
    "FedAvg",
    "FedAvgBCE",
    "FedAwS",
    "FedAwSSoftmax",
    "FedMLH",
    "FedSS",
    "Flag",
    "Method",
    "register_method",
]
