"""Files of every format: read as they are, and read or refused in one line however they are changed."""

import pytest

from fuzz.bases import BASES
from fuzz.files import TARGETS, untouched
from fuzz.target import Target, read_case


@pytest.mark.parametrize("name", BASES)
def test_a_real_file_is_read(name: str) -> None:
    assert untouched(BASES[name]) == "done"


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
def test_changed_files_are_read_or_refused_in_one_line(target: Target) -> None:
    for path in target.corpus():
        target.run(read_case(path))
    target.short(15)
