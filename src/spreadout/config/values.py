"""A config as plain values, before it is an `Experiment`: read from TOML, changed by overrides."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from spreadout.config.keys import ALTERNATIVES, without
from spreadout.config.presets import preset_text
from spreadout.core.errors import UserError
from spreadout.data.sources.python import READS
from spreadout.methods import METHODS
from spreadout.models.build import idle_keys

CHOSEN_FOR = {"data.source", "data.path", "method.name"}  # what choices follow from
KEPT = ("name", "imports", "seed", "privacy", "run", "deploy")  # of a preset, whatever it is run on
DEEPEST = 16  # sections within sections
NAMED = ("source", "partition", "drift", "robust")  # sections that may be given by their name alone


def imports_of(values: Mapping[str, Any]) -> list[str]:
    """The modules a config names; none where they are not names, which the field's own check reports."""
    named = values.get("imports", [])
    return named if isinstance(named, list) and all(isinstance(name, str) for name in named) else []


def read_toml(source: str | Path) -> dict[str, Any]:
    """The values in a TOML file, or in the preset of this name."""
    path = Path(source)
    if path.suffix.lower() in READS and path.is_file():
        raise UserError(f"{source}: is data and no config; `spreadout init {source}` writes one for it")
    try:
        if not path.exists() and (preset := preset_text(str(source))) is not None:
            return tomllib.loads(preset)
        found = tomllib.loads(path.read_text(encoding="utf-8"))
        refuse_deep(found, str(source))
        return found
    except FileNotFoundError:
        raise UserError(
            f"{source}: no such file, and no preset of this name; `spreadout presets` lists them"
        ) from None
    except IsADirectoryError:
        raise UserError(f"{source}: is a folder, not a config file") from None
    except RecursionError:
        raise UserError(f"{source}: is nested too deeply for a config") from None
    except OSError as error:
        raise UserError(f"{source}: {error.strerror or error}") from None
    except (tomllib.TOMLDecodeError, ValueError) as error:  # ValueError: numbers of thousands of digits
        raise UserError(f"{source}: not valid TOML ({error})") from None


def refuse_deep(values: Mapping[str, Any], origin: str) -> None:
    """Sections in sections in sections: no config has them, and reading them goes down as deep."""
    level: list[Any] = [values]
    for _ in range(DEEPEST):
        sections = [value for value in level if isinstance(value, Mapping | list)]
        level = [v for s in sections for v in (s.values() if isinstance(s, Mapping) else s)]
    if any(isinstance(value, Mapping | list) for value in level):
        raise UserError(f"{origin}: is nested too deeply for a config")


def changes_of(overrides: Iterable[str]) -> dict[str, Any]:
    """`section.key=value` settings as sections."""
    changes: dict[str, Any] = {}
    for override in overrides:
        _put(changes, *parse_override(override))
    return changes


def parse_override(text: str) -> tuple[list[str], Any]:
    """`clients.lr=0.5` → (["clients", "lr"], 0.5); what is no TOML value is taken as a string."""
    if text != text.encode("utf-8", "replace").decode("utf-8"):  # bytes that are no text
        raise UserError(f"override {text[:80]!r}: is not text in UTF-8")
    key, equals, value = text.partition("=")
    path = key.strip().split(".")
    if not equals or not all(path) or len(path) > DEEPEST:
        raise UserError(f"override {text[:80]!r}: write it as section.key=value")
    try:
        found = tomllib.loads(f"value = {value.strip()}")
        refuse_deep(found, f"override {text[:80]!r}")
        return path, found["value"] if found.keys() == {"value"} else value.strip()
    except ValueError:  # no TOML, or a number of thousands of digits
        return path, value.strip()
    except RecursionError:
        raise UserError(f"override {text[:80]!r}: is nested too deeply") from None


def _put(changes: dict[str, Any], path: list[str], value: Any) -> None:
    for part in path[:-1]:
        inner = changes.setdefault(part, {})
        if part in NAMED and isinstance(inner, str):
            inner = changes[part] = {"name": inner}
        if not isinstance(inner, dict):
            raise UserError(f"override {'.'.join(path)}: {part} = {inner!r} is not a section")
        changes = inner
    if path[-1] in NAMED and isinstance(changes.get(path[-1]), dict):
        changes[path[-1]]["name"] = value
    else:
        changes[path[-1]] = value


