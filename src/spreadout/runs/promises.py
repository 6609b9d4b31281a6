"""What noise promises, on clients' updates or on the server's sum: to whom, and what it leaves open."""

from __future__ import annotations

import math
from typing import Any, Literal, NamedTuple

from spreadout.core.state import ServerState
from spreadout.federated.central import clip_of, releases_of, rounds_of
from spreadout.federated.federation import Federation
from spreadout.privacy.accounting import epsilon_of
from spreadout.privacy.mechanism import GaussianMechanism
from spreadout.runs import example_promises as examples

SIMULATED = "simulated: no guarantee"
UNIT = "a client, with all of its data"
REAL_SAMPLER = (
    "discrete Gaussian on a grid (Canonne, Kamath & Steinke 2020), words of AES-256 in counter mode "
    "under a fresh key of the operating system for every release"
)
NONE = "none: updates are clipped, but no noise is added"
LOCAL = (
    "local: protects the values of a client's updates on the rows it requests, against the server; "
    "each node adds its own noise; ε is for this run only, and the nodes' ledgers count all runs"
)
DISTRIBUTED = (
    "distributed: protects the values of a client's updates on the rows it requests, against the "
    "server, which sees only noised sums over nodes; at most privacy.colluding nodes may work with it; "
    "ε is for this run only, and the nodes' ledgers count all runs"
)
CENTRAL = (
    "central: protects all of a client's data against anyone who sees the released models, other "
    "clients included; not against the server, which sees every update without noise; ε is for this "
    "run only"
)


class Channel(NamedTuple):
    """One way in which something of a client may reach whom it is to be hidden from."""

    status: Literal["protected", "disclosed", "absent"]
    what: str


NOT_KEPT = Channel(
    "absent",
    "the run's folder has no counts of clients' classes or examples, and no scores made from them",
)


VALIDATED = Channel(
    "disclosed",
    "scores of validation examples, and what they choose, have no noise; unless the run was given "
    "others, they are cut from the clients' data",
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
    if federation.noises_sums:
        after, drawn = releases_of(state) + 1, rounds_of(federation)
        most = max(after, federation.rounds)
        return drawn.allowed(mechanism.noise, mechanism.epsilon, mechanism.delta, most) < after
    if federation.noises_examples:
        return examples.epsilon_at_most(federation, state, mechanism, 1) > mechanism.epsilon
    most = max(federation.executor.releases(state).values(), default=0)
    return epsilon_of(mechanism.noise, most + 1, mechanism.delta) > mechanism.epsilon


def epsilon_by_now(federation: Federation, state: ServerState, more: int = 0) -> float | None:
    """For a record: an upper bound that is found at once; None without `[privacy]`.

    more: rounds to come that are counted too.
    """
    f, mechanism = federation, federation.clients.privacy
    if mechanism is None:
        return None
    if f.noises_sums:
        return rounds_of(f).at_most(mechanism.noise, releases_of(state) + more, mechanism.delta)
    if f.noises_examples:
        return examples.epsilon_at_most(f, state, mechanism, more)
    most = max(f.executor.releases(state).values(), default=0)
    return epsilon_of(mechanism.noise, most + more, mechanism.delta)


def privacy_of(federation: Federation, state: ServerState) -> dict[str, Any] | None:
    """For `summary.json`; None for a run without `[privacy]`."""
    f, mechanism = federation, federation.clients.privacy
    if mechanism is None:
        return None
    if f.noises_sums:
        return _central(f, state, mechanism)
    releases = max(f.executor.releases(state).values(), default=0)
    epsilon = epsilon_of(mechanism.noise, releases, mechanism.delta)
    simulated = not f.executor.clients_elsewhere
    guarantee = DISTRIBUTED if mechanism.needs_others else LOCAL
    return {
        "guarantee": NONE if not mechanism.noise else SIMULATED if simulated else guarantee,
        "model": mechanism.model,
        "simulated": simulated,
        "not_protected": [*_rows_seen(f), "participation", "time taken"],
        "clip": mechanism.clip,
        "noise": mechanism.noise,
        "delta": mechanism.delta,
        "budget": mechanism.epsilon,
        "budget_is_spent": is_spent(f, state),
        "most_releases_by_a_client": releases,
        "epsilon": epsilon if math.isfinite(epsilon) else None,
        **(examples.about(f, state, mechanism) if f.noises_examples else {}),
    }


def _rows_seen(f: Federation) -> list[str]:
    """What requests tell; nothing where everybody requests every row."""
    if f.executor.hides_requests:
        return ["how many rows are asked for"]
    named = f.method.has_class_table and f.method.row_access != "all"
    return ["rows asked for"] if named or f.data.features else []


def _central(f: Federation, state: ServerState, mechanism: GaussianMechanism) -> dict[str, Any]:
    """Noise on the sum; a simulation's noise and cohorts follow from the seed, and promise nothing."""
    simulated = not f.server.real_noise
    releases, drawn = releases_of(state), rounds_of(f)
    spent = drawn.spent(mechanism.noise, releases, mechanism.delta)
    return {
        "guarantee": NONE if not mechanism.noise else SIMULATED if simulated else CENTRAL,
        "model": mechanism.model,
        "simulated": simulated,
        "unit": UNIT,
        "adjacency": drawn.adjacency,
        "sampler": drawn.drawn,
        "rate": drawn.rate,
        "accountant": drawn.accountant,
        "not_protected": ["what reaches the server", "the run's logs and counts of bytes"],
        "clip": mechanism.clip,
        "clip_by_now": clip_of(state, mechanism),
        "noise": mechanism.noise,
        "delta": mechanism.delta,
        "budget": mechanism.epsilon,
        "budget_is_spent": is_spent(f, state),
        "releases": releases,
        "epsilon": spent.epsilon if math.isfinite(spent.epsilon) else None,
        "epsilon_by_renyi": spent.rdp if math.isfinite(spent.rdp) else None,
    }
