"""Configs: read or refused in one line as text, and run for a round or two where they validate."""

import pytest

from fuzz.configs import TARGETS
from fuzz.target import Target, read_case

EXAMPLES = {"config-text": 30, "overrides": 60, "config-executed": 30}


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
def test_configs_are_refused_in_one_line_or_run(target: Target) -> None:
    for path in target.corpus():
        target.run(read_case(path))
    target.short(EXAMPLES[target.name])
