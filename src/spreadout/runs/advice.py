"""Warnings about a run, one line each."""

from __future__ import annotations

from spreadout.federated.federation import Federation


def idle_clients(federation: Federation) -> str | None:
    """A warning if clients have nothing to train on."""
    idle = int((federation.clients.schedule.usable(federation.data.sizes) == 0).sum())
    if idle == 0 or federation.server.selection in ("nonempty", "weighted"):
        return None  # they are never chosen
    return (
        f"{idle} of {federation.data.clients} clients have no examples to train on; "
        "whenever they are chosen their updates are refused"
    )
