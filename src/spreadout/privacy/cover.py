"""Cover sets: classes are cut into public blocks, and a request names whole blocks only.

Which classes share a block is the same for every client and in every round, so a request tells which
blocks hold a client's classes and no more, however often it is seen: of the classes of a block any may
be the client's (k-anonymity, k = the block's size). What an observer knows of how popular classes are,
he still knows: within a block a popular class is the better guess. Blocks are of a public random order,
since neighbours by number are often alike (the letters of one alphabet), and a block of those would name
what they have in common.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import torch

from spreadout.core import randomness
from spreadout.core.ragged import Ragged
from spreadout.core.randomness import Ints

ORDER = randomness.key(0, "cover sets")  # public, and of no run: nobody may choose it to fit somebody


@lru_cache(maxsize=8)
def blocks_of(first: int, end: int, size: int) -> Ints:
    """The block of every class up to `end`, those below `first` in none (−1); `size` or more in each."""
    count = end - first
    found = np.full(end, -1, np.int64)
    place = randomness.permute(np.arange(count), count, np.array(ORDER, np.uint64))
    found[first:] = place * max(count // size, 1) // max(count, 1)
    found.flags.writeable = False
    return found


def covered(own: Ragged, blocks: Ints) -> Ragged:
    """For each client, all classes of the blocks that hold its own, ascending."""
    lists = []
    for i in range(len(own)):
        wanted = np.zeros(blocks.max(initial=0) + 1, np.bool_)
        wanted[blocks[own[i].numpy()]] = True
        lists.append(torch.from_numpy(np.flatnonzero(wanted[blocks] & (blocks >= 0))))
    return Ragged.from_lists(lists)
