"""One line for a person out of a validation error: where it is, the key, the value, what to do."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, get_args

from pydantic import BaseModel, ValidationError

from spreadout.core.registry import NamedSection, kinds_of, near

_BOUNDS = {
    "greater_than": ("gt", "must be above"),
    "greater_than_equal": ("ge", "must be at least"),
    "less_than": ("lt", "must be below"),
    "less_than_equal": ("le", "must be at most"),
}
_KINDS = {
    "int": "a whole number",
    "float": "a number",
    "finite": "a finite number",
    "bool": "true or false",
    "string": "a string",
    "list": "a list",
    "dict": "a section",
    "model": "a section",
    "path": "a path",
}
MOST_NAMED = 8  # in one line

Location = Sequence[int | str]
Elsewhere = Callable[[type[BaseModel], str, Location, Mapping[str, Any]], str | None]
"""What is known of an unknown key, where it is in a whole config: its model, the key, its place, all
values."""


def explain(
    error: ValidationError,
    origin: str,
    model: type[BaseModel],
    values: Mapping[str, Any],
    changes: Mapping[str, Any] | None = None,
    elsewhere: Elsewhere | None = None,
) -> str:
    """The first problem as `origin: key = value: remedy`; how many more there are, if any.

    changes: values that overrides have set; a problem of one of these is said of the override.
    elsewhere: asked first of an unknown key.
    """
    problems: dict[str, list[Any]] = {}
    for found in error.errors():
        problems.setdefault(_key(found["loc"], values), []).append(found)
    key, reports = next(iter(problems.items()))
    more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
    if len(reports) > 1:  # a field that takes several types reports once for each
        said = f"{key} = {reports[0]['input']!r}: must be {_any_of(reports)}"
    else:
        said = _describe(key, reports[0], model, values, elsewhere)
    named = said.partition(" ")[0].rstrip(":")
    where = "override " if _is_set_in(changes or {}, named.split(".")) else f"{origin}: "
    return f"{where}{said}{more}"


def _is_set_in(changes: Mapping[str, Any], path: Sequence[str]) -> bool:
    """Whether overrides have set this very key, or the section it is in by one value."""
    here: Any = changes
    for step in path:
        if not isinstance(here, Mapping):
            return True
        if step not in here:
            return False
        here = here[step]
    return not isinstance(here, Mapping)


def _describe(
    key: str,
    found: Any,
    model: type[BaseModel],
    values: Mapping[str, Any],
    elsewhere: Elsewhere | None,
) -> str:
    kind, value, context = found["type"], found["input"], found.get("ctx", {})
    if kind == "extra_forbidden":
        if elsewhere is not None and (said := elsewhere(model, key, found["loc"], values)):
            return f"{key}: {said}"
        here = siblings(model, found["loc"], values)
        if others := _others_with(key.rpartition(".")[2], model, found["loc"], values):
            return f"{key}: unknown key; it is one of {_listed(others)}. Known: {', '.join(here)}"
        return f"{key}: unknown key{near(key.rpartition('.')[2], here)}"
    if kind == "missing":
        return f"{key}: is required"
    if kind == "union_tag_invalid":
        known = [tag.strip(" '") for tag in str(context["expected_tags"]).split(",")]
        return f"{key} = {context['tag']!r}: unknown{near(str(context['tag']), known)}"
    if kind == "unknown_name":
        name = f"{key}.name" if key == "method" else key
        return f"{name} = {context['name']!r}: unknown{near(str(context['name']), context['known'])}"
    if kind == "name_missing":
        return f"{key}.name: is required"
    if kind == "literal_error":
        expected = str(context["expected"]).replace(" or ", ",")
        known = [choice.strip(" '") for choice in expected.split(",")]
        return f"{key} = {value!r}: unknown{near(str(value), known)}"
    if kind in _BOUNDS:
        name, words = _BOUNDS[kind]
        return f"{key} = {value!r}: {words} {context[name]:g}"
    if kind == "string_pattern_mismatch":
        return f"{key} = {value!r}: may have letters, digits, dots, dashes and underscores only"
    if kind == "finite_number":
        return f"{key} = {value!r}: must be finite"
    if kind == "too_short":
        return f"{key} = {value!r}: must have at least {context['min_length']} entries"
    if kind == "value_error":
        reason = str(context["error"])
        if key and reason.partition(":")[0].isidentifier():  # it names a key of the section it is about
            return f"{key}.{reason}"
        return f"{key} = {value!r}: {reason}" if key and not isinstance(value, dict) else reason
    if kind == "list_type" and isinstance(value, str):
        return f"{key} = {value!r}: must be a list: [{json.dumps(value, ensure_ascii=False)}]"
    if kind.split("_")[0] in _KINDS:
        return f"{key} = {value!r}: must be {_KINDS[kind.split('_')[0]]}"
    return f"{key} = {value!r}: {found['msg'].lower()}"


def _any_of(problems: Sequence[Any]) -> str:
    """ "a whole number or 'all'" for a field that takes either."""
    words = []
    for found in problems:
        kind, context = found["type"].split("_")[0], found.get("ctx", {})
        if kind == "literal":
            words.append(context["expected"])
        elif kind == "greater":
            words += [f"above {context['gt']:g}" if "gt" in context else f"at least {context['ge']:g}"]
        else:
            words.append(_KINDS.get(kind, found["msg"]))
    return " or ".join(dict.fromkeys(words))


def _key(location: Location, values: Mapping[str, Any]) -> str:
    """The dotted key as the user wrote it: without the method's name and the tried types."""
    parts: list[str] = []
    here: Any = values
    for step in location:
        if isinstance(here, str) and parts[-1:] in (["source"], ["partition"], ["method"]):
            here = {"name": here, step: None}  # a section given by its name alone
        if isinstance(step, str) and isinstance(here, Mapping) and step not in here:
            tried = step in _KINDS or step.startswith(("literal", "function"))
            if tried or here.get("name") == step:
                continue
        if isinstance(step, str) and not isinstance(here, Mapping):
            continue
        parts.append(str(step))
        here = here.get(step) if isinstance(here, Mapping) else None
    return ".".join(parts)


