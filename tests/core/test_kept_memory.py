"""Memory that is freed is kept: the system need not clear the same pages round after round."""

import os
import subprocess
import sys

import pytest

from spreadout.core.kept_memory import SWITCH, keep_memory

ROUNDS = 60  # each makes and frees a tensor of 64 MiB
SCRIPT = f"""
import resource
import torch
from spreadout.core.kept_memory import keep_memory

told = keep_memory()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range({ROUNDS}):
    torch.ones(16 << 20)
print(told, resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def faults(switch: str) -> tuple[bool, int]:
    """Whether glibc was told, and the pages that were handed out anew."""
    made = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        env={**os.environ, SWITCH: switch},
        capture_output=True,
        text=True,
        check=True,
    )
    told, count = made.stdout.split()
    return told == "True", int(count)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="glibc's own switches")
def test_pages_of_freed_tensors_are_used_again() -> None:
    told, kept = faults("1")
    assert told == keep_memory()
    left_alone, anew = faults("0")
    assert not left_alone
    if told:  # with another C library there is nothing to compare
        assert anew > 4 * kept
