"""What clients and server do once, before the first round."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import zip_longest

from spreadout.core.errors import UserError
from spreadout.core.state import ServerState
from spreadout.core.traffic import Traffic
from spreadout.federated import input_scale
from spreadout.federated.federation import Federation
from spreadout.methods.class_counts import SetupMessage
from spreadout.methods.context import SetupContext
from spreadout.models.nn.scaling import standardized_in, takes_roots


def client_setup(federation: Federation, key: bytes) -> Iterator[SetupMessage]:
    """What each client sends, a message for each: what the method asks for, and its features' scale.

    key: a secret that the clients share and the server does not have.
    """
    f = federation
    asked = f.method.client_setup(f.data, key=key, seed=f.seed)
    if f.clients.privacy is not None:
        asked = _nothing(asked, f.method.name)
    if standardized_in(f.model.encoder) is None:
        yield from asked
        return
    nothing: SetupMessage = {}
    told = input_scale.messages_of(f.data, roots=takes_roots(f.model.encoder))
    for one, other in zip_longest(asked, told, fillvalue=nothing):
        yield {**one, **other}


def _nothing(messages: Iterator[SetupMessage], method: str) -> Iterator[SetupMessage]:
    """Messages with nothing in them: a method may send more than it says, without noise."""
    for message in messages:
        if message:
            raise UserError(
                f"method.name = {method!r}: its client_setup sends {', '.join(sorted(message))} without "
                "noise; with [privacy] it must send nothing"
            )
        yield message


def server_setup(federation: Federation, state: ServerState) -> None:
    """What the server makes of these messages."""
    f = federation
    messages = f.executor.setup_messages(f)
    prefix, scale = standardized_in(f.model.encoder), None
    if prefix is not None:
        features = state.dense[prefix + "mean"].numel()
        scale = input_scale.InputScale(
            features,
            roots=takes_roots(f.model.encoder),
            cap=f.server.claim_cap,
            robust=f.server.robust is not None,
        )
        messages = scale.taken_from(messages)
    f.method.learn_classes(f.class_names, state)
    state.traffic += f.method.server_setup(_context(f, messages), state, f.model)
    if scale is not None and prefix is not None:
        for _ in messages:  # those that the method did not look at
            pass
        scale.write_(state, prefix)
        if not f.method.is_centralized:  # data in one place crosses no network
            state.traffic += Traffic(once_up=scale.bytes)


def _context(f: Federation, messages: Iterable[SetupMessage]) -> SetupContext:
    clients = 0 if f.executor.clients_elsewhere else f.data.clients
    return SetupContext(messages, clients, f.noise_seed, f.server.claim_cap, f.seed)
