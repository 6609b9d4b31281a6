"""What a sweep tries, and what makes all of its trials be judged alike: by validation data.

A value that decides how a trial is judged cannot be tried: the highest score would be of the easiest
examples, or of the test part, which then tests nothing.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from spreadout.config.experiment import Experiment
from spreadout.config.values import changes_of, parse_override, read_toml
from spreadout.core.errors import UserError

TESTED = (
    'eval.split = "test": settings that are chosen by the test part are not tested by it; leave '
    "it out, and run best.toml with eval.split=test once, at the end"
)
MEASURE = (  # keys that say what is measured, on which examples, and by which draws
    "seed",
    *(f"eval.{key}" for key in ("split", "metrics", "best_by", "frequent", "propensity")),
    *(f"data.{key}" for key in ("source", "path", "hold_out", "test_fraction", "split_seed")),
    *(f"data.{key}" for key in ("validation_fraction", "validation_seed")),
)
KEPT = ("metrics", "best_by", "frequent", "propensity")  # of [eval], whatever of a preset is chosen anew


def choices_of(values: Sequence[str]) -> tuple[tuple[str, ...], dict[str, tuple[str, ...]]]:
    """`key=a` settings of all trials, and what is tried of each key."""
    fixed, tried = [], {}
    for value in values:
        key, choices = _choices(value)
        if len(choices) > 1:
            tried[key] = tuple(choices)
        else:
            fixed.append(f"{key}={choices[0]}")
    if not tried:
        raise UserError("sweep: nothing to try; write values with commas, such as clients.lr=0.1,0.3")
    return tuple(fixed), tried


def one_measure(config: str, fixed: Sequence[str], tried: Mapping[str, Sequence[str]]) -> list[str]:
    """Settings that make all trials be judged alike, on validation data."""
    if "variants" in read_toml(config):
        raise UserError(f"{config}: is a suite; sweep one config")
    given = changes_of(fixed)
    for key, values in tried.items():
        if key == "eval.split" and "test" in values:
            raise UserError(TESTED)
        if any(key == one or key.startswith(f"{one}.") for one in MEASURE):
            raise UserError(
                f"{key} = {','.join(values)}: says how trials are judged, so their scores could not "
                "be compared; give it one value"
            )
    if _given(given, "eval", "split") == "test":
        raise UserError(TESTED)
    # Loaded as it will be, but for the part it is judged on: that may not be held out yet.
    whole = Experiment.load(config, [*fixed, "eval.split=test"])
    more = [] if _given(given, "eval", "split") else ["eval.split=validation"]
    if _given(given, "data", "validation_fraction") is None:
        more.append(f"data.validation_fraction={whole.data.validation_fraction or 0.1}")
    set_too = whole.eval.model_dump(mode="json", include=set(KEPT), exclude_unset=True)
    return more + [f"eval.{key}={json.dumps(value)}" for key, value in set_too.items()]


def _given(given: Mapping[str, object], section: str, key: str) -> object:
    inside = given.get(section)
    return inside.get(key) if isinstance(inside, Mapping) else None


def _choices(text: str) -> tuple[str, list[str]]:
    """`key=a,b` → key and its values, each once; a value that is a list is one."""
    key, equals, rest = text.partition("=")
    if not equals or not rest.strip():
        parse_override(text)  # says how it is written
        raise UserError(f"sweep: {text!r} has no value; write section.key=a,b,c")
    if rest.strip().startswith(("[", "{", '"', "'")):
        return key.strip(), [rest.strip()]
    found: dict[tuple[bool, Any], str] = {}
    for part in filter(None, map(str.strip, rest.split(","))):
        value = parse_override(f"{key}={part}")[1]
        found.setdefault((isinstance(value, bool), value), part)  # 0.1 and 0.10 are one trial
    return key.strip(), list(found.values())
