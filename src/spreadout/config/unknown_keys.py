"""What is known of an unknown key of a config: how it is called now, or in which section it stands."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel

from spreadout.config.whereabouts import places_of
from spreadout.core.explained import Location, siblings

# Keys of earlier versions, and what became of them: in a method, whichever of these it has.
RENAMED: dict[str, list[str]] = {
    "method.spreadout": ["spreadout_form", "row_spreadout"],
    "method.rows": ["requests", "sampled_rows"],
    "method.tables": ["hash_tables"],
    "clients.asks_features": ["request_features"],
}


def elsewhere(
    model: type[BaseModel], key: str, location: Location, values: Mapping[str, Any]
) -> str | None:
    """What `core.explained.explain` is to say of an unknown key of a whole config."""
    section, _, name = key.rpartition(".")
    if key in RENAMED:
        here = siblings(model, location, values)
        names = [f"{section}.{new}" for new in RENAMED[key] if new in here]
        names = names or [f"{section}.{new}" for new in RENAMED[key]]
        return f"is called {' or '.join(names)} now"
    if section == "data" and (source := _source_with(name, values)):
        return (
            f"unknown key; it is one of the source: data.source.{name}, or "
            f'data.source = {{name = "{source}", {name} = …}}'
        )
    if places := [place for place in places_of(name) if place != key]:  # the key of another section
        return f"unknown key; did you mean {' or '.join(places)}?"
    return None


def _source_with(key: str, values: Mapping[str, Any]) -> str | None:
    """The source that a config names, if it has this key."""
    from spreadout.data.sources import SOURCES

    section = values.get("data")
    source = section.get("source") if isinstance(section, Mapping) else None
    name = str(source.get("name") if isinstance(source, Mapping) else source)
    known = name in SOURCES and key != "name" and key in SOURCES[name].model_fields
    return name if known else None
