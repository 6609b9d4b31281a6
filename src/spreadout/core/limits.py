"""How much what comes from outside may grow to when it is read: the one limit against bombs.

A packed file says how large it becomes. That is checked before anything is unpacked: it may become a
quarter of a gibibyte, or fifty times its own size if that is more. Published text packs ten to thirty
times, a bomb a thousand times. `SPREADOUT_UNPACK_GB` raises the quarter.
"""

from __future__ import annotations

import math
import os

from spreadout.core.errors import UserError

VARIABLE = "SPREADOUT_UNPACK_GB"
HARMLESS_GB = 0.25
DENSEST = 50  # times the packed size


def unpack_limit(packed: int) -> int:
    """The bytes that so many packed bytes may become."""
    return max(round(_harmless_gb() * 2**30), DENSEST * packed)


def refuse_bomb(what: object, unpacked: int, packed: int) -> None:
    """Refuse something that would become larger than anything published."""
    if unpacked > unpack_limit(packed):
        raise UserError(
            f"{what}: unpacks to {unpacked:,} bytes or more, over {_harmless_gb():g} GiB and over "
            f"{DENSEST} times its size: refused as a bomb; if you trust it, set {VARIABLE} higher"
        )


def _harmless_gb() -> float:
    given = os.environ.get(VARIABLE, "")
    try:
        found = float(given or HARMLESS_GB)
    except ValueError:
        found = math.nan
    if not 0 < found < 2**20:
        raise UserError(f"{VARIABLE} = {given!r}: set a number of gibibytes, such as {HARMLESS_GB}")
    return found
