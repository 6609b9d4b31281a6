"""Messages: a server goes on whatever nodes answer, a node answers whatever it is told."""

import pytest

pytest.importorskip("flwr")

from fuzz.grid import TARGETS
from fuzz.target import Target, read_case


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
def test_messages_of_any_kind_are_used_or_refused(target: Target) -> None:
    for path in target.corpus():
        target.run(read_case(path))
    target.short(10)
