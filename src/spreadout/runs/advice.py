"""What a user should know of a run, and try, in one line."""

from __future__ import annotations

from spreadout.federated.federation import Federation


def idle_clients(federation: Federation) -> str | None:
    """What to say of clients that have nothing to train on."""
    idle = int((federation.clients.schedule.usable(federation.data.sizes) == 0).sum())
    if idle == 0 or federation.server.selection in ("nonempty", "weighted"):
        return None  # and there they are never chosen
    return (
        f"{idle} of {federation.data.clients} clients have no examples to train on; "
        "whenever they are chosen their updates are refused"
    )
