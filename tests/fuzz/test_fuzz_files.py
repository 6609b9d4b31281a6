"""Files of every format: read as they are, and read or refused in one line however they are changed."""

import pytest

from fuzz.bases import BASES
from fuzz.files import TARGETS, untouched
from fuzz.target import Target


@pytest.mark.parametrize("name", BASES)
def test_a_real_file_is_read(name: str) -> None:
    assert untouched(BASES[name]) == "done"


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
def test_changed_files_are_read_or_refused_in_one_line(target: Target) -> None:
    said = target.short(15)  # raises where the property does not hold
    assert len(said) > len(target.corpus())
    assert all(len(one.splitlines()) == 1 for one in said)
