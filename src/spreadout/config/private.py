"""What `[privacy]` leaves no choice about is filled in: clients count alike, and tell no counts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel

from spreadout.methods import METHODS
from spreadout.methods.base import Method

DEFAULT = "fedaws"  # the method of a config that names none


def with_equal_weights(values: Mapping[str, Any]) -> dict[str, Any]:
    """A config's plain values, with what its `[method]` leaves open under `[privacy]`.

    What the user has set is left as it is: `refuse_unprotected` names it.
    """
    method, privacy = values.get("method", {}), values.get("privacy")
    if privacy is None:
        return dict(values)
    model = privacy.get("model") if isinstance(privacy, Mapping) else getattr(privacy, "model", None)
    values = _with_poisson_cohorts(values) if model == "central" else values
    if isinstance(method, Method):
        fields, given, default = type(method).model_fields, method.model_fields_set, method
    elif isinstance(method, Mapping) and (name := method.get("name", DEFAULT)) in METHODS:
        fields, given = METHODS[name].model_fields, set(method)
        default = METHODS[name].model_construct(name=name)
    else:  # its own check reports it
        return dict(values)
    forced = _forced(default, central=model == "central")
    found = {key: value for key, value in forced.items() if key in fields and key not in given}
    if isinstance(method, Method):
        return {**values, "method": method.model_copy(update=found)}
    return {**values, "method": {"name": DEFAULT, **method, **found}}


def _with_poisson_cohorts(values: Mapping[str, Any]) -> dict[str, Any]:
    """Clients drawn each by itself, where the config does not say how they are drawn."""
    clients = values.get("clients", {})
    if isinstance(clients, Mapping) and "selection" not in clients:
        return {**values, "clients": {**clients, "selection": "poisson"}}
    if isinstance(clients, BaseModel) and "selection" not in clients.model_fields_set:
        return {**values, "clients": clients.model_copy(update={"selection": "poisson"})}
    return dict(values)


def _forced(default: Method, *, central: bool) -> dict[str, Any]:
    forced: dict[str, Any] = {"weighting": "uniform"}
    if default.prior and default.prior_costs_counts:
        forced["prior"] = 0.0
    merge = getattr(default, "merge", None)
    if central and merge != "positives":  # without these FLAG would be another method
        forced["merge"] = "sum"
    elif merge == "weighted-mean":
        forced["merge"] = "mean"
    return forced
