"""What the noise on clients' updates promises, to whom, and what it leaves open."""

from __future__ import annotations

import math
from typing import Any

from spreadout.core.state import ServerState
from spreadout.federated.federation import Federation
from spreadout.privacy.accounting import epsilon_of

SIMULATED = "simulated: no guarantee"
NONE = "none: updates are clipped, but no noise is added"
LOCAL = (
    "local: the values of a client's updates on the rows it requests, against the server; each node "
    "adds its own noise; ε is of this run alone, and the nodes' ledgers have all runs"
)


def table_privacy_of(federation: Federation, state: ServerState) -> dict[str, Any] | None:
    """What the server's own noise promises, if the method adds any."""
    found = federation.method.privacy(state)
    simulated = not federation.server.real_noise
    if found is None or found.get("epsilon") is None or not simulated:
        return found
    return {**found, "guarantee": SIMULATED, "simulated": True, "deployed": found["guarantee"]}


def is_spent(federation: Federation, state: ServerState) -> bool:
    """Whether one more round might take a client beyond `privacy.epsilon`."""
    mechanism = federation.clients.privacy
    if mechanism is None or mechanism.epsilon is None:
        return False
    most = max(federation.executor.releases(state).values(), default=0)
    return epsilon_of(mechanism.noise, most + 1, mechanism.delta) > mechanism.epsilon


def privacy_of(federation: Federation, state: ServerState) -> dict[str, Any] | None:
    """For `summary.json`; None for a run without `[privacy]`."""
    f, mechanism = federation, federation.clients.privacy
    if mechanism is None:
        return None
    releases = max(f.executor.releases(state).values(), default=0)
    epsilon = epsilon_of(mechanism.noise, releases, mechanism.delta)
    simulated = not f.executor.clients_elsewhere
    return {
        "guarantee": NONE if not mechanism.noise else SIMULATED if simulated else LOCAL,
        "simulated": simulated,
        "not_protected": ["rows asked for", "participation", "time taken"],
        "clip": mechanism.clip,
        "noise": mechanism.noise,
        "delta": mechanism.delta,
        "budget": mechanism.epsilon,
        "budget_is_spent": is_spent(f, state),
        "most_releases_by_a_client": releases,
        "epsilon": epsilon if math.isfinite(epsilon) else None,
    }
