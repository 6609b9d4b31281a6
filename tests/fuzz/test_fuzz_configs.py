"""Configs: read or refused in one line as text, and run for a round or two where they validate."""

import pytest

from fuzz.configs import TARGETS
from fuzz.target import Target

EXAMPLES = {"config-text": 30, "overrides": 60, "config-executed": 30}


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
def test_configs_are_refused_in_one_line_or_run(target: Target) -> None:
    said = target.short(EXAMPLES[target.name])  # raises where the property does not hold
    assert len(said) > len(target.corpus())
    assert all(len(one.splitlines()) == 1 for one in said)
