"""The tiles of a TIFF picture: what it unpacks to may be far more than its width times its height.

A tile is decoded whole, however little of it the picture shows. The directory is walked here, and Pillow
is not asked for it: Pillow passes over entries that libtiff, which decodes, believes.
"""

from __future__ import annotations

import struct

TILE_WIDTH, TILE_LENGTH = 322, 323
SHORT, LONG = 3, 4  # the types in which a tile's sides may be given


def tile_pixels(raw: bytes) -> int:
    """Pixels of the largest tile of the first picture; 0 where it has none, or it is no TIFF.

    ValueError: it says so in a way that readers may take for different numbers.
    """
    if raw[:4] not in (b"II*\0", b"MM\0*", b"II+\0", b"MM\0+"):
        return 0
    order, is_big = "<" if raw[:1] == b"I" else ">", b"+" in raw[:4]
    where, count, entry = ("Q", "Q", "HHQ8s") if is_big else ("I", "H", "HHI4s")
    try:
        (at,) = struct.unpack_from(order + where, raw, 8 if is_big else 4)
        (entries,) = struct.unpack_from(order + count, raw, at)
        at += struct.calcsize(order + count)
        sides = {TILE_WIDTH: 0, TILE_LENGTH: 0}
        for _ in range(entries):
            tag, kind, values, inside = struct.unpack_from(order + entry, raw, at)
            at += struct.calcsize(order + entry)
            if tag in sides:  # a tag that is there twice counts with its larger value
                sides[tag] = max(sides[tag], _side(order, kind, values, inside))
    except struct.error:
        raise ValueError("its directory is cut short") from None
    return sides[TILE_WIDTH] * sides[TILE_LENGTH]


def _side(order: str, kind: int, values: int, inside: bytes) -> int:
    if values != 1 or kind not in (SHORT, LONG):
        raise ValueError("the size of its tiles is no plain number")
    (found,) = struct.unpack_from(order + ("H" if kind == SHORT else "I"), inside)
    return int(found)
