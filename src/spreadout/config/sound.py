"""Data and method are enough: what a config leaves open follows from them.

A key that the user has not set is open. When an experiment meets its data, every open key that the
decisions in `choices.py` and `rates.py` know is set, and `chosen` lists which. An experiment with
`chosen` is complete and is left as it is. The `config.toml` of a run is one: it shows what was chosen,
and it alone gives the same run again.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

from spreadout.config import choices
from spreadout.config.experiment import Experiment
from spreadout.config.keys import DECIDED, has, is_open, value_of, with_value, without
from spreadout.config.rates import OF_SGD, rate_alone, rates
from spreadout.core.errors import UserError
from spreadout.core.registry import NamedSection
from spreadout.data.load import DataConfig, load_data, read
from spreadout.data.sources.base import RawDataset
from spreadout.data.sources.python import GivenInPython
from spreadout.data.splits import Splits
from spreadout.methods.base import Method

Decision = Callable[[Experiment, Splits], Mapping[str, Any]]
"""Values of keys, by their dotted names; those that are not open are ignored."""
Held = dict[tuple[DataConfig, bool], Splits]
"""Data that was loaded before, and whether for a run with `[privacy]`: those are others."""

DECISIONS: tuple[Decision, ...] = (  # each sees what those before it have chosen
    choices.encoder,
    choices.scaling,
    choices.objective,
    choices.within_classes,
    choices.augmentation,
    choices.cohort,
    choices.local_work,
    choices.length,
    choices.metrics,
    choices.evaluations,
    rates,
)


def prepared(
    experiment: Experiment,
    data: Splits | None = None,
    *,
    method: Method | None = None,
    own_encoder: bool = False,
    held: Held | None = None,
) -> tuple[Experiment, Splits]:
    """The experiment with nothing left open, and its data.

    data, method, own_encoder: parts given in Python. Of those nothing is chosen, but the rest follows
    from them. held: data that was loaded before, and what is loaded now.
    """
    given = experiment.method
    if method is not None:
        experiment = experiment.model_copy(update={"method": method})
    own = [("data", data), ("model", own_encoder or None), ("method", method)]
    closed = {section for section, part in own if part is not None}
    first: list[str] = []
    if data is None:
        experiment, first, data = _loaded(experiment, closed, {} if held is None else held)
    complete = sound(experiment, data, closed)
    if experiment.chosen is None:
        complete = complete.model_copy(update={"chosen": [*first, *(complete.chosen or [])]})
    return (complete if method is None else complete.model_copy(update={"method": given})), data


def data_of(experiment: Experiment, found: RawDataset | None = None) -> Splits:
    """The data of a config that leaves nothing of them open; found: what `read` gave of them."""
    return load_data(experiment.data, experiment.seed, found, private=experiment.privacy is not None)


def sound(experiment: Experiment, splits: Splits, closed: Collection[str] = ()) -> Experiment:
    """The experiment with every open key set that follows from its data and its method.

    closed: sections of which nothing is chosen.
    """
    if experiment.chosen is not None:
        return experiment
    chosen: list[str] = []
    for decide in DECISIONS:
        experiment, more = _filled(experiment, decide(experiment, splits), closed)
        chosen += more
    return experiment.model_copy(update={"chosen": chosen})


def usual_rounds(experiment: Experiment, splits: Splits) -> int | None:
    """The rounds that would have been chosen, where they were set and local work was chosen for them."""
    chosen = set(experiment.chosen or [])
    if "rounds" in chosen or chosen.isdisjoint({"clients.local_steps", "clients.local_epochs"}):
        return None
    if not splits.train.clients or not splits.train.examples:  # a deployment's server has seen none
        return None
    return int(choices.length(experiment, splits)["rounds"])


def settled(experiment: Experiment) -> Experiment:
    """The experiment with the plain defaults in its open keys: where nobody can look at all data."""
    if experiment.chosen is not None:
        return experiment
    if idle := experiment.model.idle(experiment.model.encoder):
        raise UserError(idle)
    return experiment.model_copy(update={"chosen": []})


def announcement(experiment: Experiment) -> str | None:
    """What was chosen, in one line; None if nothing was."""
    if not experiment.chosen:
        return None
    kept = ""
    if rate_alone(experiment) and not experiment.method.is_centralized:
        (first, *_) = sorted(OF_SGD & experiment.server.model_fields_set)
        kept = f"; as server.{first} is set, server.optimizer stays sgd: set both"
    return (
        "chosen from the data: "
        + ", ".join(
            f"{key.removeprefix('model.').removeprefix('data.')} = {_shown(value_of(experiment, key))}"
            for key in experiment.chosen
            if has(experiment, key)
        )
        + kept
    )


def asks_the_same(experiment: Experiment, complete: Experiment) -> bool:
    """Whether a complete experiment is this one with its open keys filled."""
    filled = {key for key in complete.chosen or [] if is_open(experiment, key)} | {"chosen", "own"}
    if isinstance(complete.data.source, GivenInPython):  # whatever the config said of them
        filled.add("data.source")
    for key in ("run.memory_gb", "run.precision"):  # runs from before these could be left open say both
        if "auto" in (value_of(experiment, key), value_of(complete, key)):
            filled.add(key)
    return without(experiment.model_dump(), filled) == without(complete.model_dump(), filled)


def _loaded(
    experiment: Experiment, closed: Collection[str], held: Held
) -> tuple[Experiment, list[str], Splits]:
    """The data, by a partition that fits it where none is set: that one is needed first."""
    chosen: list[str] = []
    found = None
    if experiment.chosen is None and any(
        is_open(experiment, key) for key in DECIDED if key.startswith("data.")
    ):
        found = read(experiment.data)
        experiment, chosen = _filled(experiment, choices.division(experiment, found), closed)
    key = (experiment.data, experiment.privacy is not None)
    if key not in held:
        held[key] = data_of(experiment, found)
    return experiment, chosen, held[key]


def _filled(
    experiment: Experiment, values: Mapping[str, Any], closed: Collection[str]
) -> tuple[Experiment, list[str]]:
    """The experiment with those values that belong to open keys, and which keys those are."""
    chosen = []
    for key, value in values.items():
        assert key in DECIDED, f"{key}: is not among the keys that are decided"
        if key.partition(".")[0] not in closed and is_open(experiment, key):
            experiment = with_value(experiment, key, value)
            chosen.append(key)
    return experiment, chosen


def _shown(value: Any) -> str:
    if isinstance(value, NamedSection):
        return value.name
    if isinstance(value, list):
        return " ".join(map(str, value)) or "none"
    return str(value)
