"""Messages: a server goes on whatever nodes answer, a node answers whatever it is told."""

import pytest

pytest.importorskip("flwr")

from fuzz.grid import TARGETS
from fuzz.target import Target


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
def test_messages_of_any_kind_are_used_or_refused(target: Target) -> None:
    said = target.short(10)  # raises where the property does not hold
    assert len(said) > len(target.corpus())
    assert all(len(one.splitlines()) == 1 for one in said)
