"""What `[privacy]` leaves no choice about is filled in: clients count alike, and tell no counts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from spreadout.methods import METHODS
from spreadout.methods.base import Method

DEFAULT = "fedaws"  # the method of a config that names none


def with_equal_weights(values: Mapping[str, Any]) -> dict[str, Any]:
    """A config's plain values, with what its `[method]` leaves open under `[privacy]`.

    What the user has set is left as it is: `refuse_unprotected` names it.
    """
    method = values.get("method", {})
    if values.get("privacy") is None:
        return dict(values)
    if isinstance(method, Method):
        fields, given, default = type(method).model_fields, method.model_fields_set, method
    elif isinstance(method, Mapping) and (name := method.get("name", DEFAULT)) in METHODS:
        fields, given = METHODS[name].model_fields, set(method)
        default = METHODS[name].model_construct(name=name)
    else:  # its own check reports it
        return dict(values)
    found = {key: value for key, value in _forced(default).items() if key in fields and key not in given}
    if isinstance(method, Method):
        return {**values, "method": method.model_copy(update=found)}
    return {**values, "method": {"name": DEFAULT, **method, **found}}


def _forced(default: Method) -> dict[str, Any]:
    forced: dict[str, Any] = {"weighting": "uniform"}
    if default.prior and default.prior_costs_counts:
        forced["prior"] = 0.0
    if getattr(default, "merge", None) == "weighted-mean":
        forced["merge"] = "mean"
    return forced
