"""`privacy.json`: what a run's clients give away, channel by channel, for whoever must judge it.

A channel is protected (by noise), disclosed, or absent (nothing of the kind leaves a client).
"""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

from spreadout import __version__
from spreadout.core.state import ServerState
from spreadout.federated.federation import Federation
from spreadout.models.nn.scaling import standardized_in
from spreadout.privacy.accounting import epsilon_of
from spreadout.privacy.mechanism import GaussianMechanism
from spreadout.runs import example_promises as examples
from spreadout.runs.central_evidence import of_central
from spreadout.runs.promises import (
    NOT_KEPT,
    REAL_SAMPLER,
    SIMULATED,
    UNIT,
    VALIDATED,
    Channel,
    privacy_of,
    table_privacy_of,
)

WITHOUT = "none: the config has no [privacy]"
ADJACENCY = "one client's data is replaced by any other data, of at least one training example"
THE_SAME_ROWS = ", that requests the same rows; where the rows differ, nothing is promised"
SAME_ROWS_BACK = (
    ", that requests and sends back the same rows; where the rows differ, nothing is promised"
)
AS_MANY_ROWS = ", that requests equally many rows; where the numbers differ, nothing is promised"
IN_ONE_PLACE = "none: all data is in one place"


HOW_MANY = "how many rows a client fetches: its own classes and the negatives beside them"


def evidence(federation: Federation, state: ServerState) -> dict[str, Any]:
    """All that `privacy.json` says."""
    f, mechanism = federation, federation.clients.privacy
    if f.noises_sums and mechanism is not None:
        return of_central(f, state, mechanism)
    deployed = f.executor.clients_elsewhere
    promise = privacy_of(f, state)
    guarantee = IN_ONE_PLACE if f.method.is_centralized else WITHOUT
    asked = f.executor.releases(state)
    counts = Counter(asked.values())
    if mechanism is not None:  # those who never took part have given nothing
        counts[0] += f.data.clients - len(asked)
    most = max(asked.values(), default=0)
    ways = channels(f)
    found = {
        "guarantee": guarantee if promise is None else promise["guarantee"],
        "setting": "deployment" if deployed else SIMULATED,
        "unit": UNIT,
        "adjacency": ADJACENCY + _as_to_rows(f, ways),
        "adversary": _adversary(mechanism),
        "mechanism": None if mechanism is None else _mechanism(mechanism),
        "sampler": _sampler(mechanism, deployed=deployed),
        "accountant": {
            "name": "Gaussian differential privacy, exact",
            "amplification": "none",
            "version": f"spreadout {__version__}",
        },
        "epsilon": [] if mechanism is None else _epsilons(mechanism, most),
        "releases": {str(releases): clients for releases, clients in sorted((+counts).items())},
        "channels": {name: channel._asdict() for name, channel in ways.items()},
        "table": table_privacy_of(f, state),
    }
    if f.noises_examples and mechanism is not None:
        found |= examples.said(f, state, mechanism)
    return found


def _as_to_rows(f: Federation, ways: dict[str, Channel]) -> str:
    """Which data may take the place of a client's: not one that other requests tell apart."""
    out = [ways[name].status for name in ("rows", "features") if name in ways]
    if "disclosed" in out:
        return SAME_ROWS_BACK if f.method.returns_own_rows else THE_SAME_ROWS
    return AS_MANY_ROWS if f.executor.hides_requests else ""


def _adversary(mechanism: GaussianMechanism | None) -> str:
    """Against whom a promise holds."""
    server = "the server"
    if mechanism is not None and mechanism.needs_others:  # `privacy/unmasking.py` says why
        colluding = mechanism.colluding
        server += ", whatever it tells the nodes"
        server += f" and with up to {colluding} of them working for it" if colluding else ""
    return f"{server} and anyone who reads what reaches it; not a node's operator or the code it runs"


def _mechanism(mechanism: GaussianMechanism) -> dict[str, Any]:
    about = "Gaussian noise, added by the client to its whole clipped update"
    if mechanism.needs_others:
        about = "Gaussian noise on the sum of clipped updates; every node adds a part of it"
    at = {"clip": mechanism.clip, "noise": mechanism.noise, "delta": mechanism.delta}
    return {"name": about, **at}


def _sampler(mechanism: GaussianMechanism | None, *, deployed: bool) -> str | None:
    if mechanism is None or not mechanism.noise:
        return None
    if deployed:
        return REAL_SAMPLER
    if mechanism.model == "example":
        return "splitmix64 from the run's seed, in floating point"
    return "PCG64 from the run's seed, in floating point"


