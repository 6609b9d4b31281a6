"""Sections of a config drawn from their own pydantic fields: choices, ranges, and the ends of ranges."""

from __future__ import annotations

import math
import types
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from annotated_types import Ge, Gt, Le, Lt
from hypothesis import strategies as st
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from spreadout.core.registry import NamedSection

FLOATS = (
    0.0,
    5e-324,
    1e-45,
    1e-30,
    1e-8,
    1e-3,
    0.1,
    0.5,
    0.9999999,
    1.0,
    1.5,
    3.0,
    1e3,
    1e10,
    1e23,
    1e30,
    1e38,
    3.4e38,
    -1.0,
)
WHOLES = (0, 1, 2, 3, 5, 7, 50, 1000, 10**6, 2**31 - 1, 2**31, 2**53, 2**62, 2**63 - 1)


def field_values(field: FieldInfo) -> st.SearchStrategy[Any]:
    return values(field.annotation, field.metadata)


def values(kind: Any, about: Any = ()) -> st.SearchStrategy[Any]:
    """Plain values of a type, within its bounds."""
    origin, inner = get_origin(kind), get_args(kind)
    if origin is Annotated:
        return values(inner[0], [*about, *_unfolded(inner[1:])])
    if origin is Literal:
        return st.sampled_from(inner)
    if origin in (Union, types.UnionType):
        return st.one_of([values(one, about) for one in inner if one is not type(None)])
    if origin is tuple:
        return st.tuples(*(values(one) for one in inner)).map(list)
    if origin is list:
        return st.lists(values(inner[0]), max_size=3)
    if origin is dict:
        return st.just({})
    if kind is bool:
        return st.booleans()
    if kind in (int, float):
        return _numbers(kind, about)
    if kind is Path:
        return st.just(None)
    if isinstance(kind, type) and issubclass(kind, NamedSection):
        return st.sampled_from(kind.registry.parts()).flatmap(section)
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        return section(kind)
    return st.sampled_from(["", "x", "mean"])  # a word


def _unfolded(about: Any) -> list[Any]:
    return [one for a in about for one in (a.metadata if isinstance(a, FieldInfo) else [a])]


def _numbers(kind: type, about: Any) -> st.SearchStrategy[Any]:
    low, high = -math.inf, math.inf
    strict = []
    for bound in about:
        low = bound.ge if isinstance(bound, Ge) else bound.gt if isinstance(bound, Gt) else low
        high = bound.le if isinstance(bound, Le) else bound.lt if isinstance(bound, Lt) else high
        strict += [bound.gt] if isinstance(bound, Gt) else [bound.lt] if isinstance(bound, Lt) else []
    ends = [low, high, 0.5 * (low + high) if math.isfinite(low + high) else 1.0]
    every = [*(WHOLES if kind is int else FLOATS), *(end for end in ends if math.isfinite(end))]
    fit = [kind(v) for v in every if low <= v <= high and v not in strict]
    return st.sampled_from(sorted(set(fit)))


@st.composite
def section(draw: st.DrawFn, kind: type[BaseModel], most: int = 3) -> dict[str, Any]:
    """A section with a few of its keys given."""
    fields = {name: field for name, field in kind.model_fields.items() if name != "name"}
    found: dict[str, Any] = {}
    if issubclass(kind, NamedSection):
        found["name"] = draw(st.sampled_from(sorted(kind.names())))
    some = draw(st.lists(st.sampled_from(sorted(fields)), max_size=most, unique=True)) if fields else []
    needed = [name for name, field in fields.items() if field.is_required()]
    for name in dict.fromkeys([*needed, *some]):
        value = draw(field_values(fields[name]))
        if value is not None:
            found[name] = value
    return found
