"""What the server knows when a method's hooks are called: before the first round, and in every round."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from spreadout.core.merging import RowSum
from spreadout.methods.class_counts import SetupMessage


@dataclass(frozen=True)
class ServerContext:
    """What the server knows when it takes its own step at the end of a round.

    >>> import spreadout as so
    >>> class Watching(so.PositiveOnly):
    ...     name: str = "watching"
    ...
    ...     def server_step(self, state, model, context):
    ...         print(f"round {context.round} trained rows {context.touched['classes'].ids.tolist()}")
    >>> result = so.run(so.Experiment(rounds=1, clients={"per_round": 3}), method=Watching())
    round 0 trained rows [0, 2, 4]
    """

    seed: int
    noise_seed: int | None  # of the server's own noise, simulated; None: from the system's entropy
    round: int
    client_lr: Mapping[str, float]  # η of each table's rows on the clients
    touched: Mapping[str, RowSum]  # the rows this round's accepted clients trained
    low_precision: bool = False
    rate_factor: float = 1.0  # what the decay leaves of the clients' rates


@dataclass(frozen=True)
class SetupContext:
    """What the server has before the first round.

    >>> import spreadout as so
    >>> class Greeting(so.PositiveOnly):
    ...     name: str = "greeting"
    ...
    ...     def server_setup(self, setup, state, model):
    ...         print(f"{setup.clients} clients")
    ...         return so.Traffic(once_down=8 * setup.clients)
    >>> so.run(so.Experiment(rounds=1), method=Greeting()).summary["bytes"]["once_down"]
    10 clients
    80
    """

    messages: Iterable[SetupMessage]  # as `client_setup` makes them; not trusted
    clients: int  # to whom the server sends what all must know
    noise_seed: int | None  # of the server's own noise, as in `ServerContext`
    most: int | None = None  # examples that a client may count for; None: as many as it says
    seed: int = 0  # of the run: public, and the same in a simulation and a deployment