def siblings(model: type[BaseModel], location: Location, values: Mapping[str, Any]) -> list[str]:
    """The known keys of the section in which an unknown one was found."""
    section = _section(model, location, values)
    found = [c for c in kinds_of(section) if hasattr(c, "model_fields")]
    return sorted({name for c in found for name in c.model_fields})


def _others_with(
    key: str, model: type[BaseModel], location: Location, values: Mapping[str, Any]
) -> list[str]:
    """Beside the method (or source, or …) that a section names: those that do have this key."""
    section = _section(model, location, values)
    if not (isinstance(section, type) and issubclass(section, NamedSection)):
        return []
    parts = section.registry.parts()
    return sorted({name for part in parts if key in part.model_fields for name in part.names()})


def _listed(names: Sequence[str]) -> str:
    """As in a sentence; of many, the first."""
    *most, last = [*names[:MOST_NAMED], "others"] if len(names) > MOST_NAMED else names
    return f"{', '.join(most)} and {last}" if most else last


def _section(model: type[BaseModel], location: Location, values: Mapping[str, Any]) -> Any:
    """The type of the section in which a key was found."""
    section: Any = model
    here: Any = values
    for step in location[:-1]:
        fields = getattr(section, "model_fields", {})
        here = here.get(step, here) if isinstance(here, Mapping) else here
        if step in fields:
            section = fields[step].annotation
        else:  # a section by its name, or a table's optimiser
            tagged = [c for c in kinds_of(section) if step in _tags(c)]
            section = tagged[0] if tagged else (kinds_of(section) or [section])[-1]
        named = [c for c in kinds_of(section) if isinstance(c, type) and issubclass(c, NamedSection)]
        if named:
            section = named[0]
            name = str(here.get("name") if isinstance(here, Mapping) else here)
            if name in section.registry:
                section = section.registry[name]
    return section


def _tags(cls: Any) -> tuple[Any, ...]:
    """The names a section's class goes by."""
    fields = getattr(cls, "model_fields", {})
    return get_args(fields["name"].annotation) if "name" in fields else ()
