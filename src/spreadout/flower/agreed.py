"""What all nodes of a secure sum must have been told alike: their masks do not cancel if they were not.

A server that could tell each node something else would single one out: by a model from which the others
learn nothing, by leaving the others without clients, or by settings with which they add less noise.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence

from torch import Tensor

from spreadout.config.experiment import Experiment
from spreadout.config.keys import without
from spreadout.core.types import Tensors
from spreadout.federated.sum_layout import SumLayout

MAY_DIFFER = ("nodes", "wait", "timeout", "takeover")
"""Keys of `[deploy]` that are the server's own, and may be others where a run is resumed."""
OWN = ("data.path", "deploy.roster", "run.checkpoint_every", *(f"deploy.{key}" for key in MAY_DIFFER))
"""Keys that differ from machine to machine, and that a server sets for itself."""


def config_digest(settled: Experiment) -> bytes:
    """By what a settled config is known: clip, noise, threshold, rates and all the rest."""
    values = without(settled.model_dump(mode="json"), OWN)
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).digest()


def agreed_form(
    config: bytes,
    layout: SumLayout,
    dense: Tensors,
    rows: Mapping[str, Tensor],
    clients: Sequence[int],
) -> bytes:
    """The config, the public rows, the model (`SumLayout.digest`) and all clients of the sum."""
    who = json.dumps(sorted(clients)).encode()
    parts = config, layout.digest(dense, rows), hashlib.sha256(who).digest()
    return hashlib.sha256(b"".join(parts)).digest()  # each of one length
