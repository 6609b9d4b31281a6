"""On a CPU, memory that tensors give back is kept for those of the next round.

glibc maps every large block anew and gives it back to the system when it is freed. A round of training
makes and frees the same large tensors again and again, and the system clears each page before it hands
it out: that can take longer than the training (docs/performance.md).
"""

from __future__ import annotations

import ctypes
import os
import sys
from functools import cache

TRIM_THRESHOLD, TOP_PAD, MMAP_MAX = -1, -2, -4  # of mallopt(3)
MOST = 2**31 - 1  # bytes at the heap's end that are kept: as many as mallopt can be told
SWITCH = "SPREADOUT_KEEP_MEMORY"


@cache
def keep_memory() -> bool:
    """Tell glibc, once in a process; whether it listened. `SPREADOUT_KEEP_MEMORY=0` leaves it alone."""
    if not sys.platform.startswith("linux") or os.environ.get(SWITCH) == "0":
        return False
    try:
        mallopt = ctypes.CDLL("libc.so.6").mallopt
    except (OSError, AttributeError):  # another C library
        return False
    told = [mallopt(MMAP_MAX, 0), mallopt(TRIM_THRESHOLD, MOST), mallopt(TOP_PAD, 1 << 26)]
    return all(told)
