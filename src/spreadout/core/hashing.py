"""2-universal hash functions: `h(x) = ((a·x + b) mod p) mod B` with p prime (Carter and Wegman 1979).

Over the draw of (a, b), two different ids share a bucket with a chance of about 1/B. A function is two
numbers, so a whole family is broadcast in a few bytes. The price: whether x and x + d share a bucket
depends mostly on d. So most draws keep all ids apart, and an unlucky one gives nearly every id a twin
in all R functions at once. `telling_apart` passes over such draws.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from spreadout.core import randomness

DRAWS = 64  # each passes with a chance of more than a half
PRIME = 2**31 - 1  # a·x + b stays below 2⁶³ for ids below it


@dataclass(frozen=True)
class HashFamily:
    """R independent functions into `buckets` buckets."""

    a: Tensor  # (R,) int64 in [1, p)
    b: Tensor  # (R,) int64 in [0, p)
    buckets: int

    @property
    def tables(self) -> int:
        return len(self.a)

    @property
    def nbytes(self) -> int:
        """Bytes of the family as it is sent: (a, b) of each function, and the number of buckets."""
        return 8 * (2 * self.tables + 1)

    @classmethod
    def drawn(cls, tables: int, buckets: int, *, seed: int, use: str) -> HashFamily:
        """A function of (seed, use): different uses are independent."""
        return cls._next(randomness.generator(seed, "hash", use), tables, buckets)

    @classmethod
    def telling_apart(cls, ids: int, tables: int, buckets: int, *, seed: int, use: str) -> HashFamily:
        """The first such draw under which ids below `ids` are told apart as well as may be expected.

        Pairs with all buckets in common are twice their mean over draws at most; by Markov's inequality
        more than half of all draws are so.
        """
        draw = randomness.generator(seed, "hash", use)
        family = cls._next(draw, tables, buckets)
        for _ in range(DRAWS):
            # The mean is ids (ids − 1) / 2 / B^R. Whole numbers: B^R may be more than a float can say.
            if family.alike(ids) * buckets**tables <= ids * (ids - 1):
                break
            family = cls._next(draw, tables, buckets)
        return family

    @classmethod
    def _next(cls, draw: np.random.Generator, tables: int, buckets: int) -> HashFamily:
        a = torch.from_numpy(draw.integers(1, PRIME, size=tables))
        b = torch.from_numpy(draw.integers(0, PRIME, size=tables))
        return cls(a, b, buckets)

    @classmethod
    def of(cls, functions: Tensor, buckets: int) -> HashFamily:
        """The family that `functions` gave; ValueError for numbers that are none."""
        a, b = functions
        if int(a.min()) < 1 or int(b.min()) < 0 or int(functions.max()) >= PRIME:
            raise ValueError("hash functions are out of range")
        return cls(a, b, buckets)

    @property
    def functions(self) -> Tensor:
        """a and b of each function: (2, R)."""
        return torch.stack([self.a, self.b])

    @classmethod
    def apart(cls, tables: int, buckets: int) -> HashFamily:
        """Every id below `buckets` in one of its own: h(x) = x mod B.

        >>> HashFamily.apart(2, 3)(torch.tensor([0, 1, 2])).tolist()
        [[0, 1, 2], [0, 1, 2]]
        """
        one = torch.ones(tables, dtype=torch.int64)
        return cls(one, one - 1, buckets)

    def alike(self, ids: int) -> int:
        """How many pairs of ids below `ids` have all their buckets in common.

        >>> HashFamily.apart(2, 3).alike(4)  # 0 and 3
        1
        """
        group, sizes = torch.zeros(ids, dtype=torch.int64), torch.tensor([ids])
        for places in self(torch.arange(ids)):
            key = group * self.buckets + places
            _, group, sizes = key.unique(return_inverse=True, return_counts=True)
            if len(sizes) == ids:
                return 0
        return int((sizes * (sizes - 1) // 2).sum())

    def to(self, device: torch.device) -> HashFamily:
        return HashFamily(self.a.to(device), self.b.to(device), self.buckets)

    def __call__(self, ids: Tensor) -> Tensor:
        """The buckets of ids in [0, p), one row for each function: (…) → (R, …)."""
        shape = (-1, *[1] * ids.dim())
        return (self.a.view(shape) * ids.long() + self.b.view(shape)) % PRIME % self.buckets


def signs(family: HashFamily, ids: Tensor) -> Tensor:
    """A family of two buckets as signs: (…) → (R, …) of −1 and 1."""
    return 2 * family(ids) - 1
