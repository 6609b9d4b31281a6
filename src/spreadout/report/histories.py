"""What the page's script draws curves, bytes and maps from: the histories of all arms as one value."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

from spreadout.core.types import Record
from spreadout.evaluation.metrics import described
from spreadout.runs.arms import Arm, shared_references

# Beside metrics: what a record of an evaluation may have, its title, and the range it is seen in.
RECORDED: dict[str, tuple[str, tuple[float | None, float | None]]] = {
    "loss": ("training loss", (0, None)),
    "max_cosine": ("largest cosine of classes", (None, 1)),
    "mean_cosine": ("mean cosine of classes", (None, 1)),
    "effective_rank": ("effective rank of classes", (1, None)),
    "own_distance": ("distance of an example to its class", (0, None)),
    "error_bound": ("error bound of FedAwS, Prop. 1", (0, 1)),
    "weights_norm": ("norm of the encoder's weights", (0, None)),
    "epsilon": ("ε spent", (0, None)),
    "prior": ("weight τ of the prior over classes", (0, None)),
    "spreadout_rises": ("spreadout steps that raised their objective", (0, 1)),
}
OF_CLASSES = ("max_cosine", "mean_cosine", "effective_rank")  # where a collapse shows


def runs_data(arms: Sequence[Arm]) -> dict[str, Any]:
    """Arms with their histories, quantities with their axes; numbers as they were recorded."""
    return {"arms": [_arm(arm, i) for i, arm in enumerate(arms)], "quantities": quantities(arms)}


def quantities(arms: Sequence[Arm]) -> list[dict[str, Any]]:
    """Everything that some arm has a value of: metrics first, in the order of the arms."""
    names = list(dict.fromkeys(name for arm in arms for name in arm.metric_names))
    references = shared_references(arms)
    found = []
    for name in names:
        metric, values = described(name), list(_values(arms, name))
        if values:
            beside: list[dict[str, Any]] = [
                {"label": label, "value": value}
                for label, metrics in references.items()
                if name in metrics and (value := _number(metrics[name]["mean"])) is not None
            ]
            # Where a metric has no end, a poor reference would press the curves together.
            shown = [one["value"] for one in beside if None not in metric.range]
            found.append(
                {
                    "name": name,
                    "title": metric.title,
                    "axis": metric.axis([*values, *shown]),
                    "references": beside,
                    "lower": metric.better == "lower",
                    "metric": True,
                }
            )
    for name, (title, bounds) in RECORDED.items():
        values = list(_values(arms, name))
        if values:
            axis = _axis(values, *bounds)
            found.append({"name": name, "title": title, "axis": axis, "marks": name in OF_CLASSES})
    return found


def collapse_of(history: Sequence[Record]) -> int | None:
    """The first evaluated round from which on classes had collapsed; None if they have not."""
    later = [record for record in history if record["round"] > 0]
    if not later or not later[-1].get("collapsing"):
        return None
    first = later[-1]
    for record in reversed(later):
        if not record.get("collapsing"):
            break
        first = record
    return int(first["round"])


def _arm(arm: Arm, style: int) -> dict[str, Any]:
    names = [*arm.metric_names, *RECORDED]
    return {
        "label": arm.label,
        "style": style,
        "central": arm.is_central,
        "collapse": collapse_of(arm.histories[0]),
        "seeds": [_seed(history, names) for history in arm.histories],
        "details": _details(arm),
    }


def _details(arm: Arm) -> dict[str, Any] | None:
    """What views of classes and clients are drawn from; the rest is in charts of its own."""
    found = arm.details
    return found and {name: found[name] for name in ("classes", "confused", "clients")}


def _seed(history: Sequence[Record], names: Iterable[str]) -> dict[str, Any]:
    return {
        "round": [record["round"] for record in history],
        "seconds": [record["seconds"] for record in history],
        "down": [record["bytes_down"] for record in history],
        "up": [record["bytes_up"] for record in history],
        "values": {
            name: [_number(record.get(name)) for record in history]
            for name in names
            if any(_number(record.get(name)) is not None for record in history)
        },
    }


def _values(arms: Sequence[Arm], name: str) -> Iterable[float]:
    for arm in arms:
        for history in arm.histories:
            for record in history:
                if (value := _number(record.get(name))) is not None:
                    yield value


def _number(value: Any) -> float | None:
    ok = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    return float(value) if ok else None


def _axis(values: Sequence[float], low: float | None, high: float | None) -> tuple[float, float]:
    """From the end of the range that is known, so that all values lie inside."""
    least, most = min(values), max(values)
    pad = 0.05 * (most - least) or 0.05 * abs(most) or 1.0
    bottom = least - pad if low is None else min(low, least)
    top = most + pad if high is None else max(high, most)
    return min(bottom, 0.0 if high == 1 else bottom), top