def reopened(values: Mapping[str, Any], changes: Mapping[str, Any]) -> Mapping[str, Any]:
    """A complete config before it is changed: what the user sets now was not chosen for the data.

    If data or method change, what was chosen for the old ones is open again.
    """
    chosen = values.get("chosen")
    if not isinstance(chosen, list) or not all(isinstance(key, str) for key in chosen):
        return values  # the field's own check reports it
    given = {name for name, change in changes.items() if not isinstance(change, Mapping)}
    for name, change in changes.items():
        given |= {f"{name}.{key}" for key in change} if isinstance(change, Mapping) else set()
    if given.isdisjoint(CHOSEN_FOR):
        kept = [key for key in chosen if key not in given and key.rpartition(".")[0] not in given]
        return {**values, "chosen": kept}
    if not chosen:
        return values
    rest = without(values, {*chosen, "chosen"})
    section = rest.get("method")
    if "method.name" in given and isinstance(section, Mapping) and section.get("name") in METHODS:
        fields = METHODS[section["name"]].model_fields
        defaults = {n for n, value in section.items() if n in fields and value == fields[n].default}
        rest["method"] = without(section, defaults - {"name"})  # the run wrote them out, nobody set them
    return rest


def naming_no_other(values: Mapping[str, Any], changes: Mapping[str, Any]) -> Mapping[str, Any]:
    """The values of a file: if neither they nor the changes name its data, no other data is meant."""
    section, change = values.get("data", {}), changes.get("data", {})
    named = [part for part in (section, change) if not isinstance(part, Mapping) or "source" in part]
    if named or "variants" in values:
        return values
    return {**values, "data": {"source": "python", **section}}


def rechosen(values: Mapping[str, Any], changes: Mapping[str, Any]) -> Mapping[str, Any]:
    """A preset whose data or method is changed: what it had set for the old ones is chosen anew."""
    other_data = _name_of(changes, "data", "source") not in (None, _name_of(values, "data", "source"))
    other_method = _name_of(changes, "method", "name") not in (None, _name_of(values, "method", "name"))
    if not (other_data or other_method) or "variants" in values:
        return values
    kept = {key: values[key] for key in KEPT if key in values}
    if not other_data and "data" in values:
        kept["data"] = without(values["data"], {"validation_fraction"})
    if not other_method and "method" in values:
        kept["method"] = {"name": _name_of(values, "method", "name")}
    return kept


def _name_of(values: Mapping[str, Any], section: str, key: str) -> Any:
    inside = values.get(section)
    found = inside.get(key) if isinstance(inside, Mapping) else None
    return found.get("name") if isinstance(found, Mapping) else found


def _other_source(before: Any, after: Any) -> bool:
    """Whether another source is named; one that only gets another option keeps its path."""
    named = [one.get("name") if isinstance(one, Mapping) else one for one in (before, after)]
    return named[1] is not None and named[0] != named[1]


def overlay(values: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """The values with the changes on top, section by section.

    A change of `method.name` drops keys of the old method that the new one does not have, a change of
    `model.encoder` those that the new one has no use for.
    """
    result = {k: overlay(v, {}) if isinstance(v, Mapping) else v for k, v in values.items()}
    for key, change in changes.items():
        if not isinstance(change, Mapping):
            result[key] = change
            continue
        section = result.get(key, {})
        if key in NAMED:
            section = {"name": section} if isinstance(section, str) else section
            if "name" in change and change["name"] != section.get("name"):
                section = {}  # another one: the old one's keys are not its keys
        if not isinstance(section, Mapping):
            raise UserError(f"{key} = {section!r} is not a section: it has no keys to override")
        if key == "method" and change.get("name") in METHODS:
            known = METHODS[change["name"]].model_fields
            others = {name for method in METHODS.parts() for name in method.model_fields} - set(known)
            section = {name: value for name, value in section.items() if name not in others}
        if key == "model" and change.get("encoder", section.get("encoder")) != section.get("encoder"):
            idle = idle_keys(str(change["encoder"]))
            section = {name: value for name, value in section.items() if name not in idle}
        if key == "data" and _other_source(section.get("source"), change.get("source")):
            section = {name: value for name, value in section.items() if name != "path"}  # the old one's
        for one, other in ALTERNATIVES.get(key, []):
            if (one in change) != (other in change):  # giving one of them takes the other back
                section = {n: v for n, v in section.items() if n not in (one, other)}
        result[key] = overlay(section, change)
    return result
