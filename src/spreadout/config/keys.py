"""Keys of a config by their dotted names: which of them the user has set, and which are open.

An open key is one that was left out, or set to "auto". `sound.py` fills it when the data is there.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel

if TYPE_CHECKING:
    from spreadout.config.experiment import Experiment

AUTO = "auto"
DECIDED = frozenset(  # what follows from the data and the method: each may be "auto"
    {
        "rounds",
        "data.partition",
        "data.partition.clients",
        "data.targets",
        "data.validation_fraction",
        "model.encoder",
        "model.hidden",
        "model.dim",
        "model.input_scaling",
        "model.pooling",
        "model.width",
        "method.buckets",
        "method.k",
        "method.loss_form",
        "method.negatives",
        "method.prior",
        "method.scale",
        "method.spreadout_form",
        "clients.per_round",
        "clients.selection",
        "clients.batch",
        "clients.optimizer",
        "clients.lr",
        "clients.row_lr",
        "clients.lr_decay",
        "clients.beta2",
        "clients.eps",
        "clients.input_dropout",
        "clients.image_shift",
        "clients.image_flip",
        "clients.local_steps",
        "clients.local_epochs",
        "server.optimizer",
        "server.lr",
        "server.eps",
        "server.lr_decay",
        "eval.split",
        "eval.metrics",
        "eval.every",
        "eval.patience",
        "eval.keep",
    }
)
VALUES_AUTO = frozenset({"method.prior"})  # whose "auto" is a value of its own: found while training
ALTERNATIVES = {  # keys of a section of which one at most is given
    "clients": [("local_steps", "local_epochs")],
    "method": [("negatives", "sampled_rows")],
}


def without_auto(values: Mapping[str, Any]) -> dict[str, Any]:
    """Plain values without the keys that are "auto": left out, they are chosen."""
    return without(values, {key for key in DECIDED - VALUES_AUTO if _said(values, key) == AUTO})


def has(experiment: Experiment, key: str) -> bool:
    """Whether there is such a key: methods differ in theirs."""
    section, last = _place(experiment, key)
    return last in type(section).model_fields


def is_open(experiment: Experiment, key: str) -> bool:
    """Whether the user has set neither the key nor one that is given in its place."""
    section, last = _place(experiment, key)
    if not has(experiment, key) or last in section.model_fields_set:
        return False
    pairs = ALTERNATIVES.get(key.rpartition(".")[0], [])
    others = [other for pair in pairs if last in pair for other in pair if other != last]
    return not any(getattr(section, other, None) is not None for other in others)


def value_of(experiment: Experiment, key: str) -> Any:
    section, last = _place(experiment, key)
    return getattr(section, last)


def with_value(experiment: Experiment, key: str, value: Any) -> Experiment:
    """The same with one key set."""
    above, _, last = key.rpartition(".")
    if not above:
        return experiment.model_copy(update={last: value})
    section, _ = _place(experiment, key)
    return with_value(experiment, above, section.model_copy(update={last: value}))


def without(values: Mapping[str, Any], keys: Collection[str]) -> dict[str, Any]:
    """Plain values without these keys."""
    return {
        name: without(value, {key.partition(".")[2] for key in keys if key.startswith(f"{name}.")})
        if isinstance(value, Mapping)
        else value
        for name, value in values.items()
        if name not in keys
    }


def _place(experiment: Experiment, key: str) -> tuple[BaseModel, str]:
    *path, last = key.split(".")
    section: BaseModel = experiment
    for name in path:
        section = getattr(section, name)
    return section, last


def _said(values: Mapping[str, Any], key: str) -> Any:
    """What plain values have under a dotted name; None where there is no such section or key."""
    found: Any = values
    for name in key.split("."):
        found = found.get(name) if isinstance(found, Mapping) else None
    return found
