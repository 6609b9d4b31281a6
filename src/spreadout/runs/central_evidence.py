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
from spreadout.runs.promises import (
    NOT_KEPT,
    REAL_SAMPLER,
    SIMULATED,
    UNIT,
    VALIDATED,
    Channel,
    privacy_of,
)

AUDIENCE = "anyone who sees the models"
ADVERSARY = "anyone who sees the model after every round; not the server, its disk or its logs"
ADVERSARY_OF_REAL_SERVER = (
    "anyone who sees the released models, after every round: other clients, and everyone who gets the "
    "model; not the server, its operator, its disk or its logs (requests, refusals, metrics), and not "
    "someone who watches the network"
)
REGISTERED = (
    "; which clients are registered is known, and the one replaced by nothing is still drawn but never "
    "answers"
)


def of_central(f: Federation, state: ServerState, mechanism: GaussianMechanism) -> dict[str, Any]:
    """The same keys as of noise on the clients; `audience`: to whom the channels lead."""
    drawn, releases, real = rounds_of(f), releases_of(state), f.server.real_noise
    promise = privacy_of(f, state)
    assert promise is not None
    asked = sorted({mechanism.delta, *DELTAS})
    found = {delta: drawn.spent(mechanism.noise, releases, delta) for delta in asked}
    return {
        "guarantee": promise["guarantee"],
        "setting": "deployment" if real else SIMULATED,
        "unit": UNIT,
        "adjacency": drawn.adjacency + (REGISTERED if real else ""),
        "adversary": ADVERSARY_OF_REAL_SERVER if real else ADVERSARY,
        "audience": AUDIENCE,
        "mechanism": {
            "name": "Gaussian noise on the sum of clipped updates, on every row, by the server",
            "clip": mechanism.clip,
            "clip_by_now": clip_of(state, mechanism),
            "clip_quantile": mechanism.clip_quantile,
            "noise": mechanism.noise,
            "delta": mechanism.delta,
            "divided_by": f.server.per_round,
        },
        "sampler": _sampler(mechanism, real=real),
        "cohorts": {
            "drawn": drawn.drawn,
            "rate": drawn.rate,
            "from": "the server's operating system, a fresh key a round" if real else "the run's seed",
        },
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
        "channels": {
            name: channel._asdict()
            for name, channel in _channels(mechanism, real=real, validated=f.validated).items()
        },
        "table": None,
    }


def _sampler(mechanism: GaussianMechanism, *, real: bool) -> str | None:
    if not mechanism.noise:
        return None
    return REAL_SAMPLER if real else "splitmix64 from the run's seed, in floating point"


def _channels(mechanism: GaussianMechanism, *, real: bool, validated: bool) -> dict[str, Channel]:
    """What whoever sees the models learns of a client. The server itself sees every update."""
    if not mechanism.noise:
        return {"values": Channel("disclosed", "updates, clipped; without noise")}
    found = {
        "values": Channel("protected", "the sum of clipped updates, noised by the server"),
        "rows": Channel("protected", "every row gets noise in every round, whoever trained it"),
        "presence": Channel(
            "protected", "clients are drawn in secret, and a round without clients releases noise too"
        ),
        "loss": Channel("absent", "not recorded"),
        "n_k": Channel("absent", "all clients have the same weight, and sums are divided by a constant"),
        "label counts": Channel("absent", "not asked for"),
        "label sets": Channel("absent", "not asked for"),
        "feature moments": Channel("absent", "not asked for"),
        "positives": Channel("absent", "not asked for"),
        "run folder": NOT_KEPT,
        **({"validation examples": VALIDATED} if validated else {}),
        "logs": Channel("disclosed", "counts of bytes and requests: do not publish them"),
    }
    if not real:
        return found
    return found | {
        "messages to the server": Channel(
            "disclosed",
            "every update reaches the server without noise, and with it the rows a client requests and "
            "when it takes part: the server must be trusted and its connections encrypted",
        ),
        "registration": Channel("disclosed", "which clients exist is taken as known"),
        "timing": Channel(
            "disclosed", "a round takes as long as its slowest client, which other nodes notice"
        ),
        "logs": Channel(
            "disclosed",
            "requests, refusals, metrics and events in the run folder have no noise and are for the "
            "server alone: publish only the model",
        ),
    }


def _library() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return f", dp-accounting {version('dp-accounting')}"
    except PackageNotFoundError:
        return ""
