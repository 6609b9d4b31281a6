"""What noise in every local step promises of one example of a client: the worst over clients.

A client of n examples takes `local_steps` steps in each round that it is in, with every example in a
step with probability batch / n. Fewer examples and more rounds cost more. That n is taken as public.
"""

from __future__ import annotations

import math
from typing import Any

from spreadout import __version__
from spreadout.core.state import ServerState
from spreadout.federated.federation import Federation
from spreadout.privacy.central import Rounds
from spreadout.privacy.mechanism import GaussianMechanism

DELTAS = (1e-5, 1e-6, 1e-8)  # beside the config's own
UNIT = "an example of a client"
ADJACENCY = (
    "one example's contribution is replaced by nothing; the number of a client's examples, and which "
    "rows it requests, are public"
)


def epsilon_at_most(f: Federation, state: ServerState, mechanism: GaussianMechanism, more: int) -> float:
    """An upper bound over all clients, if each is in so many more rounds; found at once."""
    found = (s.at_most(mechanism.noise, steps, mechanism.delta) for s, steps in _worst(f, state, more))
    return max(found, default=0.0)


def epsilon_at(f: Federation, state: ServerState, mechanism: GaussianMechanism, delta: float) -> float:
    """The closest bound at a δ, of the client for which it is worst."""
    noise = mechanism.noise
    bounds = [(drawn.at_most(noise, steps, delta), drawn, steps) for drawn, steps in _worst(f, state, 0)]
    worst = 0.0
    for bound, drawn, steps in sorted(bounds, key=lambda one: one[0], reverse=True):
        if bound <= worst:  # neither this one nor those after it can be above
            break
        worst = max(worst, drawn.spent(noise, steps, delta).epsilon)
    return worst


def _worst(f: Federation, state: ServerState, more: int) -> list[tuple[Rounds, int]]:
    """How examples are drawn and over how many steps: of each number of rounds, the smallest client."""
    schedule = f.clients.schedule
    assert schedule.batch is not None
    assert schedule.steps is not None
    sizes, releases = schedule.usable(f.data.sizes), f.executor.releases(state)
    smallest: dict[int, int] = {}
    for client, size in enumerate(sizes.tolist()):
        rounds = releases.get(client, 0) + more
        if size and rounds:
            smallest[rounds] = min(size, smallest.get(rounds, size))
    found, least = [], math.inf
    for rounds, size in sorted(smallest.items(), reverse=True):
        if size < least:  # else a client in more rounds has no more examples, and costs more
            found.append((Rounds("poisson", min(schedule.batch, size), size), rounds * schedule.steps))
            least = size
    return found


def about(f: Federation, state: ServerState, mechanism: GaussianMechanism) -> dict[str, Any]:
    """What a summary says beside clip and noise."""
    epsilon = epsilon_at(f, state, mechanism, mechanism.delta)
    return {
        "unit": UNIT,
        "adjacency": ADJACENCY,
        "epsilon": epsilon if math.isfinite(epsilon) else None,
        "steps_a_round": f.clients.schedule.steps,
    }


def said(f: Federation, state: ServerState, mechanism: GaussianMechanism) -> dict[str, Any]:
    """What `privacy.json` says otherwise than of noise on updates."""
    found = {d: epsilon_at(f, state, mechanism, d) for d in sorted({mechanism.delta, *DELTAS})}
    return {
        "unit": UNIT,
        "adjacency": ADJACENCY,
        "mechanism": {
            "name": "Gaussian noise in every local step, on the sum of its examples' clipped gradients",
            "clip": mechanism.clip,
            "noise": mechanism.noise,
            "delta": mechanism.delta,
            "steps_a_round": f.clients.schedule.steps,
            "examples_a_step": f.clients.schedule.batch,
        },
        "accountant": {
            "name": "Poisson-sampled Gaussian steps: privacy loss distributions, or Rényi",
            "amplification": "by sampling of examples",
            "version": f"spreadout {__version__}",
        },
        "epsilon": [
            {"delta": delta, "epsilon": epsilon if math.isfinite(epsilon) else None}
            for delta, epsilon in found.items()
        ],
    }
