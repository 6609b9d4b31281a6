"""All methods by the name a config gives them."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from spreadout.methods.base import Method
from spreadout.methods.dual_encoder import DualEncoder
from spreadout.methods.fedalc import FedALC, FedALCFixed
from spreadout.methods.fedavg import Centralized, FedAvg
from spreadout.methods.fedaws import FedAwS
from spreadout.methods.fedmlh import FedAvgBCE, FedMLH
from spreadout.methods.fedss import FedAwSSoftmax, FedSS
from spreadout.methods.positive_only import Baseline1, Baseline2, Flag

AnyMethod = Annotated[
    FedAwS
    | Baseline1
    | Baseline2
    | Flag
    | FedAvg
    | Centralized
    | DualEncoder
    | FedALC
    | FedALCFixed
    | FedMLH
    | FedAvgBCE
    | FedSS
    | FedAwSSoftmax,
    Field(discriminator="name"),
]

METHODS: dict[str, type[Method]] = {
    "fedaws": FedAwS,
    "baseline-1": Baseline1,
    "baseline-2": Baseline2,
    "flag": Flag,
    "fedavg": FedAvg,
    "centralized": Centralized,
    "dual_encoder": DualEncoder,
    "fedalc": FedALC,
    "fedalc-fixed": FedALCFixed,
    "fedmlh": FedMLH,
    "fedavg-bce": FedAvgBCE,
    "fedss": FedSS,
    "fedaws-softmax": FedAwSSoftmax,
}

__all__ = [
    "METHODS",
    "AnyMethod",
    "Baseline1",
    "Baseline2",
    "Centralized",
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
]
