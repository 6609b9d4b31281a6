"""In which section a key stands, for those who name it alone: `lr` is `clients.lr` or `server.lr`."""

from __future__ import annotations

from typing import Any, get_args

from pydantic import BaseModel

NEAREST = ("", "clients", "method", "model", "data", "eval", "server", "run", "privacy", "deploy")


def places_of(key: str) -> list[str]:
    """Every dotted name that ends in this key, what people change most often first.

    >>> places_of("lr")
    ['clients.lr', 'server.lr']
    >>> places_of("rounds"), places_of("local-steps")
    (['rounds'], ['clients.local_steps'])
    >>> places_of("learning")
    []
    """
    from spreadout.config.experiment import Experiment
    from spreadout.methods import METHODS

    name = key.replace("-", "_")
    sections: dict[str, set[str]] = {"": set(Experiment.model_fields) - {"chosen"}}
    for section, field in Experiment.model_fields.items():
        sections[section] = {n for one in _sections(field.annotation) for n in one.model_fields}
    sections["method"] = {n for method in METHODS.parts() for n in method.model_fields} - {"name"}
    places = [section for section in sections if name in sections[section]]
    places.sort(key=lambda section: NEAREST.index(section) if section in NEAREST else len(NEAREST))
    return [f"{section}.{name}" if section else name for section in places]


def _sections(annotation: Any) -> list[type[BaseModel]]:
    """The sections among the types a key may have."""
    inner = get_args(annotation)
    if inner:
        return [found for part in inner for found in _sections(part)]
    is_section = isinstance(annotation, type) and issubclass(annotation, BaseModel)
    return [annotation] if is_section else []
