"""Keys that would have no effect: an error with the remedy, as what they were meant to do is not done.

A section says by `read_if` which of its keys are read only beside certain values of others. What depends
on another section is below, one component a function. A key counts as set where it differs from its
default and was not chosen for the data.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from spreadout.config.keys import without
from spreadout.core.errors import UserError
from spreadout.core.registry import Section, conditions_of
from spreadout.data.splits import Splits
from spreadout.evaluation.metrics import find_metric
from spreadout.methods.base import Method
from spreadout.models.build import idle_keys as unused_keys

if TYPE_CHECKING:
    from spreadout.config.experiment import Experiment

Found = Iterator[tuple[str, str]]
"""Keys by their dotted names, and why nobody reads them."""


def refuse_idle(e: Experiment, data: Splits | None = None, method: Method | None = None) -> None:
    """Raise an error for the first key that has no effect. method: the one that trains, if not e's."""
    for key, why in idle_keys(e, data, method).items():
        value = _value(e, key)
        shown = value if isinstance(value, str) else repr(value)
        raise UserError(f"{key} = {shown}: has no effect, {why}")


def idle_keys(e: Experiment, data: Splits | None = None, method: Method | None = None) -> dict[str, str]:
    """All keys that are set and that nobody reads, and why."""
    method = method or e.method
    found = dict(_within(e, ""))
    for rule in (_of_method, _of_encoder, _of_cohort, _of_steps, _of_eval, _of_data):
        found |= dict(rule(e, data, method))
    return {key: why for key, why in found.items() if _is_set(e, key)}


def without_inherited(
    values: Mapping[str, Any], given: Mapping[str, Any], read: Callable[[Mapping[str, Any]], Experiment]
) -> dict[str, Any]:
    """Values without the keys that another part of them leaves idle, unless they are among those given.

    given: what was changed. A change of method, encoder or optimizer takes back what was meant for the
    old one; what it sets itself stays, and is refused if nobody reads it. read: makes an experiment.
    """
    try:
        idle = idle_keys(read(values))
    except (ValueError, UserError):  # reported by whoever makes an experiment of them
        return dict(values)
    return without(values, {key for key in idle if not _has(given, key)})


def _within(section: Section, prefix: str) -> Found:
    """Keys that the values of others in the same section leave idle, in all sections."""
    for name in type(section).model_fields:
        value = getattr(section, name)
        if isinstance(value, Section):
            yield from _within(value, f"{prefix}{name}.")
        elif isinstance(value, Mapping):
            for key, inner in value.items():
                if isinstance(inner, Section):
                    yield from _within(inner, f"{prefix}{name}.{key}.")
    for key, any_of in conditions_of(type(section)).items():
        if not any(all(getattr(section, k) in v for k, v in all_of.items()) for all_of in any_of):
            other, values = next(iter(any_of[0].items()))
            now, wanted = getattr(section, other), " or ".join(map(_shown, values))
            yield f"{prefix}{key}", f"as {prefix}{other} is {_shown(now)}: it is for {wanted}"


def _of_method(e: Experiment, data: Splits | None, method: Method) -> Found:
    for key in ("clients.row_lr", "clients.row_warmup"):
        if not method.has_class_table:
            yield key, f"as method.name = {method.name!r} has no class rows: leave it out"
        elif "classes" in method.fixed_tables():
            yield key, f"as method.name = {method.name!r} keeps class rows fixed: leave it out"
    if method.has_class_table and method.row_merge().get("classes") == "replace":
        for key in e.server.tables.get("classes", Section()).model_fields_set:
            yield (
                f"server.tables.classes.{key}",
                "as rows are replaced and not averaged: set method.merge, or leave it out",
            )


def _of_encoder(e: Experiment, data: Splits | None, method: Method) -> Found:
    known = "encoder" in e.model.model_fields_set or data is not None
    if known and "encoder" not in e.own:
        for key in unused_keys(e.model.encoder):
            why = f"as model.encoder = {e.model.encoder!r} has no use for it: leave it out"
            yield f"model.{key}", why
    if known and not e.model.features_are_rows:
        why = f"as model.encoder = {e.model.encoder!r} has no feature rows: it is for a lookup"
        yield "clients.input_lr", why
        yield "clients.request_features", why
    if data is not None and "x" not in data.train.columns:
        for key in ("input_noise", "input_dropout"):
            yield f"clients.{key}", "as the inputs are histories, which have no numbers: leave it out"


def _of_cohort(e: Experiment, data: Splits | None, method: Method) -> Found:
    if method.is_centralized:
        for key in ("per_round", "selection"):
            yield (
                f"clients.{key}",
                f"as method.name = {method.name!r} has all examples in one place: leave it out",
            )
    if e.clients.per_round == "all" and e.clients.selection in ("weighted", "by_size", "fixed"):
        yield "clients.selection", 'as clients.per_round = "all" takes everybody: set it to a number'


def _of_steps(e: Experiment, data: Splits | None, method: Method) -> Found:
    if e.clients.batch == "full":
        yield "clients.drop_remainder", 'as clients.batch = "full" has no remainder: leave it out'


def _of_eval(e: Experiment, data: Splits | None, method: Method) -> Found:
    names = [find_metric(name).name for name in e.eval.metrics]
    if not any("frequent" in name for name in names):
        yield "eval.frequent", "as no metric asks for frequent classes: add P@1 frequent to eval.metrics"
    if not any(name.startswith("PSP") for name in names):
        yield "eval.propensity", "as no metric uses propensities: add PSP@1 to eval.metrics"


def _of_data(e: Experiment, data: Splits | None, method: Method) -> Found:
    if not e.data.validation_fraction:
        yield "data.validation_seed", "as data.validation_fraction is 0: set that too"
    if data is not None and data.published_test:
        for key in ("test_fraction", "split_seed"):
            yield f"data.{key}", f"as {data.name} has a test part of its own: leave it out"


def _is_set(e: Experiment, key: str) -> bool:
    """Whether a key differs from its default, and that is not a choice of ours."""
    if key in (e.chosen or []):
        return False
    section: Any = e
    *path, last = key.split(".")
    for part in path:
        section = section[part] if isinstance(section, Mapping) else getattr(section, part)
    field = type(section).model_fields.get(last)
    if field is None:
        return False
    default = field.get_default(call_default_factory=True)
    if path == ["data"]:
        default = e.data.source.data_defaults.get(last, default)
    return bool(getattr(section, last) != default)


def _value(e: Experiment, key: str) -> Any:
    found: Any = e
    for part in key.split("."):
        found = found[part] if isinstance(found, Mapping) else getattr(found, part)
    return getattr(found, "name", found)


def _has(given: Mapping[str, Any], key: str) -> bool:
    here: Any = given
    for part in key.split("."):
        if not isinstance(here, Mapping) or part not in here:
            return False
        here = here[part]
    return True


def _shown(value: Any) -> str:
    return f'"{value}"' if isinstance(value, str) else str(value)