def _epsilons(mechanism: GaussianMechanism, releases: int) -> list[dict[str, float | None]]:
    """Of the client that has sent the most, at several δ."""
    found = {
        d: epsilon_of(mechanism.noise, releases, d) for d in sorted({mechanism.delta, *examples.DELTAS})
    }
    return [
        {"delta": delta, "epsilon": epsilon if math.isfinite(epsilon) else None}
        for delta, epsilon in found.items()
    ]


def channels(federation: Federation) -> dict[str, Channel]:
    """Every way out of a client, as a deployment of this run has it."""
    f, method = federation, federation.method
    if method.is_centralized:
        return {"examples": Channel("disclosed", "all data is in one place")}
    private = f.clients.privacy is not None
    noised = f.clients.privacy is not None and f.clients.privacy.noise > 0
    told = method.sends_at_setup if not private else None
    sets = method.needs_shared_key and not private
    return {
        "values": Channel("protected", _noised_values(f))
        if noised
        else Channel("disclosed", _plain_values(f)),
        "loss": Channel("absent", "not sent") if private else Channel("disclosed", "with every update"),
        "n_k": Channel("disclosed", "taken as public: ε follows from the smallest client's number")
        if f.noises_examples
        else Channel("absent", "all clients report the same number")
        if f.hides_sizes
        else Channel(
            "disclosed", "how many examples a client trains on, at first and with every update"
        ),
        "label counts": Channel("disclosed", f"before the first round, clients send {told}")
        if told and not sets
        else Channel("absent", "not sent"),
        "label sets": Channel("disclosed", f"before the first round, clients send {told}")
        if sets
        else Channel("absent", "not sent"),
        "feature moments": Channel(
            "disclosed",
            "before the first round, the mean and variance of a client's features; of one "
            "example, the example itself",
        )
        if standardized_in(f.model.encoder) is not None
        else Channel("absent", "not sent"),
        "positives": Channel("disclosed", "how many examples of each row's class a client has")
        if f.rules.counted
        else Channel("absent", "not sent"),
        "rows": _rows(f),
        "features": _features(f),
        **({"number of rows": Channel("disclosed", HOW_MANY)} if f.executor.hides_requests else {}),
        **({"run folder": NOT_KEPT} if private else {}),
        **({"validation examples": VALIDATED} if private and f.validated else {}),
        "presence": Channel("disclosed", "which client answered in which round"),
        "timing": Channel("disclosed", "how long a client takes, and how large its messages are"),
    }


def _plain_values(f: Federation) -> str:
    """Of updates without noise."""
    if f.shares_noise:
        return "sums of clipped updates, without noise; single updates are hidden (secure aggregation)"
    return "updates" if f.clients.privacy is None else "updates, clipped"


def _noised_values(f: Federation) -> str:
    if f.noises_examples:
        return "updates made of steps, each on a noised sum of its examples' clipped gradients"
    if f.clients.privacy is not None and f.clients.privacy.needs_others:
        return (
            "the server sees only noised sums of clipped updates (secure aggregation); a row that only "
            "one client of a round holds shows that client's change, with the noise of the sum"
        )
    return "updates, clipped and noised"


def _rows(f: Federation) -> Channel:
    if not f.method.has_class_table or f.method.row_access == "all":
        return Channel("absent", "every client requests every row, or there are no rows")
    if f.executor.hides_requests:
        return Channel(
            "protected",
            "fetched from two servers; neither learns which rows, as long as they do not compare what "
            "they see",
        )
    if f.method.row_access == "own":
        return Channel("disclosed", "a client requests the rows of its own classes and so names them")
    if f.method.names_own_rows:
        return Channel(
            "disclosed",
            "a client requests the rows of its own classes among others, and sends back its own alone: "
            "that names them",
        )
    if (size := f.method.draws.cover) is not None:
        return Channel(
            "disclosed",
            f"which public blocks of {size} or more classes contain a client's own; not which class of "
            "a block",
        )
    how = "always the same" if f.method.draws.fixed else "drawn afresh in every round"
    return Channel("disclosed", f"a client's own classes, mixed with others that are {how}")


def _features(f: Federation) -> Channel:
    if not f.data.features:
        return Channel("absent", "features are not requested as rows")
    which = "of the examples of the round" if f.clients.requests_seen else "of all its examples"
    return Channel("disclosed", f"a client requests the rows of the features {which}")
