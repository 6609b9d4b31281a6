"""What `privacy.json` says of a run whose server is trusted, and adds noise to sums over its clients."""

from __future__ import annotations

import math
from typing import Any

from spreadout import __version__
from spreadout.core.state import ServerState
from spreadout.federated.central import clip_of, releases_of, rounds_of
from spreadout.federated.federation import Federation
from spreadout.privacy.mechanism import GaussianMechanism
from spreadout.runs.example_promises import DELTAS
from spreadout.runs.promises import SIMULATED, UNIT, Channel, privacy_of

AUDIENCE = "whoever sees the models"


def of_central(f: Federation, state: ServerState, mechanism: GaussianMechanism) -> dict[str, Any]:
    """The same keys as of noise on the clients; `audience`: to whom the channels lead."""
    drawn, releases = rounds_of(f), releases_of(state)
    promise = privacy_of(f, state)
    assert promise is not None
    asked = sorted({mechanism.delta, *DELTAS})
    found = {delta: drawn.spent(mechanism.noise, releases, delta) for delta in asked}
    return {
        "guarantee": promise["guarantee"],
        "setting": SIMULATED,
        "unit": UNIT,
        "adjacency": drawn.adjacency,
        "adversary": "whoever sees the model after every round; not the server, its disk or its logs",
        "audience": AUDIENCE,
        "mechanism": {
            "name": "Gaussian noise on the sum of clipped updates, on every row, by the server",
            "clip": mechanism.clip,
            "clip_by_now": clip_of(state, mechanism),
            "clip_quantile": mechanism.clip_quantile,
            "noise": mechanism.noise,
            "divided_by": f.server.per_round,
        },
        "sampler": "splitmix64 from the run's seed, in floating point" if mechanism.noise else None,
        "cohorts": {"drawn": drawn.drawn, "rate": drawn.rate, "from": "the run's seed"},
        "accountant": {
            "name": drawn.accountant,
            "amplification": "none" if drawn.rate >= 1 else "by sampling of clients",
            "version": f"spreadout {__version__}{_library()}",
        },
        "epsilon": [
            {"delta": delta, "epsilon": one.epsilon if math.isfinite(one.epsilon) else None}
            for delta, one in found.items()
        ],
        "epsilon_by_renyi": [
            {"delta": delta, "epsilon": one.rdp if math.isfinite(one.rdp) else None}
            for delta, one in found.items()
        ],
        "releases": {str(releases): 1},
        "channels": {name: channel._asdict() for name, channel in _channels(mechanism).items()},
        "table": None,
    }


def _channels(mechanism: GaussianMechanism) -> dict[str, Channel]:
    """What whoever sees the models learns of a client. The server itself sees every update."""
    if not mechanism.noise:
        return {"values": Channel("disclosed", "updates, clipped; without noise")}
    return {
        "values": Channel("protected", "the sum of clipped updates, noised by the server"),
        "rows": Channel("protected", "every row has noise in every round, whoever trained it"),
        "presence": Channel(
            "protected", "clients are drawn in secret, a round without any has noise too"
        ),
        "loss": Channel("absent", "not written down"),
        "n_k": Channel("absent", "all clients count the same, sums are divided by a constant"),
        "label counts": Channel("absent", "not asked for"),
        "label sets": Channel("absent", "not asked for"),
        "feature moments": Channel("absent", "not asked for"),
        "positives": Channel("absent", "not asked for"),
        "logs": Channel("disclosed", "the run's counts of bytes and requests: keep them to yourself"),
    }


def _library() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return f", dp-accounting {version('dp-accounting')}"
    except PackageNotFoundError:
        return ""
