"""Run folders: read as they are, and read or refused in one line however they are damaged or edited."""

import pytest

from fuzz.folders import READERS, ROSTERS, RUN, TARGETS, read_roster, run
from fuzz.target import Target

UNASKED = {("killed", "predict")}  # it has no model yet


@pytest.mark.parametrize("kind", RUN)
def test_an_untouched_folder_is_read(kind: str) -> None:
    for sums in (True, False):
        for reader in READERS:
            said = run({"kind": kind, "reader": reader, "sums": sums, "files": {}})
            assert (said == "done") == ((kind, reader) not in UNASKED), said
    assert read_roster(ROSTERS) == "done"


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
def test_damaged_and_edited_folders_are_read_or_refused_in_one_line(target: Target) -> None:
    said = target.short(40)  # raises where the property does not hold
    assert len(said) > len(target.corpus())
    assert all(len(one.splitlines()) == 1 for one in said)
