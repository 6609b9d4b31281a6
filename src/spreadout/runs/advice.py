"""Warnings about a run, one line each."""

from __future__ import annotations

import numpy as np

from spreadout.core.errors import UserError
from spreadout.federated.federation import Federation
from spreadout.models.build import DataShape

WIDE = 16_384  # features of a network whose every weight gets noise


def of_clients(federation: Federation) -> list[str | None]:
    """Every warning before a run about what clients hold; None where there is nothing to warn of."""
    return [check(federation) for check in (idle_clients, capped_claims)]


def of_settings(federation: Federation) -> list[str | None]:
    """Every warning before a run about what the config asks for."""
    return [check(federation) for check in (unguarded, named_to_the_server, wide_noise)]


def idle_clients(federation: Federation) -> str | None:
    """A warning if clients have nothing to train on."""
    schedule, sizes = federation.clients.schedule, federation.data.sizes
    idle = int((schedule.usable(sizes) == 0).sum())
    short = int(((schedule.usable(sizes) == 0) & (sizes > 0)).sum())
    batch = f"clients.batch = {schedule.batch}"
    if short and idle == len(sizes):
        raise UserError(
            f"clients.drop_remainder: every client has fewer examples than {batch} (the most: "
            f"{int(sizes.max())}), so none would train; lower clients.batch, or set it to false"
        )
    if idle == 0 or federation.server.selection in ("nonempty", "weighted", "by_size"):
        return None  # they are never chosen
    if short:
        return (
            f"{short} of {federation.data.clients} clients have fewer examples than {batch}; with "
            "clients.drop_remainder they train on none, and their updates are refused"
        )
    return (
        f"{idle} of {federation.data.clients} clients have no examples to train on; "
        "whenever they are chosen their updates are refused"
    )


def capped_claims(federation: Federation) -> str | None:
    """A warning if clients claim more examples than they may count for, and that makes a difference."""
    f, cap = federation, federation.server.claim_cap
    by_examples = f.rules.weighting == "examples" or f.server.selection == "weighted"
    if cap is None or not (by_examples or {"weighted-mean", "positives"} & set(f.rules.rows.values())):
        return None
    claims = f.clients.schedule.usable(f.data.sizes)
    above = int(np.count_nonzero(claims > cap))
    if above == 0:
        return None
    return (
        f"{above} of {f.data.clients} clients claim more than {cap:,} examples "
        f"(the most: {int(claims.max()):,}) and count for {cap:,}; "
        "with server.claim_quantile = 1 all that they claim counts"
    )


def unguarded(federation: Federation) -> str | None:
    """A warning if a deployment cannot have its default guard against hostile clients."""
    f, drift = federation, federation.clients.drift
    if f.server.robust is not None or not f.executor.clients_elsewhere:
        return None
    if drift is None or not drift.keeps_state:
        return None  # the config asks for plain means
    return f"clients.drift = {drift.name!r}: its control takes what clients send; no update is limited"


def named_to_the_server(federation: Federation) -> str | None:
    """A warning if clients name to the server what noise against it cannot hide."""
    f, privacy = federation, federation.clients.privacy
    if privacy is None or privacy.on_the_server:
        return None
    told = []
    if f.method.takes_histories and f.method.names_own_rows:
        told.append(("items", 'method.loss_form = "global_softmax" requests all'))
    elif f.method.has_class_table and f.method.names_own_rows:
        told.append(("classes", 'method.name = "fedavg" requests all'))
    if f.data.features:
        told.append(("features", 'model.encoder = "mlp" requests none'))
    if not told:
        return None
    what = " and ".join(name for name, _ in told)
    return (
        f"[privacy]: by the rows that they request clients name the {what} that they have to the "
        f"server, whatever the noise: {'; '.join(remedy for _, remedy in told)}"
    )


def wide_noise(federation: Federation) -> str | None:
    """A warning if noise is added for very many features, of which an example has few."""
    f, shape = federation, DataShape.of(federation.data)
    wide = shape.image is None and (shape.features or 0) >= WIDE
    if f.clients.privacy is None or not wide or f.data.features:
        return None
    return (
        f"[privacy]: the first layer has weights for {shape.features:,} features, and all get noise; "
        "data.hash_features = 4096 makes them fewer (of texts: data.source.width)"
    )
